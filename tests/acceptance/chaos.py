"""Three servers on one PostgreSQL, four real jobs, and somebody who kills: what was promised must hold all the time.

    python -m tests.acceptance.chaos [--minutes 30] [--seed 1] [--servers 3] [--jobs 4] [--workers 3]

Every few seconds something happens, drawn from the seed: a server is killed with -9 and started again, or stopped for
longer than its lease; PostgreSQL is restarted as after a crash; a driver, its JVM or a Python worker is killed; an
executor, or a worker of the Spark cluster with its executors (``--workers 0``: no cluster, the jobs run on the host).
Meanwhile a client for each job declares bounds at any server, with the same Idempotency-Key until it is answered. At
the end:

* no PUT that was answered is lost: the last one is in force, and their versions rise;
* never were there two drivers on one checkpoint, as seen by an observer that knows nothing but processes and files;
* no slot is held by two jobs, at any look into the database;
* every sink is exact;
* every rescale has ended, once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg

from app.cluster.java import usable_java
from app.cluster.standalone.daemons import DevCluster
from tests.acceptance.chaos_events import LEASE_S, Chaos, add_worker, living_drivers
from tests.acceptance.deployment import OK, expected_counts, stored_counts, wait_for
from tests.acceptance.members import Job, Server, Servers, servers_on
from tests.databases import PostgresServer

REST_S = 180.0
CALM_S = (5.0, 15.0)
DEFECTS = (
    "a step failed",
    "a transaction of a job met a defect",
    "an effect could not be performed",
    "a background task failed",
)
AUDIT = """
CREATE TABLE chaos_ends (uuid TEXT NOT NULL);
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN IF NEW.terminal_state IS NOT NULL THEN INSERT INTO chaos_ends VALUES (NEW.uuid); END IF; RETURN NEW; END';
CREATE TRIGGER chaos_audit AFTER INSERT OR UPDATE ON rescales FOR EACH ROW EXECUTE FUNCTION chaos_note();
"""


@dataclass
class Client:
    """Declares bounds of one job, one after another. ``answered``: the version and the bound of each that was."""

    job: Job
    rng: random.Random
    servers: Callable[[], list[Server]]
    stopping: threading.Event
    answered: list[tuple[int, int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def run(self) -> None:
        upper = 0
        while not self.stopping.wait(self.rng.uniform(0.5, 3.0)):
            upper = self.rng.choice([each for each in (1, 2, 3, 4) if each != upper])
            self._put(upper, uuid.uuid4().hex)

    def _put(self, upper: int, key: str) -> None:
        while True:
            with contextlib.suppress(httpx.HTTPError, IndexError):
                answer = self.job.put(self.rng.choice(self.servers()), upper, key=key)
                if answer.status_code == OK:
                    self.answered.append((int(answer.headers["ETag"].strip('"')), upper))
                    return
                if answer.status_code != 503:
                    self.refused.append(f"{answer.status_code}: {answer.text}")
                    return
            time.sleep(0.1)


class Observer:
    """Looks for two drivers on one checkpoint, by processes and by the files that a driver leaves where it works."""

    def __init__(self, data_dir: Path, stopping: threading.Event) -> None:
        self.seen: list[str] = []
        self.looks = 0
        self._data_dir = data_dir
        self._stopping = stopping

    def run(self) -> None:
        while not self._stopping.wait(0.1):
            self.look()

    def look(self) -> None:
        """The files first: whoever is found to live after its successor has begun is one too many."""
        begun = {job_dir.name: drivers_in_turn(job_dir) for job_dir in (self._data_dir / "jobs").glob("*")}
        alive = set(living_drivers(self._data_dir).values())
        self.looks += 1
        for job_id, drivers in begun.items():
            if len(alive.intersection(drivers)) > 1:
                self.seen.append(f"{time.time():.3f}: drivers {alive & set(drivers)} of job {job_id}")


def drivers_in_turn(job_dir: Path) -> list[str]:
    """The drivers that have begun an attempt of the job."""
    found = []
    for link in job_dir.glob("attempt-*/driver.log"):
        with contextlib.suppress(OSError):
            found.append(Path(os.readlink(link)).stem)
    return found


@dataclass
class Result:
    """What came of it; `faults` is empty if all that was promised holds."""

    seconds: float
    happened: Counter[str]
    answered: int
    looks: int
    rescales: int
    rows: int
    faults: list[str]


def run(
    directory: Path,
    *,
    seconds: float,
    seed: int,
    servers: int = 3,
    jobs: int = 4,
    workers: int = 0,
    tell: Callable[[str], None] = print,
) -> Result:
    """Chaos for ``seconds``, then rest, then the checks. ``workers``: of a Spark cluster; 0 for none."""
    rng = random.Random(seed)
    postgres = PostgresServer.start(durable=True)
    try:
        dsn = postgres.create_database()
        with (
            spark_cluster(directory / "cluster", workers) as cluster,
            servers_on(directory, dsn, lease_seconds=LEASE_S, settings=places(cluster)) as made,
        ):
            chaos = Chaos(made, postgres, rng, servers, cluster)
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(AUDIT)
            own = [made.submit(rng.choice(chaos.up), name=f"job-{number}") for number in range(jobs)]
            tell(f"{servers} servers and {jobs} jobs run; chaos for {seconds:.0f} s with seed {seed}")
            began = time.monotonic()
            stopping = threading.Event()
            observer = Observer(made.data_dir, stopping)
            clients = [Client(job, random.Random(rng.random()), chaos.alive, stopping) for job in own]
            with threads([*(client.run for client in clients), observer.run], stopping):
                doubles: set[str] = set()
                while time.monotonic() - began < seconds:
                    until = time.monotonic() + rng.uniform(*CALM_S)
                    while time.monotonic() < until:
                        doubles |= held_twice(made)
                        time.sleep(0.2)
                    chaos.one()
                    tell(f"{time.monotonic() - began:6.0f} s  {dict(chaos.happened)}")
            faults = [f"slot {slot} was held by two jobs" for slot in sorted(doubles)]
            faults += checked(made, chaos, clients, observer, tell)
            return Result(
                time.monotonic() - began,
                chaos.happened,
                sum(len(client.answered) for client in clients),
                observer.looks,
                made.query("SELECT count(*) FROM rescales")[0][0],
                sum(job.rows() for job in own),
                faults,
            )
    finally:
        postgres.stop()


def held_twice(servers: Servers) -> set[str]:
    """By the states of the jobs, which their owners go by."""
    with contextlib.suppress(psycopg.OperationalError):
        states = servers.query("SELECT state::json -> 'slots' FROM job_states WHERE ended_ms IS NULL")
        held = Counter(slot["id"] for (slots,) in states for slot in slots)
        return {slot for slot, count in held.items() if count > 1}
    return set()


@contextlib.contextmanager
def spark_cluster(directory: Path, workers: int) -> Iterator[DevCluster | None]:
    if not workers:
        yield None
        return
    cluster = DevCluster(directory, java=usable_java())
    try:
        cluster.up()
        for _ in range(workers):
            add_worker(cluster)
        yield cluster
    finally:
        cluster.down()


def places(cluster: DevCluster | None) -> dict[str, str]:
    """What a server has to be told about where slots are."""
    if cluster is None:
        return {}
    return {
        "SLOTWISE_CLUSTER_KIND": "spark-standalone",
        "SLOTWISE_CLUSTER_MASTER": cluster.master_url,
        "SLOTWISE_CLUSTER_WEBUI": cluster.webui_url,
    }


@contextlib.contextmanager
def threads(targets: list[Callable[[], None]], stopping: threading.Event) -> Iterator[None]:
    started = [threading.Thread(target=each, daemon=True) for each in targets]
    for each in started:
        each.start()
    try:
        yield
    finally:
        stopping.set()
        for each in started:
            each.join(REST_S)


def checked(
    servers: Servers, chaos: Chaos, clients: list[Client], observer: Observer, tell: Callable[[str], None]
) -> list[str]:
    """Let everything come to rest, end the jobs, and say what is not as it was promised."""
    faults = list(observer.seen)
    chaos.restart()
    for client in clients:
        faults += [f"job {client.job.job_id}: a PUT was refused: {each}" for each in client.refused]
        faults += resting(chaos.up[0], client)
    tell("at rest; the jobs are stopped")
    for client in clients:
        faults += ended(chaos.up[0], client.job)
    faults += [
        f"the end of rescale {name} was written {count} times"
        for name, count in servers.query(
            "SELECT r.uuid, count(e.uuid) FROM rescales r LEFT JOIN chaos_ends e USING (uuid) "
            "GROUP BY r.uuid HAVING count(e.uuid) <> 1"
        )
    ]
    for server in servers.all:
        for name in DEFECTS:
            faults += [f"server {server.number}: {entry}" for entry in server.events(name)]
    return faults


def resting(server: Server, client: Client) -> list[str]:
    """The job runs with the bounds that were answered last, and no rescale is open."""
    job, faults = client.job, []
    versions = [version for version, _ in client.answered]
    if versions != sorted(set(versions)):
        faults.append(f"job {job.job_id}: versions do not rise: {versions}")

    def rests() -> bool:
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            records = job.servers.get(server, f"/jobs/{job.job_id}/rescales/history?limit=5")
            return job.show(server)["state"] == "RUNNING" and all(one["terminalState"] for one in records)
        return False

    try:
        wait_for(f"job {job.job_id} is at rest", rests, REST_S)
    except AssertionError as error:
        shown = [job.show(server)["state"], job.servers.get(server, f"/jobs/{job.job_id}/explanation")]
        return [*faults, f"{error}: {shown}"]
    if client.answered:
        path = f"/jobs/{job.job_id}/resource-requirements"
        found = {entry["parallelism"]["upperBound"] for entry in job.servers.get(server, path).values()}
        version = int(job.servers.call(server, "GET", path).headers["ETag"].strip('"'))
        if (version, max(found - {2}, default=2)) != client.answered[-1] and found != {2}:
            faults.append(
                f"job {job.job_id}: {client.answered[-1]} was answered, {version}, {found} is there"
            )
    return faults


def ended(server: Server, job: Job) -> list[str]:
    """The job is stopped with a drain, and its sink is exact."""
    answers: list[httpx.Response] = []

    def accepted() -> bool:
        answers.append(job.servers.call(server, "POST", f"/jobs/{job.job_id}/stop", json={}))
        return answers[-1].is_success

    def failed() -> bool:
        status = job.servers.get(server, f"/jobs/{job.job_id}/savepoints/{answers[-1].json()['request-id']}")
        return bool((status.get("operation") or {}).get("failure-cause"))

    for again in (True, False):
        try:
            # Another job that has ended gives it slots, and while it takes them up it cannot be stopped.
            wait_for("it can be stopped", accepted, REST_S)
        except AssertionError as error:
            return [f"job {job.job_id}: {error}: {answers[-1].status_code}: {answers[-1].text}"]
        try:
            wait_for("it has finished", lambda: job.show(server)["state"] == "FINISHED" or failed(), REST_S)
        except AssertionError as error:
            explained = job.servers.get(server, f"/jobs/{job.job_id}/explanation")
            return [f"job {job.job_id}: {error}: {job.show(server)['state']}, {explained}"]
        # A driver that was killed last of all may be found to be dead only when it is to stop. Then the stop fails,
        # the job is restarted, and whoever wants it to end says so again.
        if not failed():
            break
        if not again:
            return [f"job {job.job_id}: it was told to stop twice, and both stops failed: {answers[-1].text}"]
    found = stored_counts(job.sink)
    rows = sum(count for count, _ in found.values())
    return (
        [] if found == expected_counts(rows) else [f"job {job.job_id}: the sink is not exact at {rows} rows"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=3, help="of a Spark cluster; 0 for none")
    parser.add_argument("--directory", type=Path, help="where logs and data are kept afterwards")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.directory
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slotwise-chaos-")))
        directory.mkdir(parents=True, exist_ok=True)
        result = run(
            directory,
            seconds=options.minutes * 60,
            seed=options.seed,
            servers=options.servers,
            jobs=options.jobs,
            workers=options.workers,
            tell=lambda line: print(line, flush=True),
        )
    print(f"{result.seconds:.0f} s: {dict(result.happened)}; {result.answered} PUTs answered,")
    print(f"{result.rescales} rescales, {result.rows} rows, {result.looks} looks for a second driver")
    for fault in result.faults:
        print("FAULT", fault)
    print("all that was promised holds" if not result.faults else f"{len(result.faults)} faults")
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())

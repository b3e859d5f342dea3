"""A real server with a real job, as an operator has them: processes to be killed, a REST client, files to be read."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from app.cli.demo.server import drivers_of
from app.cluster.standalone.daemons import DevCluster
from tests import numbers
from tests.acceptance.kills import DIRECTORY, Kills
from tests.acceptance.own_database import database_of
from tests.environments import CACHE, QUICK_JAVA

ROOT = Path(__file__).resolve().parents[2]
CHECKED_SERVER = ROOT / "tests/acceptance/checked_server.py"
DEADLINE_S = 240.0
# A job that has failed so often before its first row will not get there, however long one waits.
MOST_FAILURES = 5
SLOTS = 4
KEYS = 97
OK = 200


def wait_for(what: str, reached: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """The first true answer of ``reached``, which is asked for a twentieth of the time: asking costs the server too."""
    began = looked = time.monotonic()
    while not (value := reached()):
        now = time.monotonic()
        assert now - began < deadline_s, f"after {deadline_s:.0f} s it is not so that {what}"
        time.sleep(min(max(0.05, 19 * (now - looked)), 1.0))
        looked = time.monotonic()
    return value


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def expected_counts(rows: int) -> dict[int, tuple[int, int]]:
    """What the sink holds after the first ``rows`` numbers: per key their count and their sum."""
    ranges = {key: range(key, rows, KEYS) for key in range(min(KEYS, rows))}
    return {key: (len(numbers), sum(numbers)) for key, numbers in ranges.items()}


@dataclass
class Deployment:
    """A data directory, the server on it while there is one, and one job at a time."""

    directory: Path
    warm_drivers: int = 0
    points_in_drivers: bool = False
    cluster: DevCluster | None = None
    slots: int = SLOTS
    settings: dict[str, str] = field(default_factory=dict)
    server: subprocess.Popen[bytes] | None = None
    job_id: str = ""

    def __post_init__(self) -> None:
        self.data_dir = self.directory / "data"
        self.database = database_of(self.data_dir)
        self.kills = Kills(self.directory / "kills")
        self.log_file = self.directory / "server.log"
        self._http = httpx.Client(timeout=30.0, trust_env=False)

    # -- processes

    def start(self, *, with_points: bool) -> None:
        """Start a server, the one that can be killed at points or plain `slotwise serve`, and wait for it."""
        assert self.server is None
        (self.data_dir / "address").unlink(missing_ok=True)
        with open(self.log_file, "ab") as output:
            self.server = subprocess.Popen(
                self.command(with_points=with_points),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=self.environment(),
            )
        wait_for("the server is ready", self._is_ready)
        self.database.audit()

    def command(self, *, with_points: bool) -> list[str]:
        program = ROOT / "tests/acceptance/server_launcher.py" if with_points else CHECKED_SERVER
        options = ["--data-dir", str(self.data_dir), "--port", "0"]
        if self.cluster is None:
            options += ["--slots", str(self.slots)]
        else:
            master, page = self.cluster.master_url, self.cluster.webui_url
            options += ["--cluster-master", master, "--cluster-webui", page]
        return [sys.executable, str(program), "serve", *options]

    def environment(self) -> dict[str, str]:
        """Without settings of somebody else's server."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLOTWISE_")}
        return {
            **kept,
            "SLOTWISE_WARM_DRIVERS": str(self.warm_drivers),
            "SLOTWISE_DRIVER_MEMORY_MB": "512",
            "SLOTWISE_DRIVER_JAVA_OPTIONS": QUICK_JAVA,
            "SLOTWISE_CACHE_DIR": str(CACHE),
            DIRECTORY: str(self.kills.directory),
            **({"ACCEPTANCE_DRIVERS": "1"} if self.points_in_drivers else {}),
            **{
                f"SLOTWISE_{name.upper()}": value
                for name, value in {**self.database.settings, **self.settings}.items()
            },
        }

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.await_end()

    def terminate_server(self) -> int:
        assert self.server is not None
        self.server.send_signal(signal.SIGTERM)
        return self.await_end()

    def await_end(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait until the server has ended, by itself or by somebody else's kill; its exit status."""
        assert self.server is not None
        try:
            status = self.server.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server lives on\n{self.log_end()}") from None
        self.server = None
        return status

    def restart(self, *, with_points: bool) -> None:
        if self.server is not None:
            self.terminate_server()
        self.start(with_points=with_points)

    def close(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self.server = None
        for pid in drivers_of(self.data_dir):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._http.close()

    def log_end(self, lines: int = 40) -> str:
        return "\n".join(self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def driver_locks(self) -> set[str]:
        """The lock files of the drivers that live, JVMs and Python workers included."""
        found = set()
        for pid in drivers_of(self.data_dir):
            with contextlib.suppress(psutil.Error):
                found.add(psutil.Process(pid).environ()["_SLOTWISE_DRIVER_LOCK"])
        return found

    def check_no_other_driver(self) -> None:
        """Whatever was begun and given up: in the end the live attempt's driver is the only one."""
        statement = "SELECT lock_file FROM attempts WHERE job_id = ? AND state = 'LIVE'"
        ((lock,),) = self.query(statement, self.job_id)
        wait_for("no other driver lives", lambda: self.driver_locks() == {lock})

    # -- REST

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        address = (self.data_dir / "address").read_text(encoding="utf-8").strip()
        return self._http.request(method, address + path, **more)

    def get(self, path: str) -> Any:
        response = self.call("GET", path)
        assert response.status_code == OK, (path, response.status_code, response.text)
        return response.json()

    def job(self) -> Any:
        return self.get(f"/jobs/{self.job_id}")

    def history(self) -> list[Any]:
        """Newest first."""
        return list(self.get(f"/jobs/{self.job_id}/rescales/history?limit=500"))

    def parallelism(self) -> dict[str, int]:
        return {vertex["name"]: vertex["parallelism"] for vertex in self.job()["vertices"]}

    def requirements(self) -> tuple[int, dict[str, tuple[int, int]]]:
        """The version, and the bounds by vertex name."""
        response = self.call("GET", f"/jobs/{self.job_id}/resource-requirements")
        names = {vertex["id"]: vertex["name"] for vertex in self.job()["vertices"]}
        bounds = {
            names[vertex]: (entry["parallelism"]["lowerBound"], entry["parallelism"]["upperBound"])
            for vertex, entry in response.json().items()
        }
        return int(response.headers["ETag"].strip('"')), bounds

    def put(self, bounds: dict[str, tuple[int, int]], key: str) -> httpx.Response:
        body = {
            name: {"parallelism": {"lowerBound": lower, "upperBound": upper}}
            for name, (lower, upper) in bounds.items()
        }
        headers = {"Idempotency-Key": key, "X-Slotwise-Reason": key}
        return self.call("PUT", f"/jobs/{self.job_id}/resource-requirements", json=body, headers=headers)

    def submit(self, document: dict[str, Any], artifact: Path | None = None) -> None:
        """Submit a job and wait until it has written its first rows."""
        if artifact is None:
            response = self.call("POST", "/jobs", json=document)
        else:
            files = {
                "graph": ("graph.json", json.dumps(document).encode(), "application/json"),
                "files": (artifact.name, artifact.read_bytes(), "application/octet-stream"),
            }
            response = self.call("POST", "/jobs", files=files)
        assert response.is_success, response.text
        self.job_id = response.json()["jobid"]
        self.sink = sink_of(document)
        wait_for("there are rows in the sink", self._first_rows)

    def _first_rows(self) -> int:
        failures = self.get(f"/jobs/{self.job_id}/exceptions")["exceptionHistory"]["entries"]
        assert len(failures) < MOST_FAILURES, f"it only fails: {failures}\n{self.log_end()}"
        return self.rows()

    def stop(self) -> None:
        """Stop with a drain, and wait for the end."""
        response = self.call("POST", f"/jobs/{self.job_id}/stop", json={})
        assert response.is_success, response.text
        self.await_status("FINISHED")

    def await_status(self, status: str) -> None:
        def reached() -> bool:
            found = self.job()["state"]
            assert found == status or found not in ("FINISHED", "FAILED", "CANCELED"), self.why(found)
            return bool(found == status)

        wait_for(f"the job is {status}", reached)

    def why(self, found: str) -> str:
        return f"{found}: {self.get(f'/jobs/{self.job_id}/exceptions')}\n{self.log_end()}"

    def await_settled(self) -> None:
        """Wait until the job runs, every rescale has ended, and every vertex is as parallel as its upper bound."""

        def settled() -> bool:
            if self.job()["state"] != "RUNNING" or any(
                one["terminalState"] is None for one in self.history()
            ):
                return False
            upper = {name: upper for name, (_, upper) in self.requirements()[1].items()}
            return self.parallelism() == upper

        try:
            wait_for("the job runs at its bounds, and no rescale is open", settled)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.job()}\n{self.history()[:3]}\n{self.log_end()}") from None

    def await_progress(self) -> int:
        """Wait until rows are written that were not there before; how many there are then."""
        before = self.rows()
        return int(wait_for("more rows are in the sink", lambda: self.rows() > before and self.rows()))

    # -- what is on disk

    def rows(self) -> int:
        """How many numbers the sink has counted. It is exact at any instant, or this fails."""
        found = stored_counts(self.sink)
        rows = sum(count for count, _ in found.values())
        assert found == expected_counts(rows), f"the sink is not exact at {rows} rows"
        return rows

    def committed_rows(self) -> int:
        """The end of the last batch that Spark has committed."""
        checkpoint = self.data_dir / "jobs" / self.job_id / "checkpoint"
        (commits,) = checkpoint.glob("*/commits")
        newest = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdigit())
        last_line = (commits.parent / "offsets" / str(newest)).read_text(encoding="utf-8").splitlines()[-1]
        return numbers.row_number(json.loads(last_line))

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Look into the server's database."""
        return self.database.query(statement, *values)

    def check_ends(self) -> None:
        """Every rescale has ended, once: no row of the history was written again after its end."""
        records = self.history()
        assert [one["rescaleUuid"] for one in records if one["terminalState"] is None] == []
        stored = self.query("SELECT uuid FROM rescales WHERE job_id = ?", self.job_id)
        assert sorted(uuid for (uuid,) in stored) == sorted(one["rescaleUuid"] for one in records)
        statement = (
            "SELECT r.uuid, count(e.uuid) FROM rescales r LEFT JOIN acceptance_ends e ON e.uuid = r.uuid "
            "WHERE r.job_id = ? GROUP BY r.uuid HAVING count(e.uuid) <> 1"
        )
        assert self.query(statement, self.job_id) == [], "(rescale, how often its end was written)"
        numbers = [one["number"] for one in records]
        assert numbers == list(range(len(records), 0, -1))

    def _is_ready(self) -> bool:
        assert self.server is not None
        assert self.server.poll() is None, f"the server ended\n{self.log_end()}"
        with contextlib.suppress(httpx.TransportError, FileNotFoundError, ValueError):
            return self.call("GET", "/health/ready").status_code == OK
        return False


@contextlib.contextmanager
def deployed(directory: Path, **options: Any) -> Iterator[Deployment]:
    deployment = Deployment(directory, **options)
    try:
        yield deployment
    finally:
        deployment.close()


def counting_in_place(directory: Path, parallelism: int, most: int) -> dict[str, Any]:
    """`counting` without the vertex that changes by a restart only."""
    document = counting(directory)
    document["vertices"] = [one for one in document["vertices"] if one["name"] != "plain"]
    counts = next(one for one in document["vertices"] if one["name"] == "counts")
    counts["inputs"], counts["sql"] = ["numbers"], counts["sql"].replace("FROM plain", "FROM numbers")
    counts["maxParallelism"] = most
    for vertex in document["vertices"]:
        vertex["parallelism"] = parallelism
    return document


def sink_of(document: dict[str, Any]) -> Path:
    (path,) = (vertex["sink"]["path"] for vertex in document["vertices"] if "sink" in vertex)
    return Path(path)


def stored_counts(sink: Path) -> dict[int, tuple[int, int]]:
    if not sink.exists():
        return {}
    with contextlib.closing(sqlite3.connect(sink, timeout=30)) as database:
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'counts'").fetchone() is None:
            return {}
        return {k: (n, total) for k, n, total in database.execute("SELECT k, n, total FROM counts")}


def counting(
    directory: Path, *, rows: int | None = None, probe: bool = False, ours: bool = False
) -> dict[str, Any]:
    """Counts numbers by key.

    All of it changes in place; under a server with points `plain` needs a restart of the query. ``rows`` None never
    ends. ``probe``: a Python vertex runs in the tasks of the stateful stage. ``ours``: see `numbers.unending`.
    """
    without_end = numbers.unending(500, ours=ours), dict[str, str]()
    source, config = without_end if rows is None else numbers.ending(directory, 500, rows)
    select = (
        f"SELECT value % {KEYS} AS k, count(*) AS n, sum(value) AS total FROM plain GROUP BY value % {KEYS}"
    )
    sink = {
        "format": "sqlite",
        "path": str(directory / "counts.db"),
        "outputMode": "update",
        "options": {"table": "counts", "mode": "upsert", "keys": "k"},
    }
    vertices = [
        {"name": "numbers", "source": source, "parallelism": 2},
        {"name": "plain", "inputs": ["numbers"], "sql": "SELECT value FROM numbers", "parallelism": 2},
        {"name": "counts", "inputs": ["plain"], "sql": select, "parallelism": 2, "maxParallelism": 4},
        {"name": "store", "inputs": ["probe" if probe else "counts"], "sink": sink, "parallelism": 2},
    ]
    if probe:
        vertices.insert(3, {"name": "probe", "inputs": ["counts"], "python": "probe:probe", "parallelism": 2})
    prefix = "jobmanager.adaptive-scheduler."
    return {
        "name": "counting",
        "type": "STREAMING",
        "config": {
            # Each batch takes a third of a second of CPU time, also while the test waits for something else.
            "slotwise.batch.interval": "1 s",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "100 ms",
            prefix + "submission.resource-stabilization-timeout": "0 ms",
            prefix + "executing.cooldown-after-rescaling": "0 ms",
            prefix + "executing.resource-stabilization-timeout": "0 ms",
            prefix + "rescale-trigger.max-delay": "0 ms",
            **config,
        },
        **({"artifacts": ["probe.py"]} if probe else {}),
        "vertices": vertices,
    }

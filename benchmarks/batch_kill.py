"""What kill -9 in the middle of a batch job costs: a TPC-H query in several regions, against plain Spark run again.

    python benchmarks/batch_kill.py [--query q9] [--scale 1] [--repetitions 5] [--slots 2] [--directory DIR]

A real server with its defaults (one warm driver) and a real driver. Killed at 30, 50, 70 and 90 % of the median time
undisturbed: the driver with its JVM; the driver and the server, which is started again at once. Plain Spark is a
process that runs the query as TPC-H writes it, from the start of the process until the answer is written; it is killed
at the same share of its own time, and run again from the start.

One table, medians of the repetitions; what each column means is in docs/benchmarks.md. Which regions ran is read off
every state that the server made durable, kept by a trigger in its database. The exit status is 1 if an answer is not
DuckDB's, if a region that was finished ran again after a kill, or if a result that was deleted by hand made others than
its producer run again, or if a row could not be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from app.documents.graph import parse_document
from app.model.batch_layout import datasets_of
from app.model.batch_regions import regions_of
from benchmarks._servers import Server, server, wait_for
from tests.tpch import answers, graphs, tables

SHARES = "0.3,0.5,0.7,0.9"
DRIVER, BOTH, PLAIN = "driver", "driver and server", "plain Spark"
POLL_S = 0.02
TRIES = 3

AUDIT = """
CREATE TABLE benchmark_states (id INTEGER PRIMARY KEY, job_id TEXT NOT NULL, regions TEXT);
CREATE TRIGGER benchmark_inserted AFTER INSERT ON job_states BEGIN
    INSERT INTO benchmark_states (job_id, regions) VALUES (NEW.job_id, NEW.state ->> '$.batch.regions'); END;
CREATE TRIGGER benchmark_updated AFTER UPDATE ON job_states BEGIN
    INSERT INTO benchmark_states (job_id, regions) VALUES (NEW.job_id, NEW.state ->> '$.batch.regions'); END;
"""


@dataclass(frozen=True)
class Disturbed:
    """What was done to a job: when, in how many states regions had been seen by then, and which finished regions, by
    number, are to run again."""

    at_s: float
    states: int
    expected: tuple[int, ...] = ()


Disturb = Callable[[str, float], Disturbed | None]
"""Does something to the job of an id that was submitted at a time in seconds; None if it was too late for that."""


@dataclass(frozen=True)
class Sample:
    """One run. ``rest_s``: from the disturbance on. ``finished``: how many regions were so at that time; ``again``: the
    finished ones that ran again, as often as they did; ``interrupted``: how often others did."""

    total_s: float
    exact: bool
    rest_s: float = 0.0
    finished: int = 0
    again: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    interrupted: int = 0

    @property
    def is_right(self) -> bool:
        return self.exact and self.again == self.expected


@dataclass
class Row:
    """``share`` None: not killed."""

    what: str
    share: float | None = None
    samples: list[Sample] = field(default_factory=list)

    def median(self, value: str) -> float:
        return float(statistics.median(getattr(one, value) for one in self.samples))


def kill(*processes: psutil.Process) -> None:
    """kill -9 of processes with all that they have started."""
    everyone = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            everyone += process.children(recursive=True)
    for process in everyone:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


class Jobs:
    """Runs the query as a job on a server of its own."""

    def __init__(self, running: Server, query: str, data: Path, directory: Path) -> None:
        self.server = running
        self.query = query
        self.data = data
        self.right = answers.expected(query, data)
        self._directory = directory
        self._count = 0
        self.graph = parse_document(graphs.document(query, data, directory))
        self.regions = regions_of(self.graph)
        with self._database() as database:
            database.executescript(AUDIT)

    @contextlib.contextmanager
    def _database(self) -> Any:
        with contextlib.closing(sqlite3.connect(self.server.directory / "slotwise.db", timeout=30)) as opened:
            yield opened

    def run(self, disturb: Disturb | None = None) -> Sample | None:
        """One job; None if it was too late to ``disturb`` it."""
        self._wait_for_a_warm_driver()
        self._count += 1
        out = self._directory / f"out-{self._count}"
        document = graphs.document(self.query, self.data, out)
        started_s = time.perf_counter()
        response = self.server.http.post("/jobs", json=document)
        response.raise_for_status()
        job_id = response.json()["jobid"]
        done = disturb(job_id, started_s) if disturb is not None else Disturbed(started_s, 0)
        wait_for("the job ends", lambda: self._is_finished(job_id))
        ended_s = time.perf_counter()
        exact = answers.found(out) == self.right
        shutil.rmtree(out)
        if done is None:
            return None
        history = self.history(job_id)
        again = self._again(history)
        return Sample(
            total_s=ended_s - started_s,
            exact=exact,
            rest_s=ended_s - done.at_s,
            finished=sum(status == "FINISHED" for status, _ in history[done.states - 1])
            if done.states
            else 0,
            again=again,
            expected=done.expected,
            interrupted=sum(run for _, run in history[-1]) - len(self.regions.all) - len(again),
        )

    def history(self, job_id: str) -> list[list[tuple[str, int]]]:
        """Status and number of runs of each region, of every durable state in which there were regions."""
        statement = (
            "SELECT regions FROM benchmark_states WHERE job_id = ? AND regions IS NOT NULL ORDER BY id"
        )
        with self._database() as database:
            found = database.execute(statement, [job_id]).fetchall()
        return [[(one["status"], one["run"]) for one in json.loads(text)] for (text,) in found]

    @staticmethod
    def _again(history: Sequence[Sequence[tuple[str, int]]]) -> tuple[int, ...]:
        """The regions that were finished and ran again, by number, as often as they did."""
        found = []
        for before, after in pairwise(history):
            for number, ((was, run), (now, later)) in enumerate(zip(before, after, strict=True)):
                if was == "FINISHED" and (now != "FINISHED" or later != run):
                    found.append(number)
        return tuple(found)

    def _is_finished(self, job_id: str) -> bool:
        time.sleep(POLL_S)
        status = self.server.get(f"/jobs/{job_id}/status")["status"]
        if status in ("FAILED", "CANCELED"):
            raise RuntimeError(f"The job is {status}: {self.server.get(f'/jobs/{job_id}/exceptions')}")
        return bool(status == "FINISHED")

    def _wait_for_a_warm_driver(self) -> None:
        def is_there() -> bool:
            taken = {entry["pid"] for entry in self.server.events("attempt assigned")}
            ready = {entry["pid"] for entry in self.server.events("warm driver ready")} - taken
            return any(psutil.pid_exists(pid) for pid in ready)

        wait_for("a warm driver", is_there)

    # -- what is done to a job

    def killed(self, after_s: float, *, server_too: bool) -> Disturb:
        """kill -9 of the driver; with ``server_too`` of the server at the same time, which is started again at once."""

        def disturb(job_id: str, started_s: float) -> Disturbed | None:
            time.sleep(max(0.0, started_s + after_s - time.perf_counter()))
            job = self.server.get(f"/jobs/{job_id}")
            if job["state"] != "RUNNING" or not job["driverPid"]:
                return None
            driver = psutil.Process(job["driverPid"])
            states = len(self.history(job_id))
            at_s = time.perf_counter()
            if server_too:
                # What else it has started, the warm driver, ends by itself.
                self.server.process.kill()
            kill(driver)
            if server_too:
                self.server.start_again()
            return Disturbed(at_s, states)

        return disturb

    def one_result_deleted(self, job_id: str, _started_s: float) -> Disturbed | None:
        """Remove the first result that a region has made of sources alone and that nobody has begun to read."""
        number, path = wait_for("there is a result that waits", lambda: self._unread_result(job_id))
        shutil.rmtree(path)
        at_s, states = time.perf_counter(), len(self.history(job_id))
        if self._unread_result(job_id) != (number, path):
            # A reader that has started holds the files open by other names, and misses nothing.
            return None
        return Disturbed(at_s, states, expected=(number,))

    def _unread_result(self, job_id: str) -> tuple[int, str] | None:
        with self._database() as database:
            statement = "SELECT state FROM job_states WHERE job_id = ?"
            ((text,),) = database.execute(statement, [job_id]).fetchall()
        batch = json.loads(text)["batch"]
        if batch is None:
            return None
        datasets = {one.id: one for one in datasets_of(self.graph, self.regions)}
        for result in batch["results"]:
            dataset = datasets[result["dataset"]]
            producer = self.regions.by_vertex[dataset.producer]
            readers = {self.regions.by_vertex[reader].number for reader in dataset.readers}
            unread = all(batch["regions"][reader]["status"] == "CREATED" for reader in readers)
            if unread and not producer.inputs:
                return producer.number, str(result["path"])
        return None


class Plain:
    """Runs the query on plain Spark, each time in a process of its own."""

    def __init__(self, jobs: Jobs, directory: Path, slots: int, memory_mb: int) -> None:
        self._right = jobs.right
        self._out = directory / "plain"
        script = str(Path(__file__).with_name("_plain_spark.py"))
        self._command = [
            sys.executable,
            script,
            str(jobs.data),
            str(self._out),
            str(slots),
            str(memory_mb),
        ]
        self._sql = answers.QUERIES[jobs.query].encode()

    def run(self, killed_after_s: float | None = None) -> Sample:
        """From the start of the process to the answer; killed once and run again, if that is asked for."""
        started_s = killed_s = time.perf_counter()
        if killed_after_s is not None:
            process = self._start()
            time.sleep(max(0.0, started_s + killed_after_s - time.perf_counter()))
            killed_s = time.perf_counter()
            kill(psutil.Process(process.pid))
            process.wait()
        process = self._start()
        assert process.stdout is not None
        said = process.stdout.readline()
        ended_s = time.perf_counter()
        kill(psutil.Process(process.pid))
        process.wait()
        exact = said == b"written\n" and answers.found(self._out) == self._right
        shutil.rmtree(self._out, ignore_errors=True)
        return Sample(ended_s - started_s, exact, ended_s - killed_s)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdin is not None
        process.stdin.write(self._sql)
        process.stdin.close()
        return process


def measure(jobs: Jobs, plain: Plain, repetitions: int, shares: Sequence[float]) -> list[Row]:
    job_row, plain_row, deleted_row = Row("job"), Row(PLAIN), Row("result deleted")
    # Once for nothing: the files are in memory, the class data archive is there.
    jobs.run()
    plain.run()
    for _ in range(repetitions):
        take(job_row, jobs.run())
        take(plain_row, plain.run())
    job_s, plain_s = job_row.median("total_s"), plain_row.median("total_s")
    say(f"undisturbed {job_s:.1f} s, plain Spark {plain_s:.1f} s")
    rows = [Row(what, share) for share in shares for what in (DRIVER, BOTH, PLAIN)]
    for _ in range(repetitions):
        for row in rows:
            assert row.share is not None
            if row.what == PLAIN:
                take(row, plain.run(row.share * plain_s))
            else:
                disturb = jobs.killed(row.share * job_s, server_too=row.what == BOTH)
                take(row, tried(jobs, disturb))
        take(deleted_row, tried(jobs, jobs.one_result_deleted))
    return [job_row, plain_row, deleted_row, *rows]


def tried(jobs: Jobs, disturb: Disturb) -> Sample | None:
    """A job may be over before it can be disturbed; the next one may not."""
    return next((sample for _ in range(TRIES) if (sample := jobs.run(disturb)) is not None), None)


def take(row: Row, sample: Sample | None) -> None:
    """A run takes long: what is known is told, should it be cut off."""
    if sample is None:
        say(f"{row.what}, {row.share}: the jobs were too fast")
        return
    row.samples.append(sample)
    say(f"{row.what}, {row.share}: {'right' if sample.is_right else 'NOT right'}, {sample}")


def print_table(rows: Sequence[Row], regions: int) -> None:
    """Ratios are to plain Spark in the same circumstances, and to what is run undisturbed."""
    plain = {row.share: row for row in rows if row.what == PLAIN}
    base = {True: plain[None], False: rows[0]}
    print(
        f"{'killed':>6} {'what':17} {'n':>2} {'total':>7} {'min':>7} {'max':>7} {'x undist.':>9} {'x plain':>7} "
        f"{'rest':>7} {'x plain':>7} {'finished':>9} {'again':>6} {'interrupted':>11} {'exact':>5}"
    )
    for row in rows:
        killed = "-" if row.share is None else f"{row.share:.0%}"
        if not row.samples:
            print(f"{killed:>6} {row.what:17} {0:2}")
            continue
        is_plain, other = row.what == PLAIN, plain[row.share]
        total_s, rest_s = row.median("total_s"), row.median("rest_s")
        totals = [one.total_s for one in row.samples]
        rest = "-" if row.share is None else f"{rest_s:.2f}"
        less = "-" if row.share is None else f"{rest_s / other.median('rest_s'):.2f}"
        finished = "-" if is_plain or row is rows[0] else f"{row.median('finished'):.1f} of {regions}"
        again = "-" if is_plain else str(sum(len(one.again) for one in row.samples))
        interrupted = "-" if is_plain else f"{row.median('interrupted'):.1f}"
        exact = "yes" if all(one.exact for one in row.samples) else "NO"
        print(
            f"{killed:>6} {row.what:17} {len(totals):2} {total_s:7.2f} {min(totals):7.2f} {max(totals):7.2f} "
            f"{total_s / base[is_plain].median('total_s'):9.2f} {total_s / other.median('total_s'):7.2f} "
            f"{rest:>7} {less:>7} {finished:>9} {again:>6} {interrupted:>11} {exact:>5}"
        )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--query", default="q9", choices=sorted(graphs.GRAPHS))
    parser.add_argument("--scale", default="1", help="TPC-H scale factor")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--shares", default=SHARES, help="of the undisturbed time, at which is killed")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--memory-mb", type=int, default=2048, help="heap of each driver, and of plain Spark")
    parser.add_argument("--directory", type=Path, help="where to keep the data between runs")
    options = parser.parse_args()
    shares = [float(share) for share in options.shares.split(",")]
    with tempfile.TemporaryDirectory(prefix="slotwise-batch-kill-") as scratch:
        directory = Path(scratch)
        data = tables(options.scale, options.directory or directory)
        memory = str(options.memory_mb)
        with server(slots=options.slots, driver_memory_mb=memory) as running:
            jobs = Jobs(running, options.query, data, directory)
            plain = Plain(jobs, directory, options.slots, options.memory_mb)
            rows = measure(jobs, plain, options.repetitions, shares)
    print(
        f"TPC-H {options.query} at scale {options.scale}, {options.slots} slots, {options.repetitions} repetitions; "
        "seconds, medians"
    )
    print_table(rows, len(jobs.regions.all))
    wrong = [row.what for row in rows if not all(one.is_right for one in row.samples)]
    print(
        f"NOT right: {', '.join(wrong)}" if wrong else "Every answer is exact, and no region ran for nothing."
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

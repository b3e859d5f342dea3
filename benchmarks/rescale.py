"""How long a rescale takes and what it costs the output, per rung of the ladder and size of state.

    python benchmarks/rescale.py [--repetitions 20] [--keys 1000,1000000] [--rungs in-place,...] [--json]

One stateful job on a real server: a source, a stateless vertex, a keyed aggregate, a sink.
Its state is filled with as many keys as asked for before anything is measured. Then, per rung:

* first: PUT of the aggregate's bounds, 1 to 2, in a job that was never rescaled; a new job each time;
* in place: PUT of the aggregate's bounds;
* in place, inner: PUT of the bounds of the vertex before the aggregate;
* warm driver: kill -9 of the driver while another one is warm;
* cold driver: kill -9 of the driver while none is (another server, without warm drivers, same job).

`request to first batch`: from sending the request (or the kill) until the first micro-batch at the new plan is
committed. `output gap`: the longest pause between two committed batches around the change less the steady interval,
as the rescale history has it; for a kill it holds the time until the death is noticed too. All in one run on one
machine: compare the rows with each other, not with another machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as parquet
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import itertools

from app.cluster.appcds import ArchiveBuilder, default_cache_dir
from app.cluster.java import usable_java
from benchmarks._servers import Server, server, wait_for

SLOTS = 4
STATE_PARTITIONS = 12
ROWS_PER_FILE = 1_000
RUNGS = ("first", "in-place", "in-place-inner", "warm-driver", "cold-driver")
NO_WAITING = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "0 s",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 s",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 s",
}


@dataclass(frozen=True)
class Sample:
    first_batch_ms: float
    gap_ms: float


@dataclass(frozen=True)
class Row:
    keys: int
    rung: str
    samples: tuple[Sample, ...]
    steady_ms: float

    def medians(self) -> tuple[float, float]:
        """Of the time to the first batch and of the output gap, in milliseconds."""
        return (
            statistics.median(sample.first_batch_ms for sample in self.samples),
            statistics.median(sample.gap_ms for sample in self.samples),
        )


class Feed:
    """Files for the job's source: one that fills the state, then small ones, always some ahead of the job."""

    def __init__(self, directory: Path, keys: int) -> None:
        self.directory = directory
        self._keys = keys
        self._rng = random.Random(keys)
        self._next = 0
        directory.mkdir(parents=True)
        self._write(range(keys))

    def ensure(self, ahead_of: int, files: int = 200) -> None:
        """Have ``files`` files beyond the one numbered ``ahead_of``."""
        while self._next < ahead_of + files:
            self._write([self._rng.randrange(self._keys) for _ in range(ROWS_PER_FILE)])

    def _write(self, keys: Any) -> None:
        target = self.directory / f"{self._next:08d}.parquet"
        partial = self.directory.parent / "partial.parquet"
        parquet.write_table(pa.table({"k": pa.array(keys, pa.int64())}), partial)
        os.replace(partial, target)
        self._next += 1


class Job:
    """The job under measurement."""

    def __init__(self, running: Server, directory: Path, keys: int) -> None:
        self.server = running
        self.feed = Feed(directory / "in", keys)
        self.feed.ensure(0)
        answer = running.http.post("/jobs", json=_document(directory))
        answer.raise_for_status()
        self.id = answer.json()["jobid"]
        wait_for("the state to be filled", lambda: self._batch() >= 5, 600)
        self.settle()

    def settle(self, batches: int = 6) -> None:
        """Let the job run undisturbed for some batches, so that a change is measured against a steady job."""
        goal = self._batch() + batches
        wait_for("some batches", lambda: self._batch() >= goal)

    def end(self) -> None:
        self.server.http.patch(f"/jobs/{self.id}?mode=cancel").raise_for_status()
        wait_for("the job to end", lambda: self.server.get(f"/jobs/{self.id}")["state"] == "CANCELED")

    def pid(self) -> int:
        return int(self.server.get(f"/jobs/{self.id}")["driverPid"])

    def records(self) -> list[dict[str, Any]]:
        return list(self.server.get(f"/jobs/{self.id}/rescales/history?limit=3"))

    def steady_ms(self) -> float:
        """The median interval between the commits of recent batches."""
        checkpoint = next((self.server.directory / "jobs" / self.id / "checkpoint").glob("*/commits"))
        times = sorted(f.stat().st_mtime for f in checkpoint.iterdir() if f.name.isdigit())[-12:]
        return statistics.median(b - a for a, b in itertools.pairwise(times)) * 1000

    def _batch(self) -> int:
        """The number of the newest committed batch."""
        commits = self.server.directory / "jobs" / self.id / "checkpoint"
        numbers = [int(f.name) for f in commits.glob("*/commits/*") if f.name.isdigit()]
        newest = max(numbers, default=-1)
        self.feed.ensure(newest)
        return newest


def _document(directory: Path) -> dict[str, Any]:
    def vertex(name: str, parallelism: int, **fields: Any) -> dict[str, Any]:
        return {"name": name, "parallelism": parallelism, **fields}

    return {
        "name": "benchmark",
        "type": "STREAMING",
        "config": NO_WAITING,
        "vertices": [
            vertex(
                "numbers",
                2,
                source={
                    "format": "parquet",
                    "path": str(directory / "in"),
                    "options": {"maxFilesPerTrigger": "1"},
                },
            ),
            vertex(
                "cleaned", 1, inputs=["numbers"], sql="SELECT k FROM numbers WHERE k >= 0", maxParallelism=64
            ),
            vertex(
                "counts",
                1,
                inputs=["cleaned"],
                sql="SELECT k, count(*) AS n FROM cleaned GROUP BY k",
                maxParallelism=STATE_PARTITIONS,
            ),
            vertex("store", 1, inputs=["counts"], sink={"format": "noop", "outputMode": "update"}),
        ],
    }


def _measure_put(job: Job, vertex: str, number: int) -> Sample:
    """PUT at a random moment between two batches: just behind a commit, where `settle` ends, it would depend on whether
    the next batch is planned already."""
    reason = f"{vertex} {number}"
    time.sleep(random.uniform(0, job.steady_ms() / 1000))
    started = time.time()
    job.server.require(job.id, {vertex: (1, 1 + number % 4)}, reason)
    record = wait_for(
        reason, lambda: next((r for r in job.records() if r["reason"] == reason and r["terminalState"]), None)
    )
    if record["terminalState"] != "COMPLETED" or record["rung"] != "in-place":
        raise RuntimeError(f"{reason}: {record['terminalState']} by {record['rung']}: {record['message']}")
    return Sample(record["endTimestampInMillis"] - started * 1000, float(record["outputGapInMillis"] or 0))


def _measure_kill(job: Job, reason: str) -> Sample:
    before = {r["rescaleUuid"] for r in job.records()}
    started = time.time()
    os.kill(job.pid(), signal.SIGKILL)
    record = wait_for(
        reason,
        lambda: next(
            (r for r in job.records() if r["rescaleUuid"] not in before and r["terminalState"]), None
        ),
    )
    return Sample(record["endTimestampInMillis"] - started * 1000, float(record["outputGapInMillis"] or 0))


def measure(keys: int, rungs: list[str], repetitions: int, console: Console) -> list[Row]:
    """Every rung asked for with ``keys`` keys of state."""
    rows = []
    # A driver that starts while the class data archive is built would be measured without it.
    asyncio.run(ArchiveBuilder(default_cache_dir(), usable_java()).ensure())
    for warm in (True, False):
        wanted = [rung for rung in rungs if (rung != "cold-driver") is warm]
        if not wanted:
            continue
        scratch = Path(tempfile.mkdtemp(prefix="slotwise-benchmark-data-"))
        try:
            with server(slots=SLOTS, warm_drivers="1" if warm else "0", driver_memory_mb="2048") as running:
                if "first" in wanted:
                    rows.append(_measure_first(running, scratch, keys, repetitions, console))
                if others := [rung for rung in wanted if rung != "first"]:
                    job = Job(running, scratch / "job", keys)
                    rows += [_measure_rung(job, rung, keys, repetitions, console) for rung in others]
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return rows


def _measure_first(running: Server, scratch: Path, keys: int, repetitions: int, console: Console) -> Row:
    samples, steady = [], []
    for number in range(repetitions):
        job = Job(running, scratch / f"first-{number}", keys)
        steady.append(job.steady_ms())
        samples.append(_measure_put(job, "counts", 1))
        job.end()
    return _told(Row(keys, "first", tuple(samples), statistics.median(steady)), console)


def _measure_rung(job: Job, rung: str, keys: int, repetitions: int, console: Console) -> Row:
    samples, steady = [], []
    with console.status("") as status:
        for number in range(1, repetitions + 1):
            status.update(f"{keys:,} keys, {rung}: {number} of {repetitions}")
            steady.append(job.steady_ms())
            if rung == "in-place":
                samples.append(_measure_put(job, "counts", number))
            elif rung == "in-place-inner":
                samples.append(_measure_put(job, "cleaned", number))
            else:
                if rung == "warm-driver":
                    wait_for("a warm driver", lambda: _has_warm_driver(job), 120)
                samples.append(_measure_kill(job, f"{rung} {number}"))
            job.settle()
    return _told(Row(keys, rung, tuple(samples), statistics.median(steady)), console)


def _told(row: Row, console: Console) -> Row:
    # A run takes long: what is known is told, should it be cut off.
    first, gap = row.medians()
    console.print(f"{row.keys:,} keys, {row.rung}: to first batch {first:,.0f} ms, output gap {gap:,.0f} ms")
    return row


def _has_warm_driver(job: Job) -> bool:
    ready = {entry["pid"] for entry in job.server.events("warm driver ready")}
    return any(psutil.pid_exists(pid) for pid in ready - {job.pid()})


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def show(rows: list[Row], console: Console) -> None:
    """The table. The ratio compares medians of the time to the first batch with the cold driver's."""
    table = Table(title="Rescale: milliseconds")
    for name in (
        "keys",
        "rung",
        "n",
        "to first batch p50",
        "p95",
        "output gap p50",
        "p95",
        "batch interval",
        "cold / this",
    ):
        table.add_column(name, justify="left" if name == "rung" else "right")
    for row in rows:
        first = [sample.first_batch_ms for sample in row.samples]
        gap = [sample.gap_ms for sample in row.samples]
        cold = [r for r in rows if r.keys == row.keys and r.rung == "cold-driver"]
        ratio = cold[0].medians()[0] / row.medians()[0] if cold else None
        table.add_row(
            f"{row.keys:,}",
            row.rung,
            str(len(first)),
            f"{row.medians()[0]:,.0f}",
            f"{_percentile(first, 0.95):,.0f}",
            f"{row.medians()[1]:,.0f}",
            f"{_percentile(gap, 0.95):,.0f}",
            f"{row.steady_ms:,.0f}",
            f"{ratio:.1f}" if ratio else "-",
        )
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--keys", default="1000,1000000", help="sizes of state, separated by commas")
    parser.add_argument("--rungs", default=",".join(RUNGS), help=f"of {', '.join(RUNGS)}")
    parser.add_argument("--json", action="store_true", help="every sample, as JSON")
    arguments = parser.parse_args()
    rungs = arguments.rungs.split(",")
    if unknown := set(rungs) - set(RUNGS):
        parser.error(f"unknown rungs: {', '.join(sorted(unknown))}")
    stream = sys.stderr if arguments.json else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 120)
    rows: list[Row] = []
    for keys in (int(text) for text in arguments.keys.split(",")):
        rows += measure(keys, rungs, arguments.repetitions, console)
    show(rows, console)
    if arguments.json:
        print(json.dumps([{**row.__dict__, "samples": [s.__dict__ for s in row.samples]} for row in rows]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

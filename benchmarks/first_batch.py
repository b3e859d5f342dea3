"""How long until the first batch: after a submission, and after kill -9 of the driver; plain Python beside it.

    python benchmarks/first_batch.py [--runs 10] [--slots 4] [--before CHECKOUT] [--json]

A program with one aggregate of 12 state partitions and default options, on fewer slots. Each sample has a server of its
own, with a warm driver or without any: the program is submitted when the driver is warm; when it has committed some
batches, and another driver is warm, its driver is killed with the JVM. "plain Python" is the same file, run by `python`
on as many cores. A batch counts when its commit file is there; the program itself says when it began, when it had its
session and when its query was started, so the phases are the same for all.

`--before`: another checkout of the project, with an environment of its own in .venv. Both take turns, so a machine that
is slow for a while is so for both. Seconds, a row per measurement and checkout, medians of the phases.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import itertools

from benchmarks._servers import Server, server, wait_for

PARTITIONS = 12
BATCHES_BEFORE_KILL = 5
PROGRAM = f"""\
import time
moments = [time.time()]
import json, os, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", {PARTITIONS}).getOrCreate()
moments.append(time.time())
rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
counts = rows.groupBy(rows.value % 1000).count()
checkpoint, told = sys.argv[1:]
query = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", checkpoint).start()
moments.append(time.time())
with open(told + ".new", "w") as file:
    json.dump(moments, file)
os.replace(told + ".new", told)
query.awaitTermination()
"""
PHASES = ("to its first line", "session", "query started", "first batch")
Sample = list[float]
"""The seconds of each phase."""


class Place:
    """Where the program is, and what it leaves."""

    def __init__(self, directory: Path) -> None:
        self.script = directory / "job.py"
        self.script.write_text(PROGRAM, encoding="utf-8")
        self.checkpoint, self._told = directory / "checkpoint", directory / "moments.json"
        self.arguments = [str(self.checkpoint), str(self._told)]

    def newest(self) -> int:
        commits = (self.checkpoint / "commits").glob("*")
        return max((int(file.name) for file in commits if file.name.isdigit()), default=-1)

    def phases(self, began: float) -> Sample:
        """Waits for a batch later than those that are there.

        ``began``: when the program was submitted or its driver killed, in seconds since the epoch.
        """
        newest = self.newest()
        wait_for("the next batch", lambda: self.newest() > newest)
        ended = time.time()
        wait_for("the program to tell of its start", self._told.exists)
        moments = [began, *json.loads(self._told.read_text(encoding="utf-8")), ended]
        return [after - before for before, after in itertools.pairwise(moments)]

    def forget(self) -> None:
        self._told.unlink()


def measure(checkout: Path | None, slots: int, *, warm: bool) -> dict[str, Sample]:
    """The phases, by what was measured."""
    drivers = "warm" if warm else "cold"
    with (
        tempfile.TemporaryDirectory(prefix="slotwise-benchmark-") as directory,
        server(slots=slots, checkout=checkout, warm_drivers=str(int(warm))) as running,
    ):
        place = Place(Path(directory))
        _await_warm(running, int(warm))
        began = time.time()
        job_id = _submit(running, place)
        submitted = place.phases(began)
        wait_for("some batches", lambda: place.newest() >= BATCHES_BEFORE_KILL)
        _await_warm(running, 2 * int(warm))
        return {f"submission, {drivers}": submitted, f"kill -9, {drivers}": _killed(running, place, job_id)}


def measure_plain(slots: int) -> Sample:
    with tempfile.TemporaryDirectory(prefix="slotwise-benchmark-") as directory:
        place = Place(Path(directory))
        began = time.time()
        process = subprocess.Popen(
            [sys.executable, str(place.script), *place.arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"--master local[{slots}] pyspark-shell"},
        )
        try:
            return place.phases(began)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _submit(running: Server, place: Place) -> str:
    document = json.dumps({"name": "first-batch", "script": place.script.name, "args": place.arguments})
    answer = running.http.post(
        "/jobs",
        files=[
            ("graph", ("graph.json", document.encode(), "application/json")),
            ("files", (place.script.name, place.script.read_bytes(), "application/octet-stream")),
        ],
    )
    answer.raise_for_status()
    return str(answer.json()["jobid"])


def _killed(running: Server, place: Place, job_id: str) -> Sample:
    driver = psutil.Process(int(running.get(f"/jobs/{job_id}")["driverPid"]))
    processes = [driver, *driver.children(recursive=True)]
    place.forget()
    began = time.time()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return place.phases(began)


def _await_warm(running: Server, count: int) -> None:
    wait_for("a warm driver", lambda: len(running.events("warm driver ready")) >= count)


def _table(samples: dict[tuple[str, str], list[Sample]], slots: int) -> Table:
    table = Table(title=f"Until the first batch, {slots} slots: seconds")
    for column in ("from", "checkout", "n", "p50", "min", "max", *PHASES):
        table.add_column(column, justify="left" if column in ("from", "checkout") else "right")
    for (what, name), own in sorted(samples.items()):
        totals = [sum(sample) for sample in own]
        figures = (statistics.median(totals), min(totals), max(totals))
        phases = (statistics.median(phase) for phase in zip(*own, strict=True))
        table.add_row(what, name, str(len(own)), *(f"{figure:.1f}" for figure in (*figures, *phases)))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--before", type=Path, help="another checkout of the project, to compare with")
    parser.add_argument("--json", action="store_true", help="every sample, as JSON")
    arguments = parser.parse_args()
    checkouts = {"this": None} if arguments.before is None else {"before": arguments.before, "this": None}
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    console = Console(file=sys.stderr if arguments.json else sys.stdout)

    def note(run: int, what: str, name: str, sample: Sample) -> None:
        samples[what, name].append(sample)
        phases = " + ".join(f"{seconds:.1f}" for seconds in sample)
        console.print(f"run {run + 1}, {name}: {what} {sum(sample):.1f} s = {phases}")

    for run in range(arguments.runs):
        for name, checkout in checkouts.items():
            for warm in (False, True):
                for what, sample in measure(checkout, arguments.slots, warm=warm).items():
                    note(run, what, name, sample)
        note(run, "start", "plain Python", measure_plain(arguments.slots))
    console.print(_table(samples, arguments.slots))
    if arguments.json:
        found: list[dict[str, Any]] = [
            {"from": what, "checkout": name, "phases": list(PHASES), "seconds": own}
            for (what, name), own in samples.items()
        ]
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

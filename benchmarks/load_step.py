"""How long a job whose load rises waits for more tasks, and how long it is behind: with batches near a target, or not.

    python benchmarks/load_step.py [--repetitions 1] [--rows 400,2200] [--kills] [--json]

A program without any limit reads files of JSON, a file each half second, and works 2 ms on each row. After 40 s the
load rises. Bounds are declared at the times and with the steps of an autoscaler that sees the job fall behind; each is
one PUT of all upper bounds. In turns with what Slotwise does by itself, and with what it did before: no limit of
batches (``slotwise.batch.target: 0``), and no batch interrupted (``slotwise.rescale.max-wait: 0``).

`in force`: from a PUT until it, or a later one, is in force, as the rescale history has it. `longest batch`: after the
first one that took at least nine tenths of the target, planning and commit included. `behind`: the age of the newest
row that is committed. `worked off`: from the step until the job is less than 10 s behind for good. The output of each
run is compared with its input, to the row; with --kills its driver is killed twice with -9.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._servers import Server, server, wait_for

SLOTS = 8
FILE_S = 0.5
BEFORE_S = 40.0
AFTER_S = 180.0
KILLS_S = (70.0, 150.0)
DECLARED = ((60.0, 2), (75.0, 3), (90.0, 4), (105.0, 5), (120.0, 6), (150.0, 8))
"""Seconds after the step, and the upper bounds."""
TARGET_S = 10.0
WAYS = {"now": {}, "before": {"slotwise.batch.target": "0 ms", "slotwise.rescale.max-wait": "0 ms"}}
PROGRAM = """
import sys, time
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()

@F.udf("long")
def work(v):
    time.sleep(0.002)
    return v

rows = spark.readStream.schema("v LONG").json(sys.argv[1])
query = rows.select(work("v").alias("v")).writeStream.format("parquet").option("path", sys.argv[2])
query.option("checkpointLocation", sys.argv[3]).start().awaitTermination()
"""


class Feed(threading.Thread):
    """Writes the files. ``made_s``: when each was there."""

    def __init__(self, directory: Path, rates: tuple[int, int]) -> None:
        super().__init__(daemon=True)
        self._directory = directory
        self._rates = rates
        directory.mkdir()
        self.made_s: list[float] = []
        self.rows = 0
        self.step_s = 0.0

    def run(self) -> None:
        begin = time.time()
        self.step_s = begin + BEFORE_S
        for number in itertools.count():
            due = begin + number * FILE_S
            if due > self.step_s + AFTER_S:
                return
            time.sleep(max(0.0, due - time.time()))
            rate = self._rates[0] if due < self.step_s else self._rates[1]
            self._write(number, round(rate * FILE_S))

    def _write(self, number: int, rows: int) -> None:
        partial = self._directory / f".{number}"
        values = range(self.rows, self.rows + rows)
        partial.write_text("".join(f'{{"v": {value}}}\n' for value in values), encoding="ascii")
        os.replace(partial, self._directory / f"{number:06d}.json")
        self.rows += rows
        self.made_s.append(time.time())


@dataclass
class Run:
    """Seconds."""

    way: str
    in_force: list[float] = field(default_factory=list)
    longest_batch: float = 0.0
    batches: int = 0
    most_behind: float = 0.0
    worked_off: float = 0.0
    is_exact: bool = False


def measure(way: str, rates: tuple[int, int], kills: bool) -> Run:
    with server(slots=SLOTS) as running:
        place = running.directory
        feed = Feed(place / "in", rates)
        job_id = _submit(running, WAYS[way])
        wait_for("the query", lambda: (place / "checkpoint" / "metadata").exists())
        _declare(running, job_id, 1)
        feed.start()
        wait_for("the step", lambda: feed.step_s)
        asked = _steer(running, job_id, feed.step_s, kills)
        feed.join()
        wait_for("the last row", lambda: _committed(place, feed)[-1:] == [len(feed.made_s)], 1_200, 0.5)
        wait_for("the last rescale", lambda: not _is_in_progress(running, job_id))
        return _figures(running, job_id, feed, asked, Run(way))


def _submit(running: Server, config: dict[str, str]) -> str:
    place = running.directory
    document = {
        "name": "load-step",
        "script": "job.py",
        "args": [str(place / name) for name in ("in", "out", "checkpoint")],
        "config": config,
    }
    return running.submit(document, job=PROGRAM)


def _declare(running: Server, job_id: str, upper: int) -> None:
    names = [vertex["name"] for vertex in running.get(f"/jobs/{job_id}")["vertices"]]
    running.require(job_id, {name: (1, upper) for name in names}, f"{upper} tasks")


def _steer(running: Server, job_id: str, step_s: float, kills: bool) -> list[tuple[float, int]]:
    """Declare, and kill, at their times. When each PUT was sent, and how many records there were before."""
    plans: list[tuple[float, int]] = [*DECLARED, *((at, 0) for at in KILLS_S if kills)]
    asked = []
    for at, upper in sorted(plans):
        time.sleep(max(0.0, step_s + at - time.time()))
        if not upper:
            os.kill(int(running.get(f"/jobs/{job_id}")["driverPid"]), signal.SIGKILL)
            continue
        known = running.get(f"/jobs/{job_id}/rescales/history?limit=1")
        asked.append((time.time(), max((one["number"] for one in known), default=0)))
        _declare(running, job_id, upper)
    return asked


def _is_in_progress(running: Server, job_id: str) -> bool:
    return any(
        one["terminalState"] is None for one in running.get(f"/jobs/{job_id}/rescales/history?limit=1")
    )


def _committed(place: Path, feed: Feed) -> list[int]:
    """How many files are committed with each batch, oldest first."""
    checkpoint, total, found = place / "checkpoint", 0, []
    for number in itertools.count():
        if not (checkpoint / "commits" / str(number)).exists():
            return found
        total = max(total, _newest_file(checkpoint, number) + 1)
        found.append(total)


_files: dict[tuple[Path, int], int] = {}


def _newest_file(checkpoint: Path, batch: int) -> int:
    """The number of the newest file of a batch, from the log of the source; -1 if it has none."""
    offset = json.loads((checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2])
    key = (checkpoint, int(offset["logOffset"]))
    if key not in _files:
        log = checkpoint / "sources" / "0"
        entry = next(one for one in (log / str(key[1]), log / f"{key[1]}.compact") if one.exists())
        lines = entry.read_text(encoding="utf-8").splitlines()[1:]
        _files[key] = max((int(Path(json.loads(line)["path"]).stem) for line in lines), default=-1)
    return _files[key]


def _figures(running: Server, job_id: str, feed: Feed, asked: list[tuple[float, int]], run: Run) -> Run:
    place = running.directory
    records = running.get(f"/jobs/{job_id}/rescales/history?limit=200")
    for sent_s, before in asked:
        ended = [
            one["endTimestampInMillis"] / 1000
            for one in records
            if one["number"] > before and one["terminalState"] == "COMPLETED"
        ]
        run.in_force.append(min((each for each in ended if each >= sent_s), default=float("inf")) - sent_s)
    lengths, behind = [], []
    for number, files in enumerate(_committed(place, feed)):
        committed_s = (place / "checkpoint" / "commits" / str(number)).stat().st_mtime
        lengths.append(committed_s - (place / "checkpoint" / "offsets" / str(number)).stat().st_mtime)
        behind.append((committed_s, committed_s - feed.made_s[files - 1]))
    run.batches = len(lengths)
    first = next((at for at, length in enumerate(lengths) if length >= 0.9 * TARGET_S), len(lengths))
    run.longest_batch = max(lengths[first + 1 :], default=0.0)
    run.most_behind = max(lag for _, lag in behind)
    late = [at for at, (_, lag) in enumerate(behind) if lag >= 10]
    run.worked_off = behind[min(late[-1] + 1, len(behind) - 1)][0] - feed.step_s if late else 0.0
    values = pyarrow.dataset.dataset(_output(place / "out")).to_table().column("v").to_pylist()
    run.is_exact = sorted(values) == list(range(feed.rows))
    return run


def _output(directory: Path) -> list[str]:
    """The files of the sink's log, which may have others beside them that a killed batch has left."""
    found: set[str] = set()
    for entry in (directory / "_spark_metadata").iterdir():
        if not entry.name.startswith("."):
            lines = entry.read_text(encoding="utf-8").splitlines()[1:]
            found.update(json.loads(line)["path"].removeprefix("file://") for line in lines)
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--rows", default="400,2200", help="rows per second, before and after the step")
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    before, after = (int(each) for each in given.rows.split(","))
    runs = [measure(way, (before, after), given.kills) for _ in range(given.repetitions) for way in WAYS]
    if given.json:
        print(json.dumps([vars(run) for run in runs]))
    else:
        _print(runs)
    sys.exit(not all(run.is_exact for run in runs))


def _print(runs: list[Run]) -> None:
    table = Table(title="Seconds")
    columns = (
        "",
        "in force, median",
        "longest",
        "longest batch",
        "batches",
        "behind",
        "worked off",
        "exact",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for run in runs:
        figures: list[Any] = [
            statistics.median(run.in_force),
            max(run.in_force),
            run.longest_batch,
            run.batches,
            run.most_behind,
            run.worked_off,
        ]
        cells = [f"{one:.1f}" if isinstance(one, float) else str(one) for one in figures]
        table.add_row(run.way, *cells, "yes" if run.is_exact else "NO")
    Console().print(table)


if __name__ == "__main__":
    main()

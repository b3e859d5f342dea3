"""Watermarks, skew, bytes, disk and the times of batches as a server shows them, against known truths.

One driver runs three queries, each with a batch every few seconds: events from files of the test, and tasks that sleep
for a known time, evenly and unevenly. When a batch ran is read from the times of the files in its checkpoint.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from app.documents.graph import parse_document
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.truths import Shown, by_name, compare, equal

INTERVAL_MS = 4_000
BATCHES = 6
"""Of each query. The first one starts what the others have, so it is in no rate."""
TASKS = 4
SLEEP_MS = 750
"""So long that the start of a task, which counts as its work, is little."""
LONGEST_MS = 4 * SLEEP_MS
ROWS_PER_S = 100
DELAY_MS = 10_000
EVENTS_S = (60, 50, 40, 20, 30, 10)
"""How long before the start of the test the latest event of each file was. The last file but one is late."""
EVENTS_PER_FILE = 2_000
CODE = f"""
from pyspark import StorageLevel

def timed(events):
    kept = events.sparkSession.range(0, 60_000, 1, 3).selectExpr("id", "sha2(string(id), 256) AS text")
    kept.persist(StorageLevel.DISK_ONLY).count()
    return events.withWatermark("at", "{DELAY_MS} milliseconds")
"""


def document(directory: Path) -> dict[str, Any]:
    def slow(first_ms: int) -> str:
        """Each task has one row; the first one sleeps for so long."""
        ms = f"bigint(if(spark_partition_id() = 0, {first_ms}, {SLEEP_MS}))"
        return f"SELECT value, reflect('java.lang.Thread', 'sleep', {ms}) AS slept FROM "

    options = {"rowsPerSecond": str(ROWS_PER_S), "maxRowsPerTrigger": str(TASKS)}
    events = {"format": "json", "path": str(directory / "in"), "schema": "at TIMESTAMP, text STRING"}
    vertices: list[dict[str, Any]] = [
        {"name": "events", "source": {**events, "options": {"maxFilesPerTrigger": "1"}}},
        {"name": "timed", "inputs": ["events"], "python": "code:timed"},
        {"name": "files", "inputs": ["timed"], "sink": {"format": "json", "path": str(directory / "out")}},
    ]
    for name, first_ms in (("even", SLEEP_MS), ("uneven", LONGEST_MS)):
        vertices += [
            {"name": f"rows of {name}", "source": {"format": "rate", "options": options}},
            {"name": name, "inputs": [f"rows of {name}"], "sql": f"{slow(first_ms)} `rows of {name}`"},
            {"name": f"sink of {name}", "inputs": [name], "sink": {"format": "noop"}},
        ]
    return {"name": "truths", "type": "STREAMING", "artifacts": ["code.py"], "vertices": vertices}


def write_events(folder: Path, start_ms: int) -> tuple[list[int], list[int]]:
    """A file for each batch, oldest first; their sizes in bytes, and the time of the latest event in each."""
    folder.mkdir()
    sizes, latest_ms = [], [start_ms - 1000 * before_s for before_s in EVENTS_S]
    for number, end_ms in enumerate(latest_ms):
        file = folder / f"{number}.json"
        times = (end_ms - (EVENTS_PER_FILE - 1 - row) * 7 for row in range(EVENTS_PER_FILE))
        lines = (json.dumps({"at": iso(ms), "text": "x" * 20}) + "\n" for ms in times)
        sizes.append(file.write_text("".join(lines), encoding="utf-8"))
        os.utime(file, (1_000_000 + number,) * 2)
    return sizes, latest_ms


def iso(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03}Z"


def mtime_ms(file: Path) -> float:
    return file.stat().st_mtime_ns / 1e6


@dataclass(frozen=True)
class Ran:
    """What the files in the checkpoint of a query say of its batches: when each was planned, and was done."""

    planned_ms: list[float]
    done_ms: list[float]

    @classmethod
    def of(cls, checkpoint: Path) -> Ran:
        def times_ms(log: str) -> list[float]:
            return [mtime_ms(checkpoint / log / str(number)) for number in range(1, BATCHES)]

        return cls(times_ms("offsets"), times_ms("commits"))

    @property
    def whole_ms(self) -> float:
        return self.done_ms[-1] - self.planned_ms[0]

    @property
    def batch_ms(self) -> float:
        return sum(done - planned for planned, done in zip(self.planned_ms, self.done_ms, strict=True))

    def per_second(self, ms: float) -> float:
        return 1000 * ms / self.whole_ms


@pytest.mark.timeout(600)
def test_times_bytes_skew_and_watermarks(rig: Bench) -> None:
    start_ms = int(time.time() * 1000)
    sizes, latest_ms = write_events(rig.directory / "in", start_ms)
    (rig.artifacts_dir / "code.py").write_text(CODE, encoding="utf-8")
    graph = document(rig.directory)
    # Their sinks have another parallelism, or they would share a stage and its time.
    rig.start(graph, {"even": TASKS, "uneven": TASKS}, batch_interval_ms=INTERVAL_MS)

    def batches(sink: str) -> list[dict[str, Any]]:
        return [each for each in rig.control_plane.batches if sink in by_name(graph, each)][:BATCHES]

    sinks = [each["name"] for each in graph["vertices"] if "sink" in each]
    wait_for("the batches", lambda: all(len(batches(sink)) == BATCHES for sink in sinks))
    watermarks_of_batches(batches("files"), latest_ms)

    last_ms = {sink: batches(sink)[-1]["at_ms"] for sink in sinks}
    reports = [each for each in rig.control_plane.reports if each["batch_id"] != 0]
    checkpoints = {vertex.name: rig.checkpoint_dir / vertex.id for vertex in parse_document(graph).vertices}

    def shown(sink: str) -> Shown:
        """At the end of the last batch of a query; files that wait are none of the rows that are due."""
        of_files = sink == "files"
        told = [each for each in reports if each["at_ms"] <= last_ms[sink]]
        told = [each for each in told if ("files" in by_name(graph, each)) == of_files]
        return Shown(graph, told, last_ms[sink])

    skew(shown("sink of even"), shown("sink of uneven"))
    times(shown("sink of even"), Ran.of(checkpoints["sink of even"]), "even", TASKS * SLEEP_MS, SLEEP_MS)
    uneven_ms = LONGEST_MS + (TASKS - 1) * SLEEP_MS
    times(shown("sink of uneven"), Ran.of(checkpoints["sink of uneven"]), "uneven", uneven_ms, LONGEST_MS)
    slow = [checkpoints["sink of even"], checkpoints["sink of uneven"]]
    backlog(shown("sink of uneven"), Ran.of(slow[1]), slow)
    bytes_of_files(shown("files"), sizes, rig.directory / "out")

    now_ms = int(time.time() * 1000)
    now = Shown(graph, reports, now_ms)
    # That of the batches before the last one.
    watermark_ms = max(latest_ms[:-1]) - DELAY_MS
    for figures in (now.vertex("events"), now.vertex("files"), now.job):
        assert figures["currentInputWatermark"] == watermark_ms
        equal("watermark lag in ms", figures["watermarkLag"], now_ms - watermark_ms)
    on_disk(now, rig.directory)


def watermarks_of_batches(batches: list[dict[str, Any]], latest_ms: list[int]) -> None:
    """Each batch has that of the batches before it: an event that is late does not move it back."""
    told = [each["watermark_ms"] for each in batches]
    print("TRUTH watermarks less the latest events of the batches before:", told, latest_ms)
    assert told == [None, *(latest - DELAY_MS for latest in accumulate(latest_ms[:-1], max))]


def skew(even: Shown, uneven: Shown) -> None:
    compare("skew of even tasks", even.vertex("even")["taskTimeSkew"], 1)
    compare("skew with a task of four times", uneven.vertex("uneven")["taskTimeSkew"], LONGEST_MS / SLEEP_MS)
    assert uneven.vertex("uneven")["numTasksObserved"] == TASKS


def times(shown: Shown, ran: Ran, name: str, slept_ms: int, longest_ms: int) -> None:
    """``slept_ms``: all tasks of a batch together."""
    count = len(ran.done_ms)
    pauses_ms = ran.whole_ms - ran.batch_ms
    busy, held = "busyTimeMsPerSecond", "backPressuredTimeMsPerSecond"
    compare(f"busy time, {name}", shown.vertex(name)[busy], ran.per_second(count * slept_ms / TASKS))
    most = shown.vertex(name, "max")[busy]
    compare(f"busy time of the busiest, {name}", most, ran.per_second(count * longest_ms))
    idle_ms = 1000 - ran.per_second(count * slept_ms / TASKS)
    compare(f"idle time, {name}", shown.vertex(name)["idleTimeMsPerSecond"], idle_ms)
    # Rows wait all the time, so the pauses hold the source up. There may be next to none: a batch is late, and the next
    # one follows at once. What passes until the driver hears of the last batch counts as such a pause.
    told, late_ms = shown.vertex(f"rows of {name}")[held], shown.now_ms - ran.done_ms[-1]
    compare(f"held time, {name}", told, ran.per_second(pauses_ms), allowed=10 + ran.per_second(late_ms))
    if name == "uneven":
        compare("time in batches", shown.job["batchTimeMsPerSecond"], ran.per_second(ran.batch_ms))
        last_ms = ran.done_ms[-1] - ran.planned_ms[-1]
        compare("last batch in ms", shown.job["lastCheckpointDuration"], last_ms)
        assert LONGEST_MS <= shown.job["lastBatchDuration.addBatch"] <= shown.job["lastCheckpointDuration"]


def waits_ms(checkpoint: Path, end_ms: float) -> float:
    """For how long the oldest due row had waited when the last batch that was done before ``end_ms`` was planned."""
    done = [int(each.name) for each in (checkpoint / "commits").glob("[0-9]*") if mtime_ms(each) <= end_ms]
    planned = checkpoint / "offsets" / str(max(done))
    ((begun_ms, rows),) = json.loads(planned.read_text(encoding="utf-8").splitlines()[-1]).items()
    return mtime_ms(planned) - int(begun_ms) - 1000 * rows["0"] / ROWS_PER_S


def backlog(shown: Shown, ran: Ran, checkpoints: list[Path]) -> None:
    """Of two queries that each read a few of the rows that are due."""
    waits = max(waits_ms(each, shown.now_ms) for each in checkpoints)
    compare("backlog as time in ms", shown.job["pendingTimeMs"], waits)
    pace_ms = sum(later - one for one, later in pairwise(ran.planned_ms)) / (BATCHES - 2)
    growth = 2 * (ROWS_PER_S - 1000 * TASKS / pace_ms)
    compare("growth of the backlog per second", shown.job["pendingRecordsGrowthPerSecond"], growth)


def bytes_of_files(shown: Shown, sizes: list[int], out: Path) -> None:
    equal("bytes that are read", shown.vertex("events", "sum")["numBytesIn"], sum(sizes[1:]))
    logs = [out / "_spark_metadata" / str(number) for number in range(1, BATCHES)]
    lines = [line for log in logs for line in log.read_text(encoding="utf-8").splitlines()[1:]]
    written = sum(Path(json.loads(line)["path"].removeprefix("file:")).stat().st_size for line in lines)
    equal("bytes that are written", shown.vertex("files", "sum")["numBytesOut"], written)


def on_disk(shown: Shown, directory: Path) -> None:
    """The blocks of what a job keeps on disk, without the files of its shuffles."""
    files = {file.name: file.stat().st_size for file in directory.glob("**/blockmgr-*/*/*")}
    assert any(name.startswith("shuffle_") for name in files)
    blocks = sum(size for name, size in files.items() if name.startswith("rdd_"))
    assert blocks > 1_000_000
    equal("bytes on disk", shown.executors["diskUsedBytes"], blocks)

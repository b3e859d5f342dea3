"""A backlog out of event-time order, with a watermark: what is rescaled, interrupted and killed has plain Spark's rows.

The size of a batch decides which rows are late. So such a query has what Spark would give it, however long that takes.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.acceptance.plain_run import plain
from tests.outputs import rows_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PROGRAM = """
import sys, time
from pyspark.sql import SparkSession, functions as F

source, out, checkpoint = sys.argv[1:]
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()
slow = F.udf(lambda v: (time.sleep(0.1), v)[1], "long")
rows = spark.readStream.schema("v LONG, at TIMESTAMP").json(f"{source}/*")
counts = (
    rows.select(slow("v").alias("v"), "at").withWatermark("at", "10 seconds")
    .groupBy(F.window("at", "5 seconds")).agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    .select(F.col("window.start").cast("long").alias("start"), "n", "total")
)
writer = counts.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
writer.start().awaitTermination()
"""
# Seconds of events, whose rows come in any order. The second heap is late in part, and the last row ends all windows.
HEAPS = ((0, 600), (300, 900), (9_000, 9_001))
ROWS = (600, 300, 1)
_DAY_S = 86_400


class Source:
    """Heaps of files, each of which is there at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # The start of the last window that the last row ends.
        self.last_window = 0
        directory.mkdir(parents=True)
        self._random = random.Random(41)

    def add(self, number: int) -> None:
        (first_s, end_s), hidden = HEAPS[number], self.directory / f".{number}"
        hidden.mkdir()
        for file in range(min(20, ROWS[number])):
            values = range(file, ROWS[number], 20)
            lines = [{"v": v, "at": f"{self._random.uniform(first_s, end_s):.3f}"} for v in values]
            if number < len(HEAPS) - 1:
                latest = max((float(str(line["at"])) for line in lines), default=0.0)
                self.last_window = max(self.last_window, _DAY_S + int(latest // 5) * 5)
            for line in lines:
                line["at"] = f"1970-01-02T{_clock(float(line['at']))}Z"
            (hidden / f"{file}.json").write_text("".join(json.dumps(each) + "\n" for each in lines))
        hidden.rename(self.directory / str(number))


def _clock(seconds: float) -> str:
    return f"{int(seconds // 3600):02}:{int(seconds // 60) % 60:02}:{seconds % 60:06.3f}"


def stored(directory: Path) -> list[Any]:
    out = directory / "out"
    return sorted((row["start"], row["n"], row["total"]) for row in (rows_of(out) if out.exists() else ()))


def await_heap(directory: Path, number: int) -> None:
    """Until a heap and the batch without rows behind it are committed: by its watermark rows of the next are late."""
    wait_for(f"heap {number}", (directory / "checkpoint" / "commits" / str(2 * number + 1)).exists, 300)


def work_off(directory: Path, source: Source) -> None:
    """All heaps but the first, each when the one before is committed; until the last windows are stored."""
    for number in range(1, len(HEAPS)):
        await_heap(directory, number - 1)
        source.add(number)
    await_last(directory, source)


def await_last(directory: Path, source: Source) -> None:
    """A batch without rows writes all windows that the last row has ended."""
    wait_for(
        "the last windows", lambda: [row for row in stored(directory) if row[0] == source.last_window], 300
    )


def by_plain_spark(directory: Path) -> list[Any]:
    source = Source(directory / "in")
    source.add(0)
    script = directory / "job.py"
    script.write_text(PROGRAM, encoding="utf-8")
    arguments = [str(directory / name) for name in ("in", "out", "checkpoint")]
    with plain(script, arguments, directory / "plain.log"):
        work_off(directory, source)
    return stored(directory)


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("out-of-order")) as made:
        made.start(with_points=False)
        yield made


def test_a_backlog_out_of_order_has_the_rows_of_plain_spark(deployment: Deployment, tmp_path: Path) -> None:
    expected = by_plain_spark(tmp_path)
    assert 0 < sum(n for _, n, _ in expected) < sum(ROWS), "some rows are late"
    directory = deployment.directory / "job"
    source = Source(directory / "in")
    source.add(0)
    document = {
        "name": "out-of-order",
        "script": "job.py",
        "args": [str(directory / name) for name in ("in", "out", "checkpoint")],
        "config": {"slotwise.rescale.max-wait": "3 s"},
    }
    files = {
        "graph": ("graph.json", json.dumps(document).encode(), "application/json"),
        "files": ("job.py", PROGRAM.encode(), "application/octet-stream"),
    }
    response = deployment.call("POST", "/jobs", files=files)
    assert response.is_success, response.text
    deployment.job_id = response.json()["jobid"]
    offsets = directory / "checkpoint" / "offsets"
    # Its numbers are decided then: before, it would have those of the PUT.
    begun = deployment.data_dir / "jobs" / deployment.job_id
    wait_for("the first batch", lambda: list(begun.rglob("slotwise-begun")))
    wait_for("the query", lambda: len(deployment.job()["vertices"]) == 3)
    names = [vertex["name"] for vertex in deployment.job()["vertices"]]
    assert deployment.put(dict.fromkeys(names, (1, 2)), "less").is_success
    wait_for("the rescale", lambda: deployment.history()[0]["terminalState"] == "COMPLETED", 300)
    record = deployment.history()[0]
    assert (record["rung"], record["reprocessedRecords"]) == ("batch-interrupted", ROWS[0]), record
    await_heap(directory, 0)
    source.add(1)
    wait_for("the second heap", (offsets / "2").exists)
    os.kill(deployment.job()["driverPid"], signal.SIGKILL)
    await_heap(directory, 1)
    assert deployment.put(dict.fromkeys(names, (1, 4)), "more").is_success
    source.add(2)
    await_last(directory, source)
    assert stored(directory) == expected
    deployment.check_ends()

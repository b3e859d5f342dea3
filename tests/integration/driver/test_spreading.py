"""Rows of a source that has fewer parts than tasks are spread, in place: what is behind it gets wide."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.integration.driver.documents import slow_files
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.sink_support import spark_session
from tests.integration.driver.test_program_attempt import job
from tests.integration.driver.valve_support import Ran, Running, running, until
from tests.outputs import rows_of

pytestmark = pytest.mark.timeout(600)

ROWS = 60


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def next_ran(query: Running, *, parts: int, tasks: int) -> Ran:
    """The first batch in which the source is read in so many parts, and has so many tasks."""

    def ran() -> Ran | None:
        latest = query.latest()
        if latest is None or latest.tasks["rate-micro-batch"] != tasks:
            return None
        return latest

    found: Ran = until(ran, query.started)
    return found


@pytest.mark.parametrize("has_state", [False, True])
def test_rows_are_spread_and_joined_again_in_place(
    spark: SparkSession, tmp_path: Path, has_state: bool
) -> None:
    plus_one = f.udf(lambda value: value + 1, "bigint", useArrow=False)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    rows = rows.option("numPartitions", 1).option("startTimestamp", 1_000_000).load()
    work = rows.withWatermark("timestamp", "1 second").select("timestamp", plus_one("value").alias("v"))
    if has_state:
        work = work.dropDuplicates(["timestamp", "v"])
    writer = work.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    out = str(tmp_path / "out")
    with running(writer.option("path", out), **{"rate-micro-batch": 3, "out": 3}) as query:
        run_id = query.started.runId
        source_id = query.query.streams[0].id
        figures = {}
        for spread, tasks in ((False, 1), (True, 3), (False, 1)):
            query.valves.spread({source_id} if spread else ())
            ran = next_ran(query, parts=1, tasks=tasks)
            source = ran.vertices["rate-micro-batch"]
            assert (source.records_in, source.records_out) == (ROWS, ROWS)
            assert source.parallelism == 3 and (source.busy_ms or 0) >= 0
            figures[spread] = source
        assert query.started.runId == run_id
        assert query.valves.spread_at({each.id: 3 for each in query.query.flow}).keys() == {source_id}
        last = ran.batch_id
        until(lambda: query.started.lastProgress["batchId"] > last + 1, query.started)
    found = sorted(row["v"] for row in spark.read.parquet(out).collect())
    assert len(found) >= (last + 1) * ROWS and found == list(range(1, len(found) + 1))


ROWS_OF_FILE = 150


def add_file(directory: Path, number: int) -> None:
    """One that Spark does not split, whose rows take 0.6 s together."""
    values = range(number * ROWS_OF_FILE, (number + 1) * ROWS_OF_FILE)
    whole = directory / f".{number}.json.gz"
    whole.write_bytes(gzip.compress("".join(json.dumps({"v": value}) + "\n" for value in values).encode()))
    whole.rename(directory / f"{number}.json.gz")


def tasks_of(batch: dict[str, Any]) -> list[int]:
    return [each["tasks"] for each in batch["vertices"]]


PROGRAM = """
import sys, time
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
work = F.udf(lambda v: (time.sleep(0.004), v)[1], "long")
files = spark.readStream.schema("v LONG").json(sys.argv[1])
rows = files.select(work("v").alias("v")).writeStream.queryName("store").format("parquet")
rows.option("path", sys.argv[2]).start().awaitTermination()
"""
VERTICES = (PlannedVertex("in", Role.SOURCE, "json"), PlannedVertex("store", Role.SINK, "parquet", ("in",)))


def program(rig: Bench) -> dict[str, Any]:
    return job(rig, PROGRAM, VERTICES, args=[str(rig.directory / name) for name in ("in", "out")])


def graph(rig: Bench) -> dict[str, Any]:
    sink = {"format": "parquet", "path": str(rig.directory / "out")}
    return slow_files(rig.directory, rig.artifacts_dir, sink, row_s=0.004)


@pytest.mark.parametrize("is_program", [False, pytest.param(True, marks=pytest.mark.long)])
def test_batches_of_one_file_become_wide_and_stay_exact(rig: Bench, is_program: bool) -> None:
    """Batches of one file, then a kill, then many files in each batch."""
    (rig.directory / "in").mkdir()
    document = (program if is_program else graph)(rig)
    wide = dict.fromkeys(("in", "files", "work", "store"), 4)
    # A source of a program has all that is done with its rows, too.
    alone, spread, joined = ([1] * 2, [4] * 2, [4] * 2) if is_program else ([1] * 3, [1, 4, 4], [4] * 3)
    numbers = count()

    def add(files: int) -> dict[str, Any]:
        """The batch that the files are in; the first one of several."""
        seen = len(rig.control_plane.batches)
        for _ in range(files):
            add_file(rig.directory / "in", next(numbers))
        return rig.wait_batches(seen + 1)[seen]

    def until_tasks(expected: list[int], files: int) -> dict[str, Any]:
        for _ in range(20):
            batch = add(files)
            if tasks_of(batch) == expected:
                return batch
        raise AssertionError(f"the last one has {tasks_of(batch)}")

    driver = rig.start(document, wide)
    assert tasks_of(add(1)) == alone
    batch = until_tasks(spread, 1)
    source, *others = batch["vertices"]
    assert [each["spread_parts"] for each in batch["vertices"]] == [1, *[None] * len(others)]
    assert (source["records_in"], source["records_out"], others[0]["records_in"]) == (ROWS_OF_FILE,) * 3
    works = source if is_program else others[0]
    assert 2 * works["busy_ms"] > sum(each["busy_ms"] for each in batch["vertices"])
    assert batch["not_followed"] == {}
    add_file(rig.directory / "in", next(numbers))
    driver.kill()
    rig.start(document, wide, attempt=2)
    until_tasks(spread, 1)
    until_tasks(joined, 8)
    # Then one stage reads files and works on their rows. A program does not tell of it: batches of one file do.
    assert is_program or any(add(8)["vertices"][1]["bytes_in"] is None for _ in range(6))
    if is_program:
        for _ in range(3):
            add(8)
        until_tasks(alone, 1)
    rows = next(numbers) * ROWS_OF_FILE
    wait_for("all rows", lambda: len(rows_of(rig.directory / "out")) >= rows)
    assert sorted(row["v"] for row in rows_of(rig.directory / "out")) == list(range(rows))

"""Rows and times of subtasks are those of tasks: their sums are those that Spark's own REST API has of stages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamWriter

from app.model.measured import TaskWork
from tests.integration.driver.sink_support import spark_session
from tests.integration.driver.valve_support import Ran, Running, running, until

pytestmark = pytest.mark.timeout(300)

# Nine rows in ten have one key.
SIZES = (400, 40, 3, 57)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # Each file is a part.
    own = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.sql.files.maxPartitionBytes": "4m"}
    with spark_session(own) as session:
        yield session


@dataclass
class Files:
    """A folder that a query reads; of each batch so many files with so many rows."""

    spark: SparkSession
    folder: Path
    numbers: Iterator[int]

    def add(self, *sizes: int) -> None:
        self.folder.mkdir(exist_ok=True)
        for size in sizes:
            hidden = self.folder / f".{next(self.numbers)}.json"
            keys = ("often" if row % 10 else f"k{row}" for row in range(size))
            hidden.write_text("".join(json.dumps({"k": k, "v": row}) + "\n" for row, k in enumerate(keys)))
            hidden.rename(self.folder / hidden.name[1:])

    @property
    def frame(self) -> DataFrame:
        return self.spark.readStream.schema("k STRING, v BIGINT").json(str(self.folder))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path / "in", count())


def slowly(files: Files) -> DataStreamWriter:
    """One file, and Python behind it."""
    plus = f.udf(lambda value: value + 1, "bigint")
    return files.frame.filter("v % 2 = 0").select(plus("v").alias("v")).writeStream.format("noop")


def by_key(files: Files) -> DataStreamWriter:
    counts = files.frame.groupBy("k").agg(f.count("*"), f.max("v"))
    return counts.writeStream.format("noop").outputMode("update")


def united(files: Files) -> DataStreamWriter:
    both = files.frame.union(files.frame.filter("v < 50")).dropDuplicates(["k", "v"])
    return both.writeStream.format("noop")


def twice(files: Files) -> DataStreamWriter:
    """A function that runs two jobs of each batch."""

    def store(frame: DataFrame, _: int) -> None:
        frame.groupBy("k").count().collect()
        frame.agg(f.max("v")).collect()

    return files.frame.writeStream.foreachBatch(store)


def stages_of(spark: SparkSession, run_id: str) -> list[dict[str, Any]]:
    """What the REST API says of the stages that ran for a query."""
    context = spark.sparkContext
    base = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    jobs, listed = (httpx.get(f"{base}/{name}", timeout=60).json() for name in ("jobs", "stages"))
    ids = {stage for job in jobs if job.get("jobGroup") == run_id for stage in job["stageIds"]}
    found = [stage for stage in listed if stage["stageId"] in ids]
    assert all(stage["status"] in ("COMPLETE", "SKIPPED") for stage in found)
    return [stage for stage in found if stage["status"] == "COMPLETE"]


def ran_since(query: Running, before: int) -> Ran:
    def latest() -> Ran | None:
        ran = query.latest()
        return ran if ran is not None and ran.batch_id > before else None

    return until(latest, query.started)


@pytest.mark.parametrize(
    ("program", "batches", "behind_exchanges"),
    [
        (slowly, [(400,), (120,)], ()),
        (by_key, [SIZES, (500,)], ("aggregate", "noop")),
        (united, [SIZES, (30,)], ("deduplicate", "noop")),
        (twice, [SIZES, (70,)], ()),
    ],
)
def test_sums_over_subtasks_are_those_of_the_rest_api(
    spark: SparkSession,
    files: Files,
    tmp_path: Path,
    program: Callable[[Files], DataStreamWriter],
    batches: list[tuple[int, ...]],
    behind_exchanges: tuple[str, ...],
) -> None:
    # All are there when the query starts, and then comes one: so each batch has what is added at a time.
    files.add(*batches[0])
    writer = program(files).option("checkpointLocation", str(tmp_path / "checkpoint"))
    tasks: list[tuple[str, TaskWork]] = []
    number = -1
    with running(writer, **{"in": 4, "in 2": 4, "noop": 4, "foreachBatch": 4}) as query:
        for sizes in batches:
            if sizes is not batches[0]:
                files.add(*sizes)
            ran = ran_since(query, number)
            number = ran.batch_id
            for name, vertex in ran.vertices.items():
                assert vertex.by_task is not None and vertex.tasks is not None, name
                assert {len(each) for each in (vertex.by_task.busy_ms, vertex.by_task.records_in)} == {
                    vertex.tasks
                }
                tasks.append((name, vertex.by_task))
            first = ran.vertices[query.names[0]]
            # As many tasks as files, however many there may be, and each has the rows of its own.
            assert first.by_task is not None and first.tasks == len(sizes)
            factor = 2 if program is twice else 1
            assert sorted(first.by_task.records_in) == sorted(factor * size for size in sizes)
        stages = stages_of(spark, str(query.started.runId))

    def total(name: str, figure: str) -> int:
        return sum(sum(getattr(work, figure)) for vertex, work in tasks if vertex.startswith(name))

    if program is twice:
        # What the function itself has behind an exchange belongs to no vertex.
        stages = [stage for stage in stages if stage["inputRecords"]]
    assert sum(sum(work.busy_ms) for _, work in tasks) == sum(stage["executorRunTime"] for stage in stages)
    assert total("in", "records_in") == sum(stage["inputRecords"] for stage in stages)
    # Of sources that are united in a stage nobody knows which of them has read its bytes.
    if program is not united:
        assert total("in", "bytes_in") == sum(stage["inputBytes"] for stage in stages)
    # Each of these begins a stage.
    for figure, known in (("records_in", "shuffleReadRecords"), ("bytes_in", "shuffleReadBytes")):
        read = sum(total(name, figure) for name in behind_exchanges)
        assert read == sum(stage[known] for stage in stages)

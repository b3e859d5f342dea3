"""What each source of Spark gives to a batch when it is told how much. That batches take long is only pretended."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from app.driver.failures import BoundaryStop
from app.driver.gate import start_behind
from app.driver.intake import Intake
from app.driver.progress import IntakeLimit
from app.driver.sources.rate import PARTS_FILE, START_MS, RateSource
from tests.integration.driver.harness import wait_for
from tests.integration.driver.sink_support import spark_session

ROWS = 10
"""Of a file."""
TARGET_MS = 10_000
FIRST_MS = 50_000
CANNOT = IntakeLimit(why="no-admission-control")
BY_OPTIONS = IntakeLimit(why="own-limit")


class Slow:
    """Lets a query run ``batches``: the first is said to take `FIRST_MS`, and others the target. ``after``: is called
    behind the first."""

    def __init__(self, intake: Intake, batches: int, after: Callable[[], None]) -> None:
        self.intake = intake
        self.limits: list[IntakeLimit] = []
        self._batches = batches
        self._after = after

    def open(self, execution: Any) -> None:
        self.intake.begin(execution)

    def begin(self, batch_id: int) -> None:
        if batch_id == self._batches:
            raise BoundaryStop

    def commit(self) -> None:
        pass

    def end(self, batch_id: int) -> None:
        self.intake.batch_ended(FIRST_MS if batch_id == 0 else TARGET_MS)
        self.limits.append(self.intake.limit_of(0))
        if batch_id == 0:
            self._after()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        session.dataSource.register(RateSource)
        yield session


def files(directory: Path, numbers: range) -> None:
    directory.mkdir(exist_ok=True)
    for number in numbers:
        whole = directory / f".{number}.json"
        whole.write_text("".join(json.dumps({"v": v}) + "\n" for v in range(ROWS)), encoding="ascii")
        # Spark takes them in the order of their times.
        os.utime(whole, (1_700_000_000 + number, 1_700_000_000 + number))
        whole.rename(directory / f"{number}.json")


def of_files(spark: SparkSession, directory: Path, **options: object) -> DataFrame:
    reader = spark.readStream.schema("v LONG")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.json(str(directory))


def nothing() -> None:
    """No more comes."""


def ran(
    frame: DataFrame,
    place: Path,
    batches: int,
    *,
    after: Callable[[], None] = nothing,
    target_ms: int | None = TARGET_MS,
    **trigger: Any,
) -> tuple[list[int], list[IntakeLimit]]:
    """How many rows each of the batches of ``frame`` has, and what its first source may give to the next one."""
    slow = Slow(Intake(place / "note", target_ms=target_ms), batches, after)
    writer = (
        frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(place / "cp"))
    )
    query = start_behind(
        slow, frame.sparkSession, writer.trigger(**trigger or {"processingTime": "0 seconds"}).start
    )

    def rows() -> list[int]:
        return [one["numInputRows"] for one in query.recentProgress if "addBatch" in one["durationMs"]]

    wait_for("the batches", lambda: len(rows()) == batches or not query.isActive)
    query.stop()
    error = query.exception()
    assert error is None or BoundaryStop.MARK in str(error)
    return rows(), slow.limits


@pytest.mark.parametrize(
    ("options", "rows", "limits"),
    [
        ({}, [400, 80, 80], [IntakeLimit("files", 8)] * 3),
        # Never beyond what the program says.
        ({"maxFilesPerTrigger": 10}, [100, 20, 20], [IntakeLimit("files", 2)] * 3),
        ({"maxBytesPerTrigger": 800}, [80], [BY_OPTIONS]),
        # With a limit that is not its option it could pass over old files.
        ({"latestFirst": "true"}, [400, 600], [BY_OPTIONS, IntakeLimit()]),
    ],
)
def test_files(
    spark: SparkSession,
    tmp_path: Path,
    options: dict[str, object],
    rows: list[int],
    limits: list[IntakeLimit],
) -> None:
    files(tmp_path / "in", range(40))
    frame = of_files(spark, tmp_path / "in", **options)
    found = ran(frame, tmp_path, len(rows), after=lambda: files(tmp_path / "in", range(40, 100)))
    assert found == (rows, limits)


def test_the_first_batch_of_the_next_run_has_the_limit_of_the_last(
    spark: SparkSession, tmp_path: Path
) -> None:
    files(tmp_path / "in", range(40))
    frame = of_files(spark, tmp_path / "in")
    assert ran(frame, tmp_path, 1) == ([400], [IntakeLimit("files", 8)])
    files(tmp_path / "in", range(40, 100))
    # Where it stopped, the batch was planned.
    assert ran(frame, tmp_path, 3)[0] == [80, 80]


def test_a_query_that_ends_by_itself_reads_all_that_was_there(spark: SparkSession, tmp_path: Path) -> None:
    files(tmp_path / "in", range(40))
    frame = of_files(spark, tmp_path / "in", maxFilesPerTrigger=30)
    rows, _ = ran(frame, tmp_path, 99, after=lambda: files(tmp_path / "in", range(40, 50)), availableNow=True)
    assert rows == [300, 60, 40], "what came later is not its own"


def test_numbers_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "parts").write_text("2", encoding="ascii")
    options = {"rowsPerSecond": 100_000, PARTS_FILE: tmp_path / "parts", START_MS: 1_700_000_000_000}
    reader = spark.readStream.format(RateSource.name())
    for name, value in options.items():
        reader = reader.option(name, str(value))
    found = ran(reader.load(), tmp_path, 3)
    assert found == ([1_000_000, 200_000, 200_000], [IntakeLimit("rows", 200_000)] * 3)


def test_one_directory_that_is_read_twice(spark: SparkSession, tmp_path: Path) -> None:
    files(tmp_path / "in", range(40))
    one, other = (of_files(spark, tmp_path / "in") for _ in range(2))
    rows, _ = ran(one.union(other), tmp_path, 2, after=lambda: files(tmp_path / "in", range(40, 100)))
    assert rows == [800, 160]


def test_a_source_that_gives_what_it_wants_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
    assert ran(frame, tmp_path, 2) == ([50, 50], [CANNOT, IntakeLimit()])


@pytest.mark.parametrize(("target_ms", "rows"), [(None, [400, 600]), (TARGET_MS, [400, 80])])
def test_a_watermark_is_left_alone_unless_the_job_asks(
    spark: SparkSession, tmp_path: Path, target_ms: int | None, rows: list[int]
) -> None:
    files(tmp_path / "in", range(40))
    timed = (
        of_files(spark, tmp_path / "in")
        .withColumn("at", f.timestamp_seconds("v"))
        .withWatermark("at", "1 second")
    )
    frame = timed.groupBy(f.window("at", "5 seconds")).count()
    found, _ = ran(
        frame, tmp_path, 2, target_ms=target_ms, after=lambda: files(tmp_path / "in", range(40, 100))
    )
    assert found == rows


def test_two_streams_that_are_joined_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    files(tmp_path / "in", range(4))
    one, other = (of_files(spark, tmp_path / "in").withColumnRenamed("v", name) for name in "ab")
    joined = one.join(other, f.expr("a = b"))
    assert ran(joined, tmp_path, 1, target_ms=None)[1] == [IntakeLimit(why="keeps-time")]

"""Valves in real plans: Spark's task counts are the numbers, in place, and the output is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from app.driver.valves.spark import self_test
from tests.integration.driver.sink_support import spark_session
from tests.integration.driver.valve_support import STATE_PARTITIONS, running, until

ROWS = 200


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def rows(spark: SparkSession, partitions: int = STATE_PARTITIONS) -> DataFrame:
    """`ROWS` rows per batch, all of one second, with numbers that go on from batch to batch."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", partitions)
        # What is of 1970-01-01T00:00:00 is late for Spark from the beginning.
        .option("startTimestamp", 1_000_000)
        .load()
    )


@pytest.mark.parametrize("changes", [8, pytest.param(50, marks=pytest.mark.long)])
def test_changes_in_place(spark: SparkSession, tmp_path: Path, changes: int) -> None:
    """Source, deduplication, aggregate, and Spark's own Parquet sink."""
    pairs = rows(spark).select((f.col("value") / 2).cast("bigint").alias("pair"), "timestamp")
    counts = (
        pairs.withWatermark("timestamp", "1 second")
        .dropDuplicatesWithinWatermark(["pair"])
        .groupBy(f.window("timestamp", "1 second"))
        .agg(f.count("*").alias("n"), f.sum("pair").alias("total"))
    )
    out = str(tmp_path / "counts")
    writer = counts.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with running(writer.option("path", out)) as query:
        assert query.names == ["rate-micro-batch", "deduplicate", "aggregate", "counts"]
        run_id = query.started.runId
        for _ in range(changes):
            ran = query.at_random()
            assert ran.tasks == ran.numbers
            assert ran.vertices["rate-micro-batch"].records_out == ROWS
            assert ran.vertices["deduplicate"].records_in == ROWS
        assert query.started.runId == run_id, "it was never restarted"
        last = ran.batch_id
        until(lambda: query.started.lastProgress["batchId"] > last + 3, query.started)
    found = spark.read.parquet(out).orderBy("window").collect()
    assert len(found) >= last - 2
    per_batch = ROWS // 2
    for number, row in enumerate(found):
        first = number * per_batch
        assert (row["n"], row["total"]) == (per_batch, sum(range(first, first + per_batch)))


def test_this_spark_has_what_valves_need(spark: SparkSession) -> None:
    self_test(spark)

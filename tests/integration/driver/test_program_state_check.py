"""A query is compared with the state of a checkpoint that another one has written, before it is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from app.driver.program.origin import StateMismatch, check_state
from app.driver.valves.shape import read_query
from app.driver.valves.spark import writer_facts
from tests.integration.driver.sink_support import spark_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def rows(spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("rate-micro-batch").option("startTimestamp", 1_000_000)
    return reader.option("rowsPerBatch", 50).load().withWatermark("timestamp", "1 second")


def aggregated(frame: DataFrame, key: str = "bigint", figure: str = "bigint") -> DataFrame:
    value = f.col("value").cast(figure)
    return frame.groupBy((f.col("value") % 3).cast(key).alias("key")).agg(
        f.count("*").alias("n"), f.max(value).alias("most")
    )


def joined(frame: DataFrame, key: str = "bigint") -> DataFrame:
    left, right = (frame.select(f.col("value").cast(key).alias("id"), "timestamp") for _ in range(2))
    return left.join(right.withColumnRenamed("timestamp", "later"), "id")


def files(place: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in place.rglob("*") if each.is_file()}


def test_what_goes_with_a_state_and_what_does_not(spark: SparkSession, tmp_path: Path) -> None:
    def begin(name: str, frame: DataFrame, mode: str) -> Path:
        place = tmp_path / name
        writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(place))
        writer.trigger(once=True).start().awaitTermination()
        return place

    def told(place: Path, frame: DataFrame, mode: str = "update") -> str:
        writer = frame.writeStream.format("noop").queryName("store").outputMode(mode)
        vertices = read_query(frame, writer_facts(writer), (), 4)
        before, number = files(place), len(list(tmp_path.glob("scratch-*")))
        try:
            check_state(frame, mode, vertices, place, tmp_path / f"scratch-{number}")
        except StateMismatch as error:
            return str(error)
        finally:
            assert files(place) == before
        return ""

    one: Callable[[], DataFrame] = lambda: rows(spark)  # noqa: E731 - each use is a stream of its own
    place = begin("aggregate", aggregated(one()), "update")
    assert told(place, aggregated(one())) == ""
    assert told(place, aggregated(one().where("value > 7")).where("n > 1").withColumn("more", f.lit(1))) == ""
    assert told(place, aggregated(one()).withColumnRenamed("key", "renamed")) == ""
    assert told(place, aggregated(one(), key="string")) == (
        f"the query of store does not go with the state in {place}: the key of 'aggregate' has field 1, "
        "_groupingexpression, as string now, and had it as bigint."
    )
    assert "the value of 'aggregate' has field 2, max, as string now, and had it as bigint" in told(
        place, aggregated(one(), figure="string")
    )
    more = one().groupBy((f.col("value") % 3).alias("key"), "timestamp").agg(f.count("*"), f.max("value"))
    assert "the key of 'aggregate' has a field 2 now, timestamp (timestamp), and had none" in told(
        place, more
    )
    two = aggregated(one().dropDuplicatesWithinWatermark(["value"]), "bigint")
    assert "is an aggregate, dropDuplicatesWithinWatermark now, and was an aggregate" in told(place, two)
    assert "is nothing now, and was an aggregate" in told(place, one())

    place = begin("join", joined(one()), "append")
    assert told(place, joined(one()), "append") == ""
    assert "the key of 'join' has field 1, field0, as int now, and had it as bigint" in told(
        place, joined(one(), key="int"), "append"
    )

    place = begin("stateless", one(), "append")
    assert told(place, aggregated(one())) == "", "that there is no state at all is found elsewhere"

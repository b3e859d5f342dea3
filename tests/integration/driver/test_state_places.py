"""What Spark makes of the places that state partitions are given. There are no executors here: tasks run anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from app.driver.scala import scala_option
from app.driver.state_places import StatePlaces
from tests.integration.driver.sink_support import spark_session

PARTITIONS, ROWS = 12, 120


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def state(spark: SparkSession) -> DataFrame:
    """A micro-batch: ten rows in each partition, with the partition in them."""
    return spark.range(0, ROWS, 1, PARTITIONS).select("id", f.spark_partition_id().alias("state"))


def tasks_of(frame: DataFrame) -> list[set[int]]:
    """The state partitions of each task, in their order."""
    rows = frame.select("state", f.spark_partition_id().alias("task")).distinct().collect()
    found: list[set[int]] = [set() for _ in range(1 + max(row["task"] for row in rows))]
    for row in rows:
        found[row["task"]].add(row["state"])
    return found


def placed(places: StatePlaces, spark: SparkSession, width: int) -> DataFrame:
    """A micro-batch behind a valve of ``width``, and behind one more in the same stage."""
    frame: Any = state(spark)
    jvm: Any = spark._jvm
    none = scala_option(jvm, None)
    narrow = frame._jdf.queryExecution().toRdd().coalesce(width, False, none, None)
    behind = narrow.coalesce(width, False, none, None)
    places.arrange(narrow, [behind])
    made = spark._jsparkSession.internalCreateDataFrame(behind, frame._jdf.schema(), False)
    return DataFrame(made, spark)


def places_of(frame: DataFrame) -> list[str]:
    """The places that Spark's scheduler knows of each task."""
    jdf: Any = frame._jdf
    rows = jdf.queryExecution().toRdd()
    context = rows.context()
    found = [context.getPreferredLocs(rows, number) for number in range(rows.getNumPartitions())]
    return [places.apply(0).toString() if places.size() else "" for places in found]


def test_each_task_has_its_partitions_and_its_place(spark: SparkSession) -> None:
    executors = [3, 5]
    places = StatePlaces("q", lambda: executors, {})
    frame = placed(places, spark, 2)
    assert tasks_of(frame) == [set(range(6)), set(range(6, 12))]
    assert places_of(frame) == ["executor_any_3", "executor_any_5"]

    executors.append(8)
    for taken in ({4}, {4, 10}, {4, 5, 10}, {4, 5, 10, 11}):
        frame = placed(places, spark, 3)
        assert places_of(frame) == ["executor_any_3", "executor_any_8", "executor_any_5"]
        left = [set(range(6)) - taken, taken, set(range(6, 12)) - taken]
        assert tasks_of(frame) == left, "a newcomer takes its share little by little"
        assert places.is_even == (len(taken) == 4)
    assert frame.count() == ROWS and frame.schema == state(spark).schema

    again = placed(places, spark, 3)
    assert tasks_of(again) == tasks_of(frame) and places_of(again) == places_of(frame)


def test_without_executors_the_work_is_divided_all_the_same(spark: SparkSession) -> None:
    frame = placed(StatePlaces("q", list, {}), spark, 5)
    assert [len(task) for task in tasks_of(frame)] == [3, 3, 2, 2, 2]
    assert places_of(frame) == [""] * 5
    assert frame.agg(f.sum("id")).first()[0] == ROWS * (ROWS - 1) // 2

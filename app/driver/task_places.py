"""Gives the tasks of a table their partitions and their places, where Spark's own choice would be another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from app.driver.scala import executor_place, scala_option

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

PlacedTask = tuple[Any, Any]
"""What the JVM is told of a task: its partitions, and an option of its place."""


def placed_task(context: SparkContext, partitions: Iterable[int], executor: int | None) -> PlacedTask:
    """A task for these partitions, at ``executor`` if that can be."""
    jvm: Any = context._jvm
    numbers = list(partitions)
    gateway: Any = context._gateway
    indices = gateway.new_array(jvm.int, len(numbers))
    for position, number in enumerate(numbers):
        indices[position] = number
    return indices, scala_option(jvm, None if executor is None else executor_place(executor))


def in_tasks(frame: DataFrame, rows: Any, tasks: Sequence[PlacedTask]) -> DataFrame:
    """``frame``, whose RDD is ``rows``, in these tasks and no others."""
    from pyspark.sql import DataFrame

    session = frame.sparkSession
    jvm: Any = session.sparkContext._jvm
    narrow = rows.coalesce(len(tasks), False, scala_option(jvm, None), None)
    # Nothing has run yet, and Spark asks an RDD for its partitions only once.
    partitions = narrow.partitions()
    for number, (indices, place) in enumerate(tasks):
        partitions[number] = jvm.org.apache.spark.rdd.CoalescedRDDPartition(number, rows, indices, place)
    own: Any = session._jsparkSession
    return DataFrame(own.internalCreateDataFrame(narrow, frame._jdf.schema(), False), session)

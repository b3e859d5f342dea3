"""Gives the tasks of a table their partitions and their places, where Spark's own choice would be another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark import SparkContext

from app.driver.scala import executor_place, scala_option

PlacedTask = tuple[Any, Any]
"""What the JVM is told of a task: its partitions, and an option of its place."""


def placed_task(partitions: Iterable[int], executor: int | None) -> PlacedTask:
    """A task for these partitions, at ``executor`` if that can be."""
    jvm: Any = SparkContext._jvm
    gateway: Any = SparkContext._gateway
    numbers = list(partitions)
    indices = gateway.new_array(jvm.int, len(numbers))
    for position, number in enumerate(numbers):
        indices[position] = number
    return indices, scala_option(jvm, None if executor is None else executor_place(executor))


def place_tasks(narrow: Any, tasks: Sequence[PlacedTask]) -> None:
    """Let ``narrow``, a CoalescedRDD of that many partitions of which nothing has run yet, have these."""
    jvm: Any = SparkContext._jvm
    rows = narrow.prev()
    # Spark asks an RDD for its partitions only once.
    partitions = narrow.partitions()
    for number, (indices, place) in enumerate(tasks):
        partitions[number] = jvm.org.apache.spark.rdd.CoalescedRDDPartition(number, rows, indices, place)

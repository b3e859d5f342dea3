"""An artifact: a sink whose store takes two connections, one for each task that writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame

MOST = 2


def write(rows: Iterator[Any]) -> None:
    task = TaskContext.get()
    if task is not None and task.partitionId() >= MOST:
        raise ConnectionError(
            f"the store takes {MOST} connections, and has no other one for task {task.partitionId()}"
        )
    for _ in rows:
        pass


def store(frame: DataFrame, batch_id: int) -> None:
    frame.foreachPartition(write)

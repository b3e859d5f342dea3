"""A vertex that changes nothing and runs in the tasks of the stage before it: a point in the middle of a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def probe(counts: DataFrame) -> DataFrame:
    return counts.mapInPandas(_pass_on, counts.schema)


def _pass_on(frames: Iterator[Any]) -> Iterator[Any]:
    from tests.acceptance.kills import reached_in_driver

    for frame in frames:
        reached_in_driver("stateful-task")
        yield frame

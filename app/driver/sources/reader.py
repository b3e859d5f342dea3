"""What the built-in streaming readers have in common: the offset is a number of rows, the plan says how many parts."""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from app.driver.sources.control import SourceSide

Offset = dict[str, int]


@dataclass
class Part(InputPartition):
    """One task's share: ``content`` is of the source."""

    content: object


_collector_spared = False


def spare_collector() -> None:
    """Take what is loaded now out of the garbage collector's sight, once per worker process.

    Spark's workers collect garbage after every task; with pyarrow and PySpark loaded that is 15 ms each time.
    """
    global _collector_spared
    if not _collector_spared:
        _collector_spared = True
        gc.freeze()


class RowReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader whose offsets are ``{"row": n}``: n rows come before it, always the same ones.

    Spark makes one instance in its planner process, which lives as long as the query, and another whose copies go to
    the tasks; so nothing is opened before it is needed, and `read` uses only what the constructor was given.
    """

    def __init__(self, side: SourceSide) -> None:
        self._side = side
        self._planned: tuple[int, int] | None = None
        self._parts: list[Part] = []

    @abstractmethod
    def latest_row(self, start: int, *, limited: bool) -> int:
        """How far a batch that begins at ``start`` may go."""

    @abstractmethod
    def divide(self, start: int, end: int, parallelism: int) -> Sequence[object]:
        """The contents of ``parallelism`` parts of the rows from ``start`` to ``end``."""

    def initialOffset(self) -> Offset:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        # Which limits hold is known here, not there: this only says that there are some.
        return ReadMaxRows(2**62)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        row = self.latest_row(start["row"], limited=not isinstance(limit, ReadAllAvailable))
        return {"row": row}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One part per task, as many as the plan in force says.

        Spark may ask several times while it plans one batch, and what it planned on the first answer must still hold
        at the last: the plan is looked up once per batch.
        """
        batch = (start["row"], end["row"])
        if self._planned != batch:
            number, parallelism = self._side.plan()
            self._parts = [Part(content) for content in self.divide(*batch, parallelism)]
            self._side.report_plan(number)
            self._planned = batch
        return self._parts

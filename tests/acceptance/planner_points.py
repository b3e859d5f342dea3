"""The points at which a driver can be killed by the planner process of the source `rate` (`tests.acceptance.kills`).

Imported by the driver and by this process: what is replaced here is looked up by name there.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from app.driver.sources import rate
from app.driver.sources.rate import Offset, RateReader, RateSource
from tests.acceptance.kills import reached_in_driver


class PointedReader(RateReader):
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        end = super().latestOffset(start, limit)
        if end != start:
            reached_in_driver("planner-offset")
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        # Spark asks for partitions when the batch is in its offset log.
        reached_in_driver("planner-partitions")
        return super().partitions(start, end)


class PointedSource(RateSource):
    def streamReader(self, schema: StructType) -> RateReader:
        return PointedReader(self.options)


def install() -> None:
    rate.RateSource = PointedSource  # type: ignore[misc]

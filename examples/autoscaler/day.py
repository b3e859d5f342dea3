"""A streaming program whose input follows a day: few rows at night, most of them in the evening.

    slotwise submit examples/autoscaler/day.py -- --seconds 300

The day is replayed in `--seconds`. Each row takes a task 20 ms of waiting, as a call of another service would: so more
tasks process more rows, on any machine. The source tells Spark how many rows wait, so that the backlog is known.
"""

import argparse
import math
import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.functions import expr
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

ROW_MS = 20
PARTS = 8
BATCH_ROWS = 400
TRIGGER = "2 seconds"


def due(seconds: float, day_s: float) -> int:
    """The rows that have come so long after the first midnight: 20 per second in the night, 180 in the afternoon, and
    100 on the average. It is the integral of 100 - 80 cos(2 pi (t - 1/12)) over the parts t of days."""
    if seconds <= 0:
        return 0
    turn = 2 * math.pi / day_s
    shift = 2 * math.pi / 12
    return int(100 * seconds - 80 / turn * (math.sin(turn * seconds - shift) + math.sin(shift)))


def begin(start: str) -> float:
    """When the first day begins; never, while the file is not there."""
    try:
        return float(start)
    except ValueError:
        path = Path(start)
        return float(path.read_text(encoding="ascii")) if path.exists() else math.inf


class Day(DataSource):
    @classmethod
    def name(cls):
        return "day"

    def schema(self):
        return "value BIGINT"

    def streamReader(self, schema):
        return DayReader(self.options)


class DayReader(DataSourceStreamReader):
    """An offset is ``{start: {"0": row}}``, where ``start`` says when the first day begins: in epoch seconds, or the
    name of a file that has them. It has the form of Kafka's, by which the rows that wait are told."""

    def __init__(self, options):
        self.day_s, self.start_s = float(options["seconds"]), options["start"]
        self.latest = None

    def initialOffset(self):
        return {self.start_s: {"0": 0}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(BATCH_ROWS)

    def latestOffset(self, start, limit):
        ((start_s, rows),) = start.items()
        there = max(rows["0"], due(time.time() - begin(start_s), self.day_s))
        self.latest = {start_s: {"0": there}}
        return {start_s: {"0": min(there, rows["0"] + limit.max_rows)}}

    def reportLatestOffset(self):
        return self.latest

    def partitions(self, start, end):
        ((first, last),) = zip(*([rows["0"] for rows in each.values()] for each in (start, end)), strict=True)
        edges = [first + (last - first) * part // PARTS for part in range(PARTS + 1)]
        return [InputPartition(pair) for pair in pairwise(edges)]

    def read(self, partition):
        first, last = partition.value
        yield pa.RecordBatch.from_pydict(
            {"value": list(range(first, last))}, pa.schema([("value", pa.int64())])
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300, help="of a day")
    parser.add_argument(
        "--start", default=str(time.time()), help="of the first day: epoch seconds, or a file with them"
    )
    options = parser.parse_args()
    spark = SparkSession.builder.appName("day").getOrCreate()
    spark.dataSource.register(Day)
    rows = spark.readStream.format("day").options(seconds=options.seconds, start=options.start).load()
    slow = rows.withColumn("waited", expr(f"reflect('java.lang.Thread', 'sleep', {ROW_MS}L)"))
    slow.writeStream.format("noop").queryName("store").trigger(
        processingTime=TRIGGER
    ).start().awaitTermination()

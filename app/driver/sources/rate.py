"""The source `rate`: numbered rows with a timestamp, the same ones whenever they are read.

An offset is ``{start: {"0": row}}``: the first row was due at ``start``, in milliseconds, and ``row`` rows come before
it. It has the form of Kafka's, so what waits is told as Kafka's is (`app.driver.progress`). Behind the last row of a
source that ends it is ``{start: {"0": row, "end": 0}}``.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from app.driver.checkpoints import newest_batch
from app.model.formats import rate_options

PARTS_FILE = "partsFile"
"""The option that names the file with the number of parts of a batch."""

START_MS = "startMs"
"""The option that says when the first row is due, if no checkpoint does. Two that read one vertex have the same."""

_ARROW_SCHEMA = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())])
_BATCH_ROWS = 65_536

Offset = dict[str, dict[str, int]]


@dataclass
class Part(InputPartition):
    """One task's share: first row, end (exclusive), and the time in milliseconds from which timestamps count."""

    first: int
    end: int
    start_ms: int


_collector_spared = False


def spare_collector() -> None:
    """Take what is loaded now out of the garbage collector's sight, once per worker process.

    Spark's workers collect garbage after every task; with pyarrow and PySpark loaded that is 15 ms each time.
    """
    global _collector_spared
    if not _collector_spared:
        _collector_spared = True
        gc.freeze()


class RateSource(DataSource):
    """Registered under `name`, as Spark has a source of the name `rate`."""

    @classmethod
    def name(cls) -> str:
        return "slotwise-rate"

    def schema(self) -> str:
        return "timestamp TIMESTAMP, value BIGINT"

    def streamReader(self, schema: StructType) -> RateReader:
        return RateReader(self.options)


class RateReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Row n has the value n, and a timestamp that follows from n and the start.

    Spark makes one instance in its planner process, which lives as long as the query, and another whose copies go to
    the tasks; `read` uses only what the constructor was given.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = rate_options(options)
        self._parts_file = options[PARTS_FILE]
        self._start_ms = int(options[START_MS])
        self._until_ms: float | None = None
        self._latest: Offset | None = None
        self._planned: tuple[Offset, Offset] | None = None
        self._parts: list[Part] = []

    def initialOffset(self) -> Offset:
        return self._offset(self._start_ms, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        start_ms, row = _read(start)
        until_ms = time.time_ns() // 1_000_000 if self._until_ms is None else self._until_ms
        count = self._options.row_count
        if until_ms == math.inf and count is not None:
            due = count
        else:
            due = math.floor(max(0, until_ms - start_ms) * self._options.rows_per_second / 1000)
        due = max(row, due if count is None else min(due, count))
        self._latest = self._offset(start_ms, due)
        return (
            self._offset(start_ms, min(due, row + limit.max_rows))
            if isinstance(limit, ReadMaxRows)
            else self._latest
        )

    def reportLatestOffset(self) -> Offset | None:
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is what is due now; of a source that ends it is all."""
        self._until_ms = time.time_ns() // 1_000_000 if self._options.row_count is None else math.inf

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One part per task, as many as the file says.

        Spark may ask several times while it plans one batch, and what it planned on the first answer must still hold
        at the last: the file is looked at once per batch.
        """
        if self._planned != (start, end):
            # Of the two the end is in the log, when a first batch is run again.
            (_, first), (start_ms, last) = _read(start), _read(end)
            parts = int(Path(self._parts_file).read_text(encoding="ascii"))
            bounds = [first + (last - first) * part // parts for part in range(parts + 1)]
            self._parts = [Part(low, high, start_ms) for low, high in pairwise(bounds)]
            self._planned = (start, end)
        return self._parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        for low in range(partition.first, partition.end, _BATCH_ROWS):
            values = np.arange(low, min(low + _BATCH_ROWS, partition.end), dtype=np.int64)
            after_us = np.floor(values * (1_000_000 / self._options.rows_per_second)).astype(np.int64)
            times = pa.array(partition.start_ms * 1000 + after_us)
            columns = [times.cast(_ARROW_SCHEMA.field(0).type), pa.array(values)]
            yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)
        spare_collector()

    def stop(self) -> None:
        """Called in the planner process, for whatever reason it ends. At the end of a query Spark only hangs up on it:
        PySpark takes that for an error, and writes three tracebacks into the driver's log."""
        if isinstance(sys.exception(), EOFError | ConnectionError):
            os._exit(0)

    def _offset(self, start_ms: int, row: int) -> Offset:
        count = self._options.row_count
        return {str(start_ms): {"0": row} | ({} if count is None or row < count else {"end": 0})}


def _read(offset: Offset) -> tuple[int, int]:
    ((start, rows),) = offset.items()
    return int(start), rows["0"]


def is_read(checkpoint: Path) -> bool:
    """Whether the sources of a query, all of which are of this kind, are at their ends, and what they gave committed.

    Raises:
        OSError: it cannot be read.
    """
    planned = newest_batch(checkpoint / "offsets")
    if planned < 0 or planned != newest_batch(checkpoint / "commits"):
        return False
    version, _, *offsets = (checkpoint / "offsets" / str(planned)).read_text(encoding="utf-8").splitlines()
    return version == "v1" and all(each != "-" and "end" in _rows(json.loads(each)) for each in offsets)


def _rows(offset: Offset) -> dict[str, int]:
    (rows,) = offset.values()
    return rows

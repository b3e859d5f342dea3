"""The sources `rate` and `rate-micro-batch`: numbered rows with a timestamp, the same ones whenever they are read."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from app.driver.sources.durable import read_durable, write_durably
from app.driver.sources.files import side_from
from app.driver.sources.reader import Part, RowReader, spare_collector
from app.model.source_options import RateOptions

RATE_SCHEMA = "timestamp TIMESTAMP, value BIGINT"

_ARROW_SCHEMA = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())])
_BATCH_ROWS = 65_536

Rows = tuple[int, int, int]
"""First row, end (exclusive), and the time in milliseconds from which timestamps count."""


class RateSource(DataSource):
    """Registered under `name`; the option ``format`` says which of the two it is."""

    @classmethod
    def name(cls) -> str:
        return "slotwise-rate"

    def schema(self) -> str:
        return RATE_SCHEMA

    def streamReader(self, schema: StructType) -> RateReader:
        return RateReader(self.options)


class RateReader(RowReader):
    """Row n has the value n, and a timestamp that follows from n and the start, which is kept in the checkpoint."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(side_from(options))
        self._options = RateOptions(**json.loads(options["spec"]))
        self._steady = options["kind"] == "rate"
        self._state_file = options["state_dir"] + "/start.json"
        self._end: int | None = None

    @cached_property
    def _start_ms(self) -> int:
        """When the first row was due."""
        if not self._steady:
            return self._options.start_ms
        stored = read_durable(Path(self._state_file))
        if stored is None:
            stored = {"startMs": time.time_ns() // 1_000_000}
            write_durably(Path(self._state_file), stored)
        return int(stored["startMs"])

    def prepareForTriggerAvailableNow(self) -> None:
        if self._steady:
            self._end = self._due()
        elif self._options.row_count is None:
            # Rows are there as fast as they are read, so one batch stands for what is there now.
            self._end = -1

    def latest_row(self, start: int, *, limited: bool) -> int:
        options = self._options
        due = self._due() if self._steady else start + options.rows_per_batch
        if self._end is not None:
            self._end = start + options.rows_per_batch if self._end < 0 else self._end
            due = min(due, self._end)
        if options.row_count is not None:
            due = min(due, options.row_count)
        end = due
        if limited and self._steady:
            end = min(end, start + options.max_rows_per_trigger)
        if self._side.draining():
            end = start
        end = max(start, end)
        backlog = max(0, due - end) if self._steady else 0
        self._side.report_status(backlog=backlog, exhausted=start == options.row_count)
        return end

    def divide(self, start: int, end: int, parallelism: int) -> Sequence[Rows]:
        bounds = [start + (end - start) * part // parallelism for part in range(parallelism + 1)]
        return [(first, last, self._start_ms) for first, last in pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part) and isinstance(partition.content, tuple)
        first, last, start_ms = partition.content
        for low in range(first, last, _BATCH_ROWS):
            values = np.arange(low, min(low + _BATCH_ROWS, last), dtype=np.int64)
            times = start_ms * 1000 + self._offsets_us(values)
            timestamps = pa.array(times).cast(_ARROW_SCHEMA.field(0).type)
            yield pa.RecordBatch.from_arrays([timestamps, pa.array(values)], schema=_ARROW_SCHEMA)
        spare_collector()

    def _due(self) -> int:
        elapsed_ms = max(0, time.time_ns() // 1_000_000 - self._start_ms)
        return math.floor(elapsed_ms * self._options.rows_per_second / 1000)

    def _offsets_us(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """How long after the start each row is due."""
        options = self._options
        if self._steady:
            scaled: NDArray[np.float64] = np.floor(values * (1_000_000 / options.rows_per_second))
            return scaled.astype(np.int64)
        batches: NDArray[np.int64] = values // options.rows_per_batch
        return batches * (options.advance_ms * 1000)


def rate_options_text(options: RateOptions) -> str:
    """The checked options as one option of a data source."""
    return json.dumps(asdict(options))

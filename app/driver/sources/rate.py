"""The sources `rate` and `rate-micro-batch`: numbered rows with a timestamp, the same ones whenever they are read.

The offset is a number of rows, and the plan in force says how many parts a batch has.
"""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from app.driver.sources.control import SourceSide
from app.driver.sources.errors import SourceError
from app.durablefiles import sync_to_disk, write_whole
from app.model.rate_options import RateOptions

RATE_SCHEMA = "timestamp TIMESTAMP, value BIGINT"

_ARROW_SCHEMA = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())])
_BATCH_ROWS = 65_536

Offset = dict[str, int]


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
    """Registered under `name`; the option ``format`` says which of the two it is."""

    @classmethod
    def name(cls) -> str:
        return "slotwise-rate"

    def schema(self) -> str:
        return RATE_SCHEMA

    def streamReader(self, schema: StructType) -> RateReader:
        return RateReader(self.options)


class RateReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Row n has the value n, and a timestamp that follows from n and the start, which is kept in the checkpoint.

    Its offsets are ``{"row": n}``: n rows come before it. Spark makes one instance in its planner process, which lives
    as long as the query, and another whose copies go to the tasks; `read` uses only what the constructor was given.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._side = SourceSide(
            Path(options["control"]), options["vertex_id"], options["vertex_name"], options["query_key"]
        )
        self._options = RateOptions(**json.loads(options["spec"]))
        self._steady = options["kind"] == "rate"
        self._state_dir = options["state_dir"]
        self._end: int | None = None
        self._planned: tuple[int, int] | None = None
        self._parts: list[Part] = []

    @cached_property
    def _start_ms(self) -> int:
        """When the first row was due."""
        return _kept_start_ms(Path(self._state_dir)) if self._steady else self._options.start_ms

    def initialOffset(self) -> Offset:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        # Which limits hold is known here, not there: this only says that there are some.
        return ReadMaxRows(2**62)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return {"row": self.latest_row(start["row"], limited=not isinstance(limit, ReadAllAvailable))}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One part per task, as many as the plan in force says.

        Spark may ask several times while it plans one batch, and what it planned on the first answer must still hold
        at the last: the plan is looked up once per batch.
        """
        batch = (start["row"], end["row"])
        if self._planned != batch:
            number, parts = self._side.plan()
            self._parts = self.divide(*batch, parts)
            self._side.report_plan(number)
            self._planned = batch
        return self._parts

    def divide(self, start: int, end: int, parts: int) -> list[Part]:
        """``parts`` parts of the rows from ``start`` to ``end``."""
        bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
        return [Part(first, last, self._start_ms) for first, last in pairwise(bounds)]

    def prepareForTriggerAvailableNow(self) -> None:
        if self._steady:
            self._end = self._due()
        elif self._options.row_count is None:
            # Rows are there as fast as they are read, so one batch stands for what is there now.
            self._end = -1

    def latest_row(self, start: int, *, limited: bool) -> int:
        """How far a batch that begins at ``start`` may go."""
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

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        for low in range(partition.first, partition.end, _BATCH_ROWS):
            values = np.arange(low, min(low + _BATCH_ROWS, partition.end), dtype=np.int64)
            times = partition.start_ms * 1000 + self._offsets_us(values)
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


def _kept_start_ms(directory: Path) -> int:
    """When the source was started first: now, unless the checkpoint knows.

    Raises:
        SourceError: what it knows is damaged.
    """
    file = directory / "start.json"
    try:
        return int(json.loads(file.read_bytes())["startMs"])
    except FileNotFoundError:
        start_ms = time.time_ns() // 1_000_000
    except (ValueError, KeyError, TypeError):
        raise SourceError(f"The file {file} of the checkpoint is damaged.") from None
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({"startMs": start_ms}).encode())
    for changed in (directory, directory.parent):
        sync_to_disk(changed)
    return start_ms

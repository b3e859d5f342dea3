"""Rows into a database table, each batch in one transaction that also records the batch.

The record, in the table `_slotwise_batches` beside the data, is what makes a batch that is re-run known: it is
committed with the rows or not at all. The rows travel in files: the tasks stage them in parallel by the batch's one
action, and this process loads them chunk by chunk, so memory does not depend on the size of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app.driver.arrivals import BELOW_JOBS_DIR
from app.driver.failures import Fenced
from app.driver.sinks.base import BatchRef, MayCommit, Options, Written, os_error, run_without_output
from app.driver.sinks.columns import Kind, TableColumn, UnknownType, arrow_column, staged, table_columns
from app.driver.sinks.parts import write_parquet
from app.driver.sinks.staging import StagingArea
from app.model.jobgraph import JobVertex, OutputMode, SinkSpec
from app.model.sink_options import BATCH_TABLE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


KEPT_BATCHES = 1000
"""How many batches of a query stay recorded. The newest alone would do to know a re-run; the others are for people."""

_CHUNK_ROWS = 10_000
_STAGING_OPTIONS = {"compression": "none", "parquet.block.size": str(16 * 1024 * 1024)}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What `_slotwise_batches` says of a query: its newest batch, the newest epoch, the rows of the batch asked for."""

    batch_id: int
    epoch: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What is written where. ``keys`` are empty when rows are appended; ``replace``: each batch is the whole table."""

    vertex: str
    table: str
    keys: tuple[str, ...]
    upsert: bool
    replace: bool
    options: Options


@dataclass(frozen=True, slots=True)
class Load:
    """A batch that is staged, ready to be loaded."""

    batch: BatchRef
    columns: tuple[TableColumn, ...]
    parts: tuple[Path, ...]
    rows: int

    def chunks(self) -> Iterator[list[pa.Array]]:
        """The rows, some thousands at a time, column by column."""
        import pyarrow.parquet

        for part in self.parts:
            with pyarrow.parquet.ParquetFile(part, pre_buffer=False) as file:
                for chunk in file.iter_batches(_CHUNK_ROWS, use_threads=False):
                    yield [
                        arrow_column(array, column.kind)
                        for array, column in zip(chunk.columns, self.columns, strict=True)
                    ]


class Database(Protocol):
    """A kind of database. Its errors come out as `DriverError`."""

    @property
    def binary_as_hex(self) -> bool:
        """Whether binary columns are staged as text, \\x and hex digits."""

    def prepare(self) -> None:
        """Connect, check what can be checked without rows, create the table of batches."""

    def recorded(self, batch: BatchRef) -> Recorded | None:
        """What is recorded of the query, or None. Takes note of the batch's epoch if that is newer."""

    def load(self, load: Load, may_commit: MayCommit) -> Recorded | None:
        """Write and record the batch in one transaction; what was recorded instead if it was there already."""


@dataclass
class DatabaseSink:
    """A table of a database."""

    spec: TableSpec
    database: Database
    staging: StagingArea
    _columns: tuple[TableColumn, ...] = field(default=(), init=False)

    def prepare(self) -> None:
        try:
            self.staging.open()
        except OSError as error:
            doing = f"The working directory {self.staging.root} cannot be written"
            raise os_error(error, doing, self.spec.vertex) from error
        self.database.prepare()

    def check(self, frame: DataFrame) -> None:
        self._checked_columns(frame)

    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        recorded = self.database.recorded(batch)
        if recorded is not None and is_repeated(recorded, batch):
            run_without_output(frame)
            return Written(recorded.rows, repeated=True)
        columns = self._checked_columns(frame)
        try:
            with self.staging.batch(str(batch.batch_id)) as directory:
                rows = staged(frame, columns, binary_as_hex=self.database.binary_as_hex)
                counts = write_parquet(
                    rows, directory, _STAGING_OPTIONS, vertex=self.spec.vertex, where=BELOW_JOBS_DIR
                )
                kept = tuple(part for part, count in counts.items() if count)
                load = Load(batch, columns, kept, sum(counts.values()))
                earlier = self.database.load(load, may_commit)
        except OSError as error:
            raise os_error(error, f"Batch {batch.batch_id} cannot be staged", self.spec.vertex) from error
        if earlier is not None:
            return Written(earlier.rows, repeated=True)
        return Written(load.rows)

    def close(self) -> None:
        self.staging.close()

    def _checked_columns(self, frame: DataFrame) -> tuple[TableColumn, ...]:
        options = self.spec.options
        try:
            columns = table_columns(frame)
        except UnknownType as unknown:
            raise options.error(
                f"cannot store the column {unknown.column} of type {unknown.type_name}: cast it to a type of SQL's."
            ) from None
        names = [column.name for column in columns]
        lowered = [name.lower() for name in names]
        twice = sorted({name for name in names if lowered.count(name.lower()) > 1})
        if twice:
            raise options.error(f"gets rows with two columns named {twice[0]}: name them apart.")
        absent = [key for key in self.spec.keys if key not in names]
        if absent:
            raise options.error(
                f"has the keys {', '.join(self.spec.keys)}, but the rows have no column {absent[0]}: "
                f"their columns are {', '.join(names)}."
            )
        nested = [
            column.name for column in columns if column.kind is Kind.JSON and column.name in self.spec.keys
        ]
        if nested:
            raise options.error(f"has the key {nested[0]}, which is a nested column and cannot be a key.")
        return columns


def is_repeated(recorded: Recorded, batch: BatchRef) -> bool:
    """Whether ``batch`` has been written. Batches are written one after another, so all up to the newest have been.

    Raises:
        Fenced: a newer epoch has written.
    """
    if recorded.epoch > batch.epoch:
        raise Fenced(
            f"batch {batch.batch_id} is of epoch {batch.epoch}, and epoch {recorded.epoch} has written since"
        )
    return batch.batch_id <= recorded.batch_id


def check_table(spec: TableSpec, existing: Sequence[str], columns: Sequence[TableColumn]) -> None:
    """Refuse rows whose columns the table, which has the columns ``existing``, does not have."""
    absent = [column.name for column in columns if column.name not in existing]
    if absent:
        raise spec.options.error(
            f"writes to the table {spec.table}, which has no column {', '.join(absent)}: the table's columns are "
            f"{', '.join(existing)}, those of the rows {', '.join(column.name for column in columns)}."
        )


def quoted(name: str) -> str:
    """``name`` as an identifier of SQL's."""
    return '"' + name.replace('"', '""') + '"'


def open_database(vertex: JobVertex, spec: SinkSpec, work_dir: Path) -> DatabaseSink:
    """The database sink of ``vertex``.

    Raises:
        DriverError: an option is missing or wrong.
    """
    from app.driver.sinks.postgresql import open_postgresql
    from app.driver.sinks.sqlite import open_sqlite

    known = ("table", "mode", "keys") + (("url",) if spec.format == "postgresql" else ())
    options = Options.of(vertex, spec, known)
    upsert = options.choice("mode", ("append", "upsert"), "append") == "upsert"
    keys = options.names("keys")
    if upsert and not keys:
        raise options.error(
            "has mode: upsert and needs the option keys: the key columns, with commas between."
        )
    if keys and not upsert:
        raise options.error("has the option keys, which is for mode: upsert.")
    table = TableSpec(
        vertex.name, options.required("table"), keys, upsert, spec.output_mode is OutputMode.COMPLETE, options
    )
    if table.table.rpartition(".")[2].lower() == BATCH_TABLE:
        raise options.error(f"may not write to {BATCH_TABLE}, which records the batches.")
    database = open_sqlite(table, spec) if spec.format == "sqlite" else open_postgresql(table)
    return DatabaseSink(table, database, StagingArea(work_dir / "staging"))

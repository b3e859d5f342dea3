"""Rows into a database table, each batch in one transaction that also records the batch.

The record, in the table `_slotwise_batches` beside the data, is what makes a batch that is re-run known: it is
committed with the rows or not at all. The rows travel in files: the tasks stage them in parallel by the batch's one
action, and this process loads them chunk by chunk, so memory does not depend on the size of a batch.
"""

# ruff: noqa: S608 - what is put into statements is names, quoted; values are parameters

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyspark.sql import DataFrame

from app.driver.arrivals import BELOW_JOBS_DIR
from app.driver.failures import DriverError, Fenced
from app.driver.sinks.base import BatchRef, MayCommit, Sink, Written, os_error, run_without_output
from app.driver.sinks.columns import TableColumn, UnknownType, arrow_column, staged, table_columns
from app.driver.sinks.staging import parquet_rows, staging, write_parts
from app.model.jobgraph import JobVertex, OutputMode, SinkSpec

if TYPE_CHECKING:
    import pyarrow as pa

KEPT_BATCHES = 1000
"""How many batches of a query stay recorded. The newest alone would do to know a re-run; the others are for people."""

STAGE = "_slotwise_rows"
"""The temporary table that rows pass on their way into one with a key."""

_CHUNK_ROWS = 10_000
_STAGING_OPTIONS = {"compression": "none", "parquet.block.size": str(16 * 1024 * 1024)}

_Own = TypeVar("_Own", bound="DatabaseSink")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What `_slotwise_batches` says of a query: its newest batch, the newest epoch, the rows of the batch asked for."""

    batch_id: int
    epoch: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """A batch that is staged, ready to be loaded."""

    batch: BatchRef
    columns: tuple[TableColumn, ...]
    parts: tuple[Path, ...]
    rows: int

    @property
    def names(self) -> str:
        """The names of the columns, for a statement."""
        return ", ".join(quoted(column.name) for column in self.columns)

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


@dataclass
class DatabaseSink(Sink, ABC):
    """A table of a database. ``keys`` are empty when rows are appended; ``replace``: each batch is the whole table.

    Connections are those of Python's DB-API, which have a method ``execute`` of their own. Parameters are marked by %s.
    """

    KIND: ClassVar[str]
    TIME: ClassVar[tuple[str, str]]
    """The type of a time, and what says the time of now."""
    BINARY_AS_HEX: ClassVar[bool] = False
    """Whether binary columns are staged as text, \\x and hex digits."""

    vertex: str
    table: str
    keys: tuple[str, ...]
    replace: bool
    work_dir: Path

    @classmethod
    def of(cls: type[_Own], vertex: JobVertex, spec: SinkSpec, work_dir: Path) -> _Own:
        """The sink of ``vertex``.

        Raises:
            DriverError: the place of the database cannot be read.
        """
        options = dict(spec.options)
        keys = tuple(key.strip() for key in options["keys"].split(",")) if "keys" in options else ()
        sink = cls(
            vertex.name, options["table"].strip(), keys, spec.output_mode is OutputMode.COMPLETE, work_dir
        )
        sink.find(spec)
        return sink

    # -- the sink

    def prepare(self) -> None:
        with self.transaction() as db:
            # Looked for first: who may write to the tables need not be allowed to make some.
            if not self.columns_of(db, self.batches_name):
                self.make_batches(db)
            existing = self.columns_of(db, self.table_name)
            if existing and self.keys and set(self.keys) not in self.unique_columns(db):
                raise self.no_unique()

    def check(self, frame: DataFrame) -> None:
        self._checked_columns(frame)

    def check_records(self, next_batch: BatchRef) -> None:
        with self.transaction() as db:
            found = self._recorded(db, next_batch)
        if found is not None and (found.epoch > next_batch.epoch or found.batch_id > next_batch.batch_id):
            ours = f"batch {next_batch.batch_id}, as epoch {next_batch.epoch}"
            raise self.error(
                f"has batches of the query up to {found.batch_id} on record, by epoch {found.epoch}, and this job goes "
                f"on with {ours}, which would be refused, or taken for one that was written. Take another database, or "
                "replace the job that wrote there by a new version."
            )

    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        recorded = self.recorded(batch)
        if recorded is not None and _is_repeated(recorded, batch):
            run_without_output(frame)
            return Written(recorded.rows, repeated=True)
        columns = self._checked_columns(frame)
        try:
            with staging(self.work_dir / "staging") as directory:
                rows = staged(frame, columns, binary_as_hex=self.BINARY_AS_HEX)
                parts = write_parts(
                    rows, directory, "parquet", _STAGING_OPTIONS, vertex=self.vertex, where=BELOW_JOBS_DIR
                )
                load = Load(batch, columns, tuple(parts), sum(map(parquet_rows, parts)))
                earlier = self.load(load, may_commit)
        except OSError as error:
            raise os_error(error, f"Batch {batch.batch_id} cannot be staged", self.vertex) from error
        return Written(load.rows) if earlier is None else Written(earlier.rows, repeated=True)

    def _checked_columns(self, frame: DataFrame) -> tuple[TableColumn, ...]:
        try:
            columns = table_columns(frame)
        except UnknownType as unknown:
            raise self.error(f"cannot store {unknown}: cast it to a type of SQL's.") from None
        names = [column.name for column in columns]
        lowered = [name.lower() for name in names]
        twice = sorted({name for name in names if lowered.count(name.lower()) > 1})
        if twice:
            raise self.error(f"gets rows with two columns named {twice[0]}: name them apart.")
        absent = [key for key in self.keys if key not in names]
        if absent:
            raise self.error(
                f"has the keys {', '.join(self.keys)}, but the rows have no column {absent[0]}: "
                f"their columns are {', '.join(names)}."
            )
        nested = [column.name for column in columns if column.kind == "json" and column.name in self.keys]
        if nested:
            raise self.error(f"has the key {nested[0]}, which is a nested column and cannot be a key.")
        return columns

    # -- transactions

    def recorded(self, batch: BatchRef) -> Recorded | None:
        """What is recorded of the query, or None. Takes note of the batch's epoch if that is newer."""
        with self.transaction() as db:
            found = self._recorded(db, batch)
            if found is not None and _is_repeated(found, batch) and found.epoch < batch.epoch:
                # From here on the epoch of the earlier attempt is refused.
                self.run(
                    db,
                    f"UPDATE {self.batches_name} SET epoch = %s WHERE query_id = %s AND batch_id = %s AND epoch < %s",
                    (batch.epoch, batch.query_id, found.batch_id, batch.epoch),
                )
            return found

    def load(self, load: Load, may_commit: MayCommit) -> Recorded | None:
        """Write and record the batch in one transaction; what was recorded instead if it was there already."""
        with self.transaction() as db:
            # The record first: it makes another writer of this batch wait for the end of this transaction.
            inserted = self._record(db, load)
            found = self._recorded(db, load.batch, without=load.batch.batch_id if inserted else None)
            if found is not None and _is_repeated(found, load.batch):
                db.rollback()
                return found
            self._write_rows(db, load)
            may_commit()
        return None

    def _recorded(self, db: Any, batch: BatchRef, without: int | None = None) -> Recorded | None:
        newest, epoch, rows = self.run(
            db,
            f"SELECT max(batch_id), max(epoch), max(rows) FILTER (WHERE batch_id = %s) "
            f"FROM {self.batches_name} WHERE query_id = %s AND batch_id <> %s",
            (batch.batch_id, batch.query_id, -1 if without is None else without),
        ).fetchone()
        return None if newest is None else Recorded(newest, epoch, rows)

    def _record(self, db: Any, load: Load) -> bool:
        """Whether the batch was not on record before."""
        batch = load.batch
        inserted = self.run(
            db,
            f"INSERT INTO {self.batches_name} VALUES (%s, %s, %s, %s, {self.TIME[1]}) ON CONFLICT DO NOTHING",
            (batch.query_id, batch.batch_id, batch.epoch, load.rows),
        ).rowcount
        self.run(
            db,
            f"DELETE FROM {self.batches_name} WHERE query_id = %s AND batch_id <= %s",
            (batch.query_id, batch.batch_id - KEPT_BATCHES),
        )
        return bool(inserted == 1)

    def _write_rows(self, db: Any, load: Load) -> None:
        existing = self.columns_of(db, self.table_name)
        absent = [column.name for column in load.columns if existing and column.name not in existing]
        if absent:
            raise self.error(
                f"writes to the table {self.table}, which has no column {', '.join(absent)}: the table's columns "
                f"are {', '.join(existing)}, those of the rows {', '.join(each.name for each in load.columns)}."
            )
        if not existing:
            db.execute(f"CREATE TABLE {self.table_name} ({self.definition(load.columns)})")
        if self.replace:
            db.execute(f"DELETE FROM {self.table_name}")
        if not load.rows:
            return
        if not self.keys:
            self.copy(db, load, self.table_name)
            return
        stage, keys = self.stage(db, load), ", ".join(map(quoted, self.keys))
        rest = [quoted(column.name) for column in load.columns if column.name not in self.keys]
        action = (
            f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in rest)}" if rest else "NOTHING"
        )
        # WHERE true: without it SQLite takes ON for the beginning of a join.
        db.execute(
            f"INSERT INTO {self.table_name} ({load.names}) SELECT {load.names} FROM {stage} WHERE true "
            f"ON CONFLICT ({keys}) DO {action}"
        )

    def make_batches(self, db: Any) -> None:
        """Make the table of batches."""
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {self.batches_name} (query_id text NOT NULL, batch_id bigint NOT NULL, "
            f"epoch bigint NOT NULL, rows bigint NOT NULL, written_at {self.TIME[0]} NOT NULL, "
            f"PRIMARY KEY (query_id, batch_id))"
        )

    def definition(self, columns: Sequence[TableColumn]) -> str:
        """The columns of a table for these rows."""
        lines = [
            f"{quoted(column.name)} {self.type_of(column)}{' NOT NULL' if column.name in self.keys else ''}"
            for column in columns
        ]
        if self.keys:
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, self.keys))})")
        return ", ".join(lines)

    # -- sentences

    def error(self, rest: str) -> DriverError:
        """A final error; ``rest`` goes on after 'The <kind> sink <name> '."""
        return DriverError(f"The {self.KIND} sink {self.vertex} {rest}", vertex=self.vertex)

    def twice(self) -> DriverError:
        return self.error(
            f"gets two rows of the same key in one batch: the columns {', '.join(self.keys)} must tell the rows of a "
            f"batch apart."
        )

    def null_key(self) -> DriverError:
        return self.error(f"gets a row in which one of the key columns {', '.join(self.keys)} is null.")

    def no_unique(self) -> DriverError:
        return self.error(
            f"upserts into the existing table {self.table}, which has no primary key and no unique index on "
            f"{', '.join(self.keys)}."
        )

    # -- what differs

    @abstractmethod
    def find(self, spec: SinkSpec) -> None:
        """Take note of where the database is."""

    @property
    @abstractmethod
    def table_name(self) -> str:
        """The table in a statement."""

    @property
    @abstractmethod
    def batches_name(self) -> str:
        """The table of batches in a statement."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """A connection in a transaction, which is committed at the end. Errors come out as `DriverError`."""

    @abstractmethod
    def run(self, db: Any, statement: str, values: Sequence[object]) -> Any:
        """Execute ``statement`` with ``values`` for its %s; its cursor."""

    @abstractmethod
    def columns_of(self, db: Any, name: str) -> list[str]:
        """The columns of a table, by its name in statements; none if it is not there."""

    @abstractmethod
    def unique_columns(self, db: Any) -> Collection[set[str]]:
        """Sets of columns of the table, each unique."""

    @abstractmethod
    def type_of(self, column: TableColumn) -> str:
        """What a column becomes."""

    @abstractmethod
    def copy(self, db: Any, load: Load, name: str) -> None:
        """Write the rows into a table, by its name in statements."""

    @abstractmethod
    def stage(self, db: Any, load: Load) -> str:
        """Write the rows into a temporary table, in which no two have one key; its name in statements."""


def _is_repeated(recorded: Recorded, batch: BatchRef) -> bool:
    """Whether ``batch`` has been written. Batches are written one after another, so all up to the newest have been.

    Raises:
        Fenced: a newer epoch has written.
    """
    if recorded.epoch > batch.epoch:
        raise Fenced(
            f"batch {batch.batch_id} is of epoch {batch.epoch}, and epoch {recorded.epoch} has written since"
        )
    return batch.batch_id <= recorded.batch_id


def quoted(name: str) -> str:
    """``name`` as an identifier of SQL's."""
    return '"' + name.replace('"', '""') + '"'

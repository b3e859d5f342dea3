"""A table of a SQLite database file."""

# ruff: noqa: S608 - what is put into statements is names, quoted; values are parameters

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.driver.failures import DriverError
from app.driver.sinks.base import BatchRef, MayCommit
from app.driver.sinks.columns import Kind, TableColumn
from app.driver.sinks.database import (
    KEPT_BATCHES,
    Load,
    Recorded,
    TableSpec,
    check_table,
    is_repeated,
    quoted,
)
from app.model.jobgraph import SinkSpec
from app.model.sink_options import BATCH_TABLE

if TYPE_CHECKING:
    import pyarrow as pa

_BUSY_TIMEOUT_S = 30.0
_STAGE = 'temp."_slotwise_rows"'

_TRANSIENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_NOMEM,
    }
)

# TEXT keeps every digit of a decimal; the type DECIMAL would make a binary fraction of it. And not INTEGER: a key of
# exactly that type would be the number of the row, which SQLite makes up where it is null.
_TYPES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.SMALLINT: "SMALLINT",
    Kind.INTEGER: "INT",
    Kind.BIGINT: "BIGINT",
    Kind.FLOAT: "REAL",
    Kind.DOUBLE: "REAL",
    Kind.BINARY: "BLOB",
}


@dataclass(frozen=True)
class SqliteDatabase:
    """One table of the file ``path``. A connection lives for one call: opening costs less than 1 ms."""

    spec: TableSpec
    path: Path
    busy_timeout_s: float = _BUSY_TIMEOUT_S
    binary_as_hex: bool = False

    def prepare(self) -> None:
        with self._connection() as db, _transaction(db):
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {BATCH_TABLE} (query_id TEXT NOT NULL, batch_id INTEGER NOT NULL, "
                f"epoch INTEGER NOT NULL, rows INTEGER NOT NULL, written_at TEXT NOT NULL, "
                f"PRIMARY KEY (query_id, batch_id)) WITHOUT ROWID"
            )
            existing = self._existing(db)
            if existing and self.spec.keys:
                self._check_keys(db, existing)

    def recorded(self, batch: BatchRef) -> Recorded | None:
        with self._connection() as db:
            found = _recorded(db, batch)
            if found is not None and is_repeated(found, batch) and found.epoch < batch.epoch:
                # From here on the epoch of the earlier attempt is refused.
                with _transaction(db):
                    db.execute(
                        f"UPDATE {BATCH_TABLE} SET epoch = ? WHERE query_id = ? AND batch_id = ? AND epoch < ?",
                        (batch.epoch, batch.query_id, found.batch_id, batch.epoch),
                    )
            return found

    def load(self, load: Load, may_commit: MayCommit) -> Recorded | None:
        with self._connection() as db, _transaction(db):
            # Nobody else writes from here to the commit: what is recorded cannot change any more.
            found = _recorded(db, load.batch)
            if found is not None and is_repeated(found, load.batch):
                return found
            self._make_table(db, load.columns)
            if self.spec.replace:
                db.execute(f"DELETE FROM {quoted(self.spec.table)}")
            if self.spec.upsert and load.rows:
                self._upsert(db, load)
            else:
                self._insert(db, load, quoted(self.spec.table))
            _record(db, load)
            may_commit()
        return None

    # -- statements

    def _make_table(self, db: sqlite3.Connection, columns: Sequence[TableColumn]) -> None:
        existing = self._existing(db)
        if existing:
            check_table(self.spec, existing, columns)
        else:
            db.execute(f"CREATE TABLE {quoted(self.spec.table)} ({_definition(columns, self.spec.keys)})")

    def _insert(self, db: sqlite3.Connection, load: Load, table: str) -> None:
        names = ", ".join(quoted(column.name) for column in load.columns)
        marks = ", ".join("?" * len(load.columns))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        readers = [_READERS.get(column.kind, _as_they_are) for column in load.columns]
        for arrays in load.chunks():
            db.executemany(
                statement,
                zip(*(read(array) for read, array in zip(readers, arrays, strict=True)), strict=True),
            )

    def _upsert(self, db: sqlite3.Connection, load: Load) -> None:
        """By way of a temporary table with the same key, which refuses a second row of a key."""
        keys = ", ".join(quoted(key) for key in self.spec.keys)
        names = ", ".join(quoted(column.name) for column in load.columns)
        rest = [quoted(column.name) for column in load.columns if column.name not in self.spec.keys]
        action = (
            f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in rest)}" if rest else "NOTHING"
        )
        db.execute(f"CREATE TEMP TABLE {_STAGE[5:]} ({_definition(load.columns, self.spec.keys)})")
        self._insert(db, load, _STAGE)
        # WHERE true: without it SQLite takes ON for the beginning of a join.
        db.execute(
            f"INSERT INTO main.{quoted(self.spec.table)} ({names}) SELECT {names} FROM {_STAGE} WHERE true "
            f"ON CONFLICT ({keys}) DO {action}"
        )

    def _existing(self, db: sqlite3.Connection) -> list[str]:
        rows = db.execute("SELECT name FROM pragma_table_info(?)", (self.spec.table,))
        return [name for (name,) in rows]

    def _check_keys(self, db: sqlite3.Connection, existing: list[str]) -> None:
        absent = [key for key in self.spec.keys if key not in existing]
        if not absent:
            primary = db.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (self.spec.table,))
            unique = [{name for (name,) in primary}]
            indexes = db.execute(
                'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', (self.spec.table,)
            )
            for (index,) in indexes.fetchall():
                unique.append(
                    {name for (name,) in db.execute("SELECT name FROM pragma_index_info(?)", (index,))}
                )
            if set(self.spec.keys) in unique:
                return
        raise self.spec.options.error(
            f"upserts into the existing table {self.spec.table}, which has no primary key and no unique index on "
            f"{', '.join(self.spec.keys)}."
        )

    # -- errors

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(
                self.path, timeout=self.busy_timeout_s, isolation_level=None, check_same_thread=False
            )
            with contextlib.closing(db):
                db.execute("PRAGMA journal_mode = WAL")
                # The checkpoint is durable when it says that the batch is done, so the batch must be.
                db.execute("PRAGMA synchronous = FULL")
                yield db
        except sqlite3.Error as error:
            raise self._sentence(error) from error

    def _sentence(self, error: sqlite3.Error) -> DriverError:
        text = str(error)
        code = getattr(error, "sqlite_errorcode", 0)
        if isinstance(error, sqlite3.IntegrityError) and self.spec.keys and "_slotwise_rows" in text:
            keys = ", ".join(self.spec.keys)
            if code == sqlite3.SQLITE_CONSTRAINT_NOTNULL:
                return self.spec.options.error(f"gets a row in which one of the key columns {keys} is null.")
            return self.spec.options.error(
                f"gets two rows of the same key in one batch: the columns {keys} must tell the rows of a batch apart."
            )
        return DriverError(
            f"The sqlite sink {self.spec.vertex} cannot write to {self.path}: {text}.",
            vertex=self.spec.vertex,
            recoverable=(code & 0xFF) in _TRANSIENT,
        )


def open_sqlite(spec: TableSpec, sink: SinkSpec) -> SqliteDatabase:
    """The file of a sqlite sink.

    Raises:
        DriverError: there is no absolute path.
    """
    if not sink.path:
        raise spec.options.error("needs a path.")
    path = sink.path.removeprefix("sqlite://").removeprefix("file://")
    if not path.startswith("/"):
        raise spec.options.error(f"has the path {sink.path}, which must be the absolute path of a file.")
    return SqliteDatabase(spec, Path(path))


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    # IMMEDIATE: a transaction that reads first and writes later could be refused in between.
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _recorded(db: sqlite3.Connection, batch: BatchRef) -> Recorded | None:
    newest, epoch, rows = db.execute(
        f"SELECT max(batch_id), max(epoch), max(rows) FILTER (WHERE batch_id = ?) "
        f"FROM {BATCH_TABLE} WHERE query_id = ?",
        (batch.batch_id, batch.query_id),
    ).fetchone()
    return None if newest is None else Recorded(newest, epoch, rows)


def _record(db: sqlite3.Connection, load: Load) -> None:
    batch = load.batch
    db.execute(
        f"INSERT INTO {BATCH_TABLE} VALUES (?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%fZ', 'now'))",
        (batch.query_id, batch.batch_id, batch.epoch, load.rows),
    )
    db.execute(
        f"DELETE FROM {BATCH_TABLE} WHERE query_id = ? AND batch_id <= ?",
        (batch.query_id, batch.batch_id - KEPT_BATCHES),
    )


def _definition(columns: Sequence[TableColumn], keys: Sequence[str]) -> str:
    lines = [
        f"{quoted(column.name)} {_TYPES.get(column.kind, 'TEXT')}{' NOT NULL' if column.name in keys else ''}"
        for column in columns
    ]
    if keys:
        lines.append(f"PRIMARY KEY ({', '.join(quoted(key) for key in keys)})")
    return ", ".join(lines)


# -- values, a column at a time


def _as_they_are(array: pa.Array) -> list[Any]:
    return array.to_pylist()  # type: ignore[no-any-return]


def _as_text(array: pa.Array) -> list[Any]:
    import pyarrow as pa

    return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _decimals(array: pa.Array) -> list[Any]:
    # Not str(), which writes 1E-9.
    return [None if value is None else format(value, "f") for value in array.to_pylist()]


def _floats(array: pa.Array) -> list[Any]:
    # SQLite has no NaN and would make it a null; the text tells the two apart, and float() reads it.
    return [value if value is None or not math.isnan(value) else "NaN" for value in array.to_pylist()]


_READERS: dict[Kind, Callable[[pa.Array], list[Any]]] = {
    Kind.DECIMAL: _decimals,
    Kind.FLOAT: _floats,
    Kind.DOUBLE: _floats,
    Kind.DATE: _as_text,
    Kind.TIMESTAMP: _as_text,
    Kind.TIMESTAMP_NTZ: _as_text,
}

"""A table of a SQLite database file."""

# ruff: noqa: S608 - what is put into statements is names, quoted; values are parameters

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.driver.failures import DriverError
from app.driver.sinks.columns import TableColumn
from app.driver.sinks.database import STAGE, DatabaseSink, Load, quoted
from app.model.jobgraph import SinkSpec
from app.model.sink_formats import BATCH_TABLE

if TYPE_CHECKING:
    import pyarrow as pa

_TRANSIENT = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM,
)  # fmt: skip

_OPENED_ELSEWHERE_S = 0.005

# TEXT keeps every digit of a decimal; the type DECIMAL would make a binary fraction of it. And not INTEGER: a key of
# exactly that type would be the number of the row, which SQLite makes up where it is null.
_TYPES = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "int": "INT",
    "bigint": "BIGINT",
    "float": "REAL",
    "double": "REAL",
    "binary": "BLOB",
}


@dataclass
class SqliteSink(DatabaseSink):
    """One table of the file ``path``. A connection lives for one transaction: opening costs less than 1 ms."""

    KIND = "sqlite"
    TIME = ("text", "strftime('%Y-%m-%d %H:%M:%fZ', 'now')")

    path: Path = Path()
    busy_timeout_s: float = 30.0

    def find(self, spec: SinkSpec) -> None:
        self.path = Path(spec.path or "")

    @property
    def table_name(self) -> str:
        return f"main.{quoted(self.table)}"

    @property
    def batches_name(self) -> str:
        return f"main.{BATCH_TABLE}"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            # What is not committed goes with the connection.
            with contextlib.closing(self._begun()) as db:
                yield db
                db.commit()
        except sqlite3.Error as error:
            raise self._sentence(error) from error

    def _begun(self) -> sqlite3.Connection:
        """A connection that has begun to write.

        While a process of another user opens the file, SQLite calls it read-only: that process has just made the file's
        -shm, and gives it to the owner of the database only then. A file that is ours to write is tried again.
        """
        until_s = time.monotonic() + self.busy_timeout_s
        while True:
            db = sqlite3.connect(
                self.path, timeout=self.busy_timeout_s, isolation_level=None, check_same_thread=False
            )
            try:
                db.execute("PRAGMA journal_mode = WAL")
                # The checkpoint is durable when it says that the batch is done, so the batch must be.
                db.execute("PRAGMA synchronous = FULL")
                # A transaction that reads first and writes later could be refused in between.
                db.execute("BEGIN IMMEDIATE")
                return db
            except sqlite3.OperationalError as error:
                db.close()
                is_ours = os.access(self.path, os.W_OK)
                passes = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
                if not (passes and is_ours) or time.monotonic() >= until_s:
                    raise
                time.sleep(_OPENED_ELSEWHERE_S)
            except BaseException:
                db.close()
                raise

    def run(self, db: Any, statement: str, values: Sequence[object]) -> Any:
        return db.execute(statement.replace("%s", "?"), values)

    def columns_of(self, db: Any, name: str) -> list[str]:
        rows = db.execute(f"PRAGMA main.table_info({name.removeprefix('main.')})")
        return [row[1] for row in rows]

    def unique_columns(self, db: Any) -> Collection[set[str]]:
        primary = db.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (self.table,))
        indexes = db.execute(
            'SELECT i.name, c.name FROM pragma_index_list(?) i, pragma_index_info(i.name) c WHERE i."unique" AND NOT '
            "i.partial",
            (self.table,),
        )
        found: dict[str | None, set[str]] = {None: {name for (name,) in primary}}
        for index, name in indexes:
            found.setdefault(index, set()).add(name)
        return found.values()

    def type_of(self, column: TableColumn) -> str:
        return _TYPES.get(column.kind, "TEXT")

    def copy(self, db: Any, load: Load, name: str) -> None:
        marks = ", ".join("?" * len(load.columns))
        readers = [_READERS.get(column.kind.partition("(")[0], _as_they_are) for column in load.columns]
        for arrays in load.chunks():
            values = [read(array) for read, array in zip(readers, arrays, strict=True)]
            db.executemany(f"INSERT INTO {name} ({load.names}) VALUES ({marks})", zip(*values, strict=True))

    def stage(self, db: Any, load: Load) -> str:
        # With the same key, which refuses a second row of it.
        db.execute(f"CREATE TEMP TABLE {STAGE} ({self.definition(load.columns)})")
        self.copy(db, load, f"temp.{STAGE}")
        return f"temp.{STAGE}"

    def _sentence(self, error: sqlite3.Error) -> DriverError:
        text = str(error)
        code = getattr(error, "sqlite_errorcode", 0)
        if isinstance(error, sqlite3.IntegrityError) and self.keys and STAGE in text:
            return self.null_key() if code == sqlite3.SQLITE_CONSTRAINT_NOTNULL else self.twice()
        return DriverError(
            f"The sqlite sink {self.vertex} cannot write to {self.path}: {text}.",
            vertex=self.vertex,
            recoverable=(code & 0xFF) in _TRANSIENT,
        )


SINK = SqliteSink


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


_READERS: dict[str, Callable[[pa.Array], list[Any]]] = {
    "decimal": _decimals,
    "float": _floats,
    "double": _floats,
    "date": _as_text,
    "timestamp": _as_text,
    "timestamp_ntz": _as_text,
}

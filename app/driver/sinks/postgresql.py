"""A table of a PostgreSQL database."""

# ruff: noqa: S608 - what is put into statements is names, quoted; values are parameters

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.driver.failures import DriverError, one_line
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
from app.model.sink_options import BATCH_TABLE

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

_CONNECT_TIMEOUT_S = 10
_LOCK_TIMEOUT_MS = 30_000
# A writer that was stopped within its transaction does not hold up the next one for longer.
_IDLE_TIMEOUT_MS = 60_000

_STAGE = "_slotwise_rows"

_TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.SMALLINT: "smallint",
    Kind.INTEGER: "integer",
    Kind.BIGINT: "bigint",
    Kind.FLOAT: "real",
    Kind.DOUBLE: "double precision",
    Kind.TEXT: "text",
    Kind.BINARY: "bytea",
    Kind.DATE: "date",
    Kind.TIME: "time",
    Kind.TIMESTAMP: "timestamptz",
    Kind.TIMESTAMP_NTZ: "timestamp",
    Kind.JSON: "jsonb",
}

# Errors of a connection attempt carry no code. These do not go away by trying again.
_FINAL_CONNECT = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")


@dataclass
class PostgresDatabase:
    """One table of the database at ``url``, by one connection that is kept from batch to batch.

    ``place`` names the database in sentences, without a password.
    """

    spec: TableSpec
    url: str = field(repr=False)
    place: str
    binary_as_hex: bool = True
    _kept: psycopg.Connection[Any] | None = field(default=None, init=False, repr=False)
    _staged: tuple[TableColumn, ...] = field(default=(), init=False)

    def prepare(self) -> None:
        import psycopg

        self._close()
        for attempt in (1, 2):
            with self._errors():
                try:
                    self._prepare()
                    return
                except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable):
                    # Another sink makes the table at this moment: IF NOT EXISTS does not see it yet.
                    if attempt == 2:
                        raise

    def recorded(self, batch: BatchRef) -> Recorded | None:
        with self._errors():
            try:
                return self._look(batch)
            except self._connection_lost():
                # The server was restarted between two batches, say. Nothing has happened yet: a new connection.
                self._close()
                return self._look(batch)

    def load(self, load: Load, may_commit: MayCommit) -> Recorded | None:
        with self._errors():
            db = self._connection()
            with contextlib.ExitStack() as undo:
                undo.callback(db.rollback)
                # The record first: it makes another writer of this batch wait for the end of this transaction.
                inserted = self._record(db, load)
                found = self._recorded(db, load.batch, without=load.batch.batch_id if inserted else None)
                if found is not None and is_repeated(found, load.batch):
                    return found
                self._write_rows(db, load)
                may_commit()
                db.commit()
                undo.pop_all()
        return None

    # -- statements

    def _prepare(self) -> None:
        db = self._connection()
        # Looked for first: who may write to the tables need not be allowed to make some.
        if self._columns_of(db, self._batches) == []:
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {self._batches} (query_id text NOT NULL, batch_id bigint NOT NULL, "
                f"epoch bigint NOT NULL, rows bigint NOT NULL, written_at timestamptz NOT NULL, "
                f"PRIMARY KEY (query_id, batch_id))"
            )
        existing = self._columns_of(db, self._table)
        absent = [key for key in self.spec.keys if existing and key not in existing]
        if absent or (existing and self.spec.keys and not self._has_unique(db)):
            raise self._no_unique()
        db.commit()

    def _look(self, batch: BatchRef) -> Recorded | None:
        db = self._connection()
        try:
            found = self._recorded(db, batch)
            if found is not None and is_repeated(found, batch) and found.epoch < batch.epoch:
                # From here on the epoch of the earlier attempt is refused.
                db.execute(
                    f"UPDATE {self._batches} SET epoch = %s WHERE query_id = %s AND batch_id = %s AND epoch < %s",
                    (batch.epoch, batch.query_id, found.batch_id, batch.epoch),
                )
                db.commit()
            return found
        finally:
            if not db.closed:
                db.rollback()

    def _recorded(
        self, db: psycopg.Connection[Any], batch: BatchRef, without: int | None = None
    ) -> Recorded | None:
        row = db.execute(
            f"SELECT max(batch_id), max(epoch), max(rows) FILTER (WHERE batch_id = %s) "
            f"FROM {self._batches} WHERE query_id = %s AND batch_id IS DISTINCT FROM %s",
            (batch.batch_id, batch.query_id, without),
        ).fetchone()
        return None if row is None or row[0] is None else Recorded(*row)

    def _record(self, db: psycopg.Connection[Any], load: Load) -> bool:
        batch = load.batch
        inserted = db.execute(
            f"INSERT INTO {self._batches} VALUES (%s, %s, %s, %s, now()) ON CONFLICT DO NOTHING",
            (batch.query_id, batch.batch_id, batch.epoch, load.rows),
        ).rowcount
        db.execute(
            f"DELETE FROM {self._batches} WHERE query_id = %s AND batch_id <= %s",
            (batch.query_id, batch.batch_id - KEPT_BATCHES),
        )
        return inserted == 1

    def _write_rows(self, db: psycopg.Connection[Any], load: Load) -> None:
        existing = self._columns_of(db, self._table)
        if existing:
            check_table(self.spec, existing, load.columns)
        else:
            db.execute(f"CREATE TABLE {self._table} ({_definition(load.columns, self.spec.keys)})")
        if self.spec.replace:
            db.execute(f"DELETE FROM {self._table}")
        if not load.rows:
            return
        if self.spec.upsert:
            self._upsert(db, load)
        else:
            self._copy(db, load, self._table)

    def _upsert(self, db: psycopg.Connection[Any], load: Load) -> None:
        names = ", ".join(quoted(column.name) for column in load.columns)
        keys = ", ".join(quoted(key) for key in self.spec.keys)
        rest = [quoted(column.name) for column in load.columns if column.name not in self.spec.keys]
        action = (
            f"UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in rest)}" if rest else "NOTHING"
        )
        if self._staged != load.columns:
            # Made once per connection, with the types of the table; emptied at each commit.
            db.execute(f"DROP TABLE IF EXISTS pg_temp.{_STAGE}")
            db.execute(
                f"CREATE TEMP TABLE {_STAGE} ON COMMIT DELETE ROWS AS SELECT {names} FROM {self._table} "
                f"WITH NO DATA"
            )
        self._copy(db, load, f"pg_temp.{_STAGE}")
        if not rest:
            self._refuse_twice(db, keys)
        db.execute(
            f"INSERT INTO {self._table} ({names}) SELECT {names} FROM pg_temp.{_STAGE} "
            f"ON CONFLICT ({keys}) DO {action}"
        )
        self._staged = load.columns

    def _refuse_twice(self, db: psycopg.Connection[Any], keys: str) -> None:
        # DO UPDATE refuses a second row of a key by itself, DO NOTHING does not.
        found = db.execute(f"SELECT 1 FROM pg_temp.{_STAGE} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1")
        if found.fetchone() is not None:
            raise self._twice()

    def _copy(self, db: psycopg.Connection[Any], load: Load, table: str) -> None:
        names = ", ".join(quoted(column.name) for column in load.columns)
        with db.cursor() as cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
            for arrays in load.chunks():
                copy.write(copy_lines(arrays))

    def _columns_of(self, db: psycopg.Connection[Any], table: str) -> list[str]:
        rows = db.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum",
            (table,),
        )
        return [name for (name,) in rows]

    def _has_unique(self, db: psycopg.Connection[Any]) -> bool:
        rows = db.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) WHERE i.indrelid = to_regclass(%s) AND i.indisunique "
            "AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
            (self._table,),
        )
        return any(set(names) == set(self.spec.keys) for (names,) in rows)

    @property
    def _table(self) -> str:
        return ".".join(quoted(part) for part in self.spec.table.split(".", 1))

    @property
    def _batches(self) -> str:
        schema, dot, _ = self.spec.table.rpartition(".")
        return quoted(schema) + "." + BATCH_TABLE if dot else BATCH_TABLE

    # -- the connection and its errors

    def _connection(self) -> psycopg.Connection[Any]:
        import psycopg

        if self._kept is None or self._kept.closed:
            options = (
                f"-c lock_timeout={_LOCK_TIMEOUT_MS} -c idle_in_transaction_session_timeout={_IDLE_TIMEOUT_MS} "
                f"-c timezone=UTC -c datestyle=ISO -c client_min_messages=warning -c bytea_output=hex"
            )
            given = psycopg.conninfo.conninfo_to_dict(self.url)
            self._kept = psycopg.connect(
                self.url,
                connect_timeout=int(given.get("connect_timeout") or _CONNECT_TIMEOUT_S),
                options=" ".join(filter(None, (str(given.get("options") or ""), options))),
                client_encoding="utf8",
                application_name=str(given.get("application_name") or "slotwise"),
            )
            # A sink has no end of its own: the connection ends with it.
            weakref.finalize(self, _close_quietly, self._kept)
            self._staged = ()
        return self._kept

    def _close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            _close_quietly(kept)

    @staticmethod
    def _connection_lost() -> type[Exception]:
        import psycopg

        return psycopg.OperationalError

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            self._close()
            raise self._sentence(error) from error
        except BaseException:
            # In the middle of a transaction or not: the next batch begins with a connection of its own.
            self._close()
            raise

    def _sentence(self, error: psycopg.Error) -> DriverError:
        from psycopg import errors

        if isinstance(error, errors.CardinalityViolation):
            return self._twice()
        if isinstance(error, errors.UniqueViolation) and self.spec.upsert and self.spec.replace:
            return self._twice()
        if isinstance(error, errors.InvalidColumnReference):
            return self._no_unique()
        if isinstance(error, errors.NotNullViolation) and error.diag.column_name in self.spec.keys:
            keys = ", ".join(self.spec.keys)
            return self.spec.options.error(f"gets a row in which one of the key columns {keys} is null.")
        text = one_line(error.diag.message_primary or str(error), 400).rstrip(".")
        transient = isinstance(error, errors.OperationalError) and not any(
            phrase in text for phrase in _FINAL_CONNECT
        )
        return DriverError(
            f"The postgresql sink {self.spec.vertex} cannot write to {self.place}: {text}.",
            vertex=self.spec.vertex,
            recoverable=transient,
        )

    def _twice(self) -> DriverError:
        return self.spec.options.error(
            f"gets two rows of the same key in one batch: the columns {', '.join(self.spec.keys)} must tell the rows "
            f"of a batch apart."
        )

    def _no_unique(self) -> DriverError:
        return self.spec.options.error(
            f"upserts into the existing table {self.spec.table}, which has no primary key and no unique index on "
            f"{', '.join(self.spec.keys)}."
        )


def open_postgresql(spec: TableSpec) -> PostgresDatabase:
    """The database of a postgresql sink.

    Raises:
        DriverError: the URL cannot be read.
    """
    import psycopg

    url = spec.options.required("url")
    try:
        # What cannot be read is not quoted in the sentence: a password may be in it.
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise spec.options.error(
            "has an url that cannot be read: postgresql://user:password@host:port/database is expected."
        ) from None
    host, port = parts.get("host") or "localhost", parts.get("port") or 5432
    return PostgresDatabase(spec, url, f"{host}:{port}/{parts.get('dbname') or parts.get('user') or ''}")


def _close_quietly(connection: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(Exception):
        connection.close()


def _definition(columns: Sequence[TableColumn], keys: Sequence[str]) -> str:
    lines = [
        f"{quoted(column.name)} "
        + (
            f"numeric({column.precision},{column.scale})"
            if column.kind is Kind.DECIMAL
            else _TYPES[column.kind]
        )
        for column in columns
    ]
    if keys:
        lines.append(f"PRIMARY KEY ({', '.join(quoted(key) for key in keys)})")
    return ", ".join(lines)


def copy_lines(arrays: Sequence[pa.Array]) -> memoryview:
    """Columns as lines of COPY's text format, whole columns at a time."""
    import pyarrow as pa
    from pyarrow import compute

    text = pa.large_string()
    cells = [_cells(array) for array in arrays]
    lines = compute.binary_join_element_wise(*cells, pa.scalar("\t", text))
    lines = compute.binary_join_element_wise(lines, pa.scalar("", text), pa.scalar("\n", text))
    # The lines lie one behind the other in the array's buffer of values.
    _, offsets, values = lines.buffers()
    size = memoryview(offsets).cast("q")[lines.offset + len(lines)]
    return memoryview(values)[:size]


def _cells(array: pa.Array) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute

    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    cells = array.cast(pa.large_string())
    if is_text:
        for mark, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
            cells = compute.replace_substring(cells, mark, escaped)
    return cells.fill_null("\\N")

"""A table of a PostgreSQL database."""

# ruff: noqa: S608 - what is put into statements is names, quoted; values are parameters

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from app.driver.failures import DriverError, one_line
from app.driver.sinks.columns import TableColumn
from app.driver.sinks.database import STAGE, DatabaseSink, Load, quoted
from app.model.jobgraph import SinkSpec
from app.model.sink_formats import BATCH_TABLE

if TYPE_CHECKING:
    import pyarrow as pa

_CONNECT_TIMEOUT_S = 10
_LOCK_TIMEOUT_MS = 30_000
# A writer that was stopped within its transaction does not hold up the next one for longer.
_IDLE_TIMEOUT_MS = 60_000

_TYPES = {
    "boolean": "boolean",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "text": "text",
    "binary": "bytea",
    "date": "date",
    "time": "time",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "json": "jsonb",
}

# Errors of a connection attempt carry no code. These do not go away by trying again.
_FINAL_CONNECT = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")


@dataclass
class PostgresSink(DatabaseSink):
    """One table of the database at ``url``, by one connection that is kept from batch to batch.

    ``place`` names the database in sentences, without a password.
    """

    KIND = "postgresql"
    TIME = ("timestamptz", "now()")
    BINARY_AS_HEX = True

    url: str = field(default="", repr=False)
    place: str = ""
    _kept: psycopg.Connection[Any] | None = field(default=None, init=False, repr=False)
    _staged: tuple[TableColumn, ...] = field(default=(), init=False)

    def find(self, spec: SinkSpec) -> None:
        self.url = dict(spec.options)["url"].strip()
        try:
            # What cannot be read is not quoted in the sentence: a password may be in it.
            parts = psycopg.conninfo.conninfo_to_dict(self.url)
        except psycopg.Error:
            raise self.error(
                "has an url that cannot be read: postgresql://user:password@host:port/database is expected."
            ) from None
        host, port = parts.get("host") or "localhost", parts.get("port") or 5432
        self.place = f"{host}:{port}/{parts.get('dbname') or parts.get('user') or ''}"

    @property
    def table_name(self) -> str:
        return ".".join(quoted(part) for part in self.table.split(".", 1))

    @property
    def batches_name(self) -> str:
        schema, dot, _ = self.table.rpartition(".")
        return quoted(schema) + "." + BATCH_TABLE if dot else BATCH_TABLE

    @contextlib.contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            db = self._connection()
            yield db
            db.commit()
        except BaseException as error:
            # In the middle of a transaction or not: the next one begins with a connection of its own.
            self._close()
            if isinstance(error, psycopg.Error):
                raise self._sentence(error) from error
            raise

    def run(self, db: Any, statement: str, values: Sequence[object]) -> Any:
        return db.execute(statement, values)

    def make_batches(self, db: Any) -> None:
        # IF NOT EXISTS does not see a table that another sink makes at this moment.
        db.execute(f"SELECT pg_advisory_xact_lock(hashtext('{BATCH_TABLE}'))")
        super().make_batches(db)

    def columns_of(self, db: Any, name: str) -> list[str]:
        rows = db.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum",
            (name,),
        )
        return [column for (column,) in rows]

    def unique_columns(self, db: Any) -> Collection[set[str]]:
        rows = db.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) WHERE i.indrelid = to_regclass(%s) AND i.indisunique "
            "AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
            (self.table_name,),
        )
        return [set(names) for (names,) in rows]

    def type_of(self, column: TableColumn) -> str:
        # numeric(p,s), as decimal(p,s).
        return column.kind.replace("decimal", "numeric") if "decimal" in column.kind else _TYPES[column.kind]

    def copy(self, db: Any, load: Load, name: str) -> None:
        with db.cursor() as cursor, cursor.copy(f"COPY {name} ({load.names}) FROM STDIN") as copy:
            for arrays in load.chunks():
                copy.write(copy_lines(arrays))

    def stage(self, db: Any, load: Load) -> str:
        stage = f"pg_temp.{STAGE}"
        if self._staged != load.columns:
            # Made once per connection, with the types of the table; emptied at each commit.
            db.execute(f"DROP TABLE IF EXISTS {stage}")
            db.execute(
                f"CREATE TEMP TABLE {STAGE} ON COMMIT DELETE ROWS AS SELECT {load.names} FROM {self.table_name} "
                f"WITH NO DATA"
            )
            self._staged = load.columns
        self.copy(db, load, stage)
        if len(self.keys) == len(load.columns):
            # DO UPDATE refuses a second row of a key by itself, DO NOTHING does not.
            keys = ", ".join(map(quoted, self.keys))
            found = db.execute(f"SELECT 1 FROM {stage} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1")
            if found.fetchone() is not None:
                raise self.twice()
        return stage

    # -- the connection and its errors

    def _connection(self) -> psycopg.Connection[Any]:
        if self._kept is not None:
            # The server may have been restarted between two batches.
            with contextlib.suppress(psycopg.Error):
                self._kept.execute("SELECT 1")
                return self._kept
            self._close()
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
        return self._kept

    def _close(self) -> None:
        kept, self._kept, self._staged = self._kept, None, ()
        if kept is not None:
            _close_quietly(kept)

    def _sentence(self, error: psycopg.Error) -> DriverError:
        if isinstance(error, errors.CardinalityViolation):
            return self.twice()
        if isinstance(error, errors.UniqueViolation) and self.keys and self.replace:
            return self.twice()
        if isinstance(error, errors.InvalidColumnReference):
            return self.no_unique()
        if isinstance(error, errors.NotNullViolation) and error.diag.column_name in self.keys:
            return self.null_key()
        text = one_line(error.diag.message_primary or str(error), 400).rstrip(".")
        transient = isinstance(error, errors.OperationalError) and not any(
            phrase in text for phrase in _FINAL_CONNECT
        )
        return DriverError(
            f"The postgresql sink {self.vertex} cannot write to {self.place}: {text}.",
            vertex=self.vertex,
            recoverable=transient,
        )


SINK = PostgresSink


def _close_quietly(connection: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(Exception):
        connection.close()


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

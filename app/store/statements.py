"""SQL texts for the writer: statements that take many rows at once.

One statement for all rows of a kind, whatever number of units of work they come from, costs one call into the
database. That matters twice: for the CPU per row, and because a thread in such a call gives up the interpreter and
has to win it back from a busy event loop each time.

Texts are made per number of rows and kept, so the numbers are limited to powers of two.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import CursorResult, Table, Text, bindparam, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from app.store import tables

ROWS_MAX = 64
EVENTS_LOCK: Final = (
    f"pg_advisory_xact_lock({0x510F_7160})"  # any number that nobody else locks on this database
)
Row = tuple[Any, ...]


@dataclass(slots=True)
class Statement:
    """A statement around a list of rows: ``before`` (row), (row), ... ``after``.

    ``row`` is the text of one row with ``?`` for each value. ``columns``: those that `insert` fills.
    """

    before: str
    row: str
    after: str = ""
    columns: tuple[str, ...] = ()
    _texts: dict[tuple[str, int], str] = field(default_factory=dict)

    def text(self, placeholder: str, count: int) -> str:
        known = self._texts.get((placeholder, count))
        if known is None:
            rows = ", ".join([self.row] * count)
            known = f"{self.before}{rows}{self.after}".replace("?", placeholder)
            self._texts[placeholder, count] = known
        return known


def chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """``rows`` in order, in parts whose lengths are powers of two."""
    start, left = 0, len(rows)
    while left:
        size = min(ROWS_MAX, 1 << (left.bit_length() - 1))
        yield rows[start : start + size]
        start += size
        left -= size


def run(connection: Connection, statement: Statement, rows: Sequence[Row]) -> int:
    """Run ``statement`` for ``rows``, in order, and return the number of rows that the database touched."""
    placeholder = "?" if connection.dialect.name == "sqlite" else "%s"
    touched = 0
    for part in chunks(rows):
        prepared = statement.text(placeholder, len(part))
        touched += execute(connection, prepared, tuple(chain.from_iterable(part)))[0]
    return touched


def insert(connection: Connection, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> int:
    """As `run`, of rows whose values go by the names of the columns, of which there are several."""
    values_of = itemgetter(*statement.columns)
    return run(connection, statement, [values_of(row) for row in rows])


def fetch(connection: Connection, statement: Statement, rows: Sequence[Row], extra: Row = ()) -> list[Any]:
    """Run a query for ``rows`` and return what it found. ``extra``: values of the text before the rows."""
    placeholder = "?" if connection.dialect.name == "sqlite" else "%s"
    found: list[Any] = []
    for part in chunks(rows):
        prepared = statement.text(placeholder, len(part))
        found.extend(execute(connection, prepared, (*extra, *chain.from_iterable(part)))[1])
    return found


def execute(connection: Connection, statement: str, parameters: Row = ()) -> tuple[int, list[Any]]:
    """Run ``statement`` in the transaction of ``connection``: how many rows it touched, and those that it found.

    By a cursor of the database's own driver: what SQLAlchemy does around a text that is ready (contexts, events,
    results) takes longer than SQLite takes to run it. The errors are SQLAlchemy's nevertheless; but a connection that
    is lost is not invalidated: that is for who owns it.

    Raises:
        DBAPIError: as from ``Connection.exec_driver_sql``.
    """
    dialect: Any = connection.dialect
    driver = connection.connection.dbapi_connection
    assert driver is not None
    cursor: Any = driver.cursor()
    try:
        cursor.execute(statement, parameters)
        # SQLite looks for most of the rows only when they are asked for, so this fails as much as the other.
        return cursor.rowcount, cursor.fetchall() if cursor.description else []
    except dialect.loaded_dbapi.Error as error:
        lost = dialect.is_disconnect(error, driver, cursor)
        base = dialect.loaded_dbapi.Error
        raise DBAPIError.instance(
            statement, parameters, error, base, connection_invalidated=lost, dialect=dialect
        ) from error
    finally:
        cursor.close()


CLOCK_MS = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
}
"""The database's clock, in milliseconds: control planes on several machines agree on this one."""


def sql(connection: Connection, statement: str, **values: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run a statement for which speed does not matter. ``{clock}`` in it is the database's clock, and ``:name`` one of
    ``values``, which may be a list of texts after IN."""
    prepared = text(statement.replace("{clock}", CLOCK_MS[connection.dialect.name]))
    lists = [
        bindparam(name, type_=Text, expanding=True) for name, one in values.items() if isinstance(one, list)
    ]
    return connection.execute(prepared.bindparams(*lists), values)


def _insert(table: Table, conflict: str = "") -> Statement:
    columns = tuple(table.columns.keys())
    names = ", ".join(f'"{column}"' for column in columns)
    row = f"({', '.join('?' * len(columns))})"
    return Statement(f"INSERT INTO {table.name} ({names}) VALUES ", row, conflict, columns)


def _upsert(table: Table) -> Statement:
    """Insert, or update every column but those of the key."""
    key, columns = table.primary_key.columns.keys(), table.columns.keys()
    changed = ", ".join(f'"{column}" = excluded."{column}"' for column in columns if column not in key)
    return _insert(table, f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}")


INSERT_JOB = _insert(tables.jobs)
INSERT_STATE = _insert(tables.job_states)
INSERT_LEASE = {
    dialect: Statement(
        "INSERT INTO leases (job_id, owner, epoch, expires_ms) VALUES ", f"(?, ?, ?, {clock} + ?)"
    )
    for dialect, clock in CLOCK_MS.items()
}


def _update_state(more: str = "", values: str = "") -> Statement:
    # The rows of VALUES are named column1, column2 ... by both databases. PostgreSQL needs to be told the types of
    # numbers.
    return Statement(
        "UPDATE job_states SET seq = v.column3, unit_token = v.column4, status = v.column5, state = v.column6"
        f"{more} FROM (VALUES ",
        f"(?, CAST(? AS BIGINT), CAST(? AS BIGINT), ?, ?, ?{values})",
        ") AS v WHERE job_states.job_id = v.column1 AND job_states.seq = v.column2",
    )


UPDATE_STATE = _update_state()
UPDATE_LAST_STATE = _update_state(", ended_ms = v.column7", ", CAST(? AS BIGINT)")
"""Of a job that ends. Apart, because SQLite rewrites the entry of an index whose columns or condition an UPDATE names,
even with the same values."""

INSERT_REQUIREMENTS = _insert(tables.requirements)
INSERT_SCALING_POLICY = _insert(tables.scaling_policies)
# A key may be written without a state, whose token would tell that the unit is stored: after a commit whose outcome
# is not known the same row is written again. Another answer under the same key touches no row.
INSERT_IDEMPOTENCY = _insert(
    tables.idempotency,
    " ON CONFLICT (job_id, key) DO UPDATE SET created_ms = excluded.created_ms"
    " WHERE idempotency.request_hash = excluded.request_hash AND idempotency.version = excluded.version"
    " AND idempotency.changed = excluded.changed",
)
UPSERT_RESCALE = _upsert(tables.rescales)
UPSERT_ATTEMPT = _upsert(tables.attempts)
ACKNOWLEDGE = Statement(
    "UPDATE attempts SET acknowledged = v.column3 FROM (VALUES ",
    "(?, CAST(? AS BIGINT), CAST(? AS BIGINT))",
    ") AS v WHERE attempts.job_id = v.column1 AND attempts.attempt = v.column2",
)
DESCRIBE_DRIVER = Statement(
    "UPDATE attempts SET host = v.column3, spark_version = v.column4, ui_url = v.column5 FROM (VALUES ",
    "(?, CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT))",
    ") AS v WHERE attempts.job_id = v.column1 AND attempts.attempt = v.column2",
)
INSERT_ARTIFACT = _insert(tables.artifacts)
INSERT_SUBMISSION_KEY = _insert(tables.submission_keys, " ON CONFLICT (author, key) DO NOTHING")

# FOR SHARE: until this transaction ends no owner can take over the lease; if one just did, this waits for
# him and then sees his epoch. SQLite has one writer at a time, so the read alone is enough there.
FENCE = {
    "sqlite": Statement("SELECT job_id, epoch FROM leases WHERE owner = ? AND job_id IN (", "?", ")"),
    "postgresql": Statement(
        "SELECT job_id, epoch FROM leases WHERE owner = ? AND job_id IN (", "?", ") ORDER BY job_id FOR SHARE"
    ),
}
STATE_TOKENS = Statement("SELECT job_id, seq, unit_token FROM job_states WHERE job_id IN (", "?", ")")


_DELETE_JOB = Statement("DELETE FROM jobs WHERE job_id IN (", "?", ")")


def write_and_take_back(connection: Connection) -> None:
    """Write a row and remove it in one transaction, so that it is never visible. The pages are written."""
    job_id = secrets.token_hex(16)
    probe = {"job_id": job_id, "name": "probe", "type": "STREAMING", "document": "{}", "options": "{}"}
    insert(connection, INSERT_JOB, [{**probe, "submitted_ms": 0, "submitted_by": None}])
    run(connection, _DELETE_JOB, [(job_id,)])

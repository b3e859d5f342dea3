"""Connections to SQLite and PostgreSQL, and sentences for their errors.

Only this module, `app.store.schema` and `app.store.statements` distinguish the two databases.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from app.model.masking import masked_text
from app.store.errors import ConstraintViolated, StoreError, StoreUnavailable
from app.store.statements import EVENTS_LOCK, execute

BUSY_TIMEOUT_MS = 10_000
"""How long a statement waits for a lock. Only one thread of a server writes, but a backup or a shell may too."""

_STATEMENTS_CACHED = 512
_DISCONNECT_TIMEOUT_MS = 10_000


class ConnectionLost(StoreUnavailable):
    """The connection is gone. What was being committed may be durable or not."""


class Transient(StoreUnavailable):
    """The transaction was refused for no fault of its own (deadlock, serialisation). It may be tried again."""


@dataclass(frozen=True, slots=True)
class Database:
    """A database by its URL. ``path`` is the file, for SQLite."""

    url: URL
    dialect: str
    path: Path | None

    def __str__(self) -> str:
        return str(self.path) if self.path else shown_url(self.url)


def shown_url(url: URL) -> str:
    """``url`` without its passwords, wherever in it they are."""
    return masked_text(url.render_as_string(hide_password=True))


def parse_url(text: str) -> Database:
    """``sqlite:////data/slotwise.db`` or ``postgresql://user:password@host/database``.

    Raises:
        StoreError: it is neither, with a sentence that does not show a password.
    """
    try:
        url = make_url(text)
    except ArgumentError:
        raise StoreError(
            "The database URL cannot be read: sqlite:////path or postgresql://... is expected."
        ) from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
            raise StoreError(
                "The SQLite database must be a file: sqlite:////path/to/slotwise.db is expected."
            )
        path = Path(url.database)
        return Database(url.set(drivername="sqlite+pysqlite"), "sqlite", path)
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return Database(url.set(drivername="postgresql+psycopg"), "postgresql", None)
    raise StoreError(f"The database {url.drivername!r} is not supported: sqlite or postgresql is expected.")


def create(database: Database, *, write: bool, pool_size: int, durable: bool = True) -> Engine:
    """An engine whose transactions are what they say.

    ``write``: every transaction may write and, on SQLite, takes the write lock when it begins. Otherwise every
    transaction is read-only and sees one snapshot. ``durable`` false gives up on power loss (tests, simulations).
    """
    if database.dialect == "sqlite":
        return _create_sqlite(database, write, pool_size, durable)
    return _create_postgresql(database, write, pool_size, durable)


def _create_sqlite(database: Database, write: bool, pool_size: int, durable: bool) -> Engine:
    engine = create_engine(
        database.url,
        poolclass=QueuePool,
        # They are documents with passwords, and errors are logged.
        hide_parameters=True,
        pool_size=pool_size,
        max_overflow=0,
        connect_args={
            "timeout": BUSY_TIMEOUT_MS / 1000,
            "cached_statements": _STATEMENTS_CACHED,
            "check_same_thread": False,
            # The sqlite3 module would begin transactions itself, late and deferred: a reader that turns into a
            # writer then fails at once when another writer was there. So it begins none, and _begin does.
            "isolation_level": None,
        },
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        try:
            # WAL: readers do not wait for the writer. FULL: a commit is on the disk when it returns; in WAL mode
            # NORMAL would not be, and a PUT must survive a power failure once it is answered.
            if write:
                cursor.execute("PRAGMA journal_mode = WAL")
            else:
                cursor.execute("PRAGMA query_only = ON")
            cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA temp_store = MEMORY")
            cursor.execute("PRAGMA cache_size = -16384")
            # 16 MiB. Most pages are changed again by the next commits, and are copied to the database once.
            cursor.execute("PRAGMA wal_autocheckpoint = 4000")
        finally:
            cursor.close()

    begin = "BEGIN IMMEDIATE" if write else "BEGIN"

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        execute(connection, begin)

    return engine


def _create_postgresql(database: Database, write: bool, pool_size: int, durable: bool) -> Engine:
    settings = {
        "default_transaction_read_only": "off" if write else "on",
        "synchronous_commit": "on" if durable else "off",
        "lock_timeout": str(BUSY_TIMEOUT_MS),
        # Ends the transaction of a control plane that hangs, so that its locks are released.
        "idle_in_transaction_session_timeout": "30000",
    }
    return create_engine(
        database.url,
        pool_size=pool_size,
        hide_parameters=True,
        max_overflow=0,
        pool_pre_ping=not write,
        isolation_level="READ COMMITTED" if write else "REPEATABLE READ",
        connect_args={
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
            "connect_timeout": 5,
            # A peer that vanished without a word is noticed in this time, not in hours.
            "tcp_user_timeout": _DISCONNECT_TIMEOUT_MS,
            "application_name": "slotwise",
        },
    )


# By how the names of SQLite's errors, or the codes of PostgreSQL's, begin; the longer ones first.
_SENTENCES: Final = {
    (
        "SQLITE_FULL",
    ): "The disk that holds the database {} is full: nothing can be recorded until space is freed.",
    (
        "SQLITE_READONLY",
    ): "The database {} cannot be written: it, its directory or its file system is read-only.",
    (
        "SQLITE_BUSY",
        "SQLITE_LOCKED",
    ): "The database {} is locked by another process that did not let go in time.",
    ("SQLITE_CANTOPEN", "SQLITE_PERM"): (
        "The database {} cannot be opened: check that its directory exists and may be written."
    ),
    ("SQLITE_NOTADB",): "The file {} is not a SQLite database.",
    ("SQLITE_CORRUPT",): "The database {} is damaged: restore it from a backup.",
    ("SQLITE_IOERR",): "The disk that holds the database {} reports an input/output error.",
    (
        "53100",
    ): "The disk of the database server at {} is full: nothing can be recorded until space is freed.",
    ("53",): "The database server at {} has no more connections, memory or space to give.",
    ("25006",): "The database at {} is read-only (a standby?): nothing can be recorded.",
    ("55P03",): "A row in the database at {} was locked by another client that did not let go in time.",
    ("57014",): "The database server at {} cancelled a statement.",
    ("28",): "The database server at {} refuses the user or the password.",
    ("3D000",): "The database server at {} has no such database.",
    ("58",): "The disk of the database server at {} reports an error.",
}


def translate(error: SQLAlchemyError, database: Database) -> StoreError:
    """``error`` as a `StoreError` that says in a sentence what a person can do about it."""
    if not isinstance(error, DBAPIError):
        return StoreUnavailable(f"The database {database} has no free connection: {_first_line(error)}.")
    cause, is_server = error.orig, database.dialect == "postgresql"
    code = str(getattr(cause, "sqlstate" if is_server else "sqlite_errorname", None) or "")
    if code.startswith(("SQLITE_CONSTRAINT", "23")):
        return ConstraintViolated(f"The database refused a row: {_first_line(cause)}.")
    if code.startswith("40"):
        return Transient(f"The database at {database} chose this transaction as the victim of a conflict.")
    if code == "55P03" and EVENTS_LOCK in (error.statement or ""):
        return Transient(f"Other servers wrote events to the database at {database} for too long: try again.")
    for beginnings, sentence in _SENTENCES.items():
        if code.startswith(beginnings):
            return StoreUnavailable(sentence.format(database))
    if is_server and (error.connection_invalidated or not code or code.startswith(("08", "57P"))):
        return ConnectionLost(f"The database server at {database} cannot be reached: {_first_line(cause)}.")
    where = f"at {database}" if is_server else str(database)
    return StoreError(f"The database {where} refused a statement: {_first_line(cause)}.")


def _first_line(error: BaseException | None) -> str:
    return (str(error).splitlines() or ["no details"])[0].rstrip(".")

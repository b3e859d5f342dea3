"""The database of one deployment: a SQLite file as by default, or PostgreSQL for the whole run of the tests:

ACCEPTANCE_DATABASE=postgresql make acceptance
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import psycopg

from tests.databases import PostgresServer

CHOICE = "ACCEPTANCE_DATABASE"

_TABLE = "CREATE TABLE acceptance_ends (uuid TEXT NOT NULL, terminal_state TEXT NOT NULL);"
_INSERT = "INSERT INTO acceptance_ends VALUES (NEW.uuid, NEW.terminal_state);"
_SQLITE_AUDIT = f"""
{_TABLE}
CREATE TRIGGER acceptance_inserted AFTER INSERT ON rescales WHEN NEW.terminal_state IS NOT NULL BEGIN {_INSERT} END;
CREATE TRIGGER acceptance_updated AFTER UPDATE ON rescales WHEN NEW.terminal_state IS NOT NULL BEGIN {_INSERT} END;
"""
_POSTGRESQL_AUDIT = f"""
{_TABLE}
CREATE FUNCTION acceptance_note() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN IF NEW.terminal_state IS NOT NULL THEN {_INSERT} END IF; RETURN NEW; END';
CREATE TRIGGER acceptance_audit AFTER INSERT OR UPDATE ON rescales FOR EACH ROW EXECUTE FUNCTION acceptance_note();
"""


class OwnDatabase(Protocol):
    @property
    def settings(self) -> dict[str, str]:
        """What a server has to be told about it."""

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Look into it; values stand at question marks."""

    def audit(self) -> None:
        """From the first call on, `acceptance_ends` has how often the end of a rescale is written."""


def is_shared() -> bool:
    """Whether several servers can use the database of a deployment."""
    return os.environ.get(CHOICE) == "postgresql"


def database_of(data_dir: Path) -> OwnDatabase:
    """A database for the deployment in ``data_dir``, of the kind that the environment asks for."""
    match os.environ.get(CHOICE, "sqlite"):
        case "sqlite":
            return _Sqlite(data_dir / "slotwise.db")
        case "postgresql":
            return _Postgresql(_postgres_server().create_database())
        case other:
            raise ValueError(f"{CHOICE} is sqlite or postgresql, and not {other}")


@functools.cache
def _postgres_server() -> PostgresServer:
    server = PostgresServer.start()
    atexit.register(server.stop)
    return server


class _Sqlite:
    def __init__(self, file: Path) -> None:
        self._file = file
        self.settings: dict[str, str] = {}

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self._file, timeout=30)) as database:
            return database.execute(statement, values).fetchall()

    def audit(self) -> None:
        if not self.query("SELECT 1 FROM sqlite_master WHERE name = 'acceptance_ends'"):
            with contextlib.closing(sqlite3.connect(self._file, timeout=30)) as database:
                database.executescript(_SQLITE_AUDIT)


class _Postgresql:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.settings = {"DATABASE_URL": dsn.replace("postgresql://", "postgresql+psycopg://")}

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            return connection.execute(statement.replace("?", "%s").encode(), values).fetchall()

    def audit(self) -> None:
        if not self.query("SELECT 1 FROM pg_class WHERE relname = 'acceptance_ends'"):
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                connection.execute(_POSTGRESQL_AUDIT.encode())

"""Migration of the schema to the current version. A newer schema is refused."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

import app
from app.store.engine import Database, create, parse_url, translate
from app.store.errors import SchemaError, StoreUnavailable

MIGRATION_WAIT_S = 60
"""How long a server waits for another one that is migrating the same database."""

_ADVISORY_LOCK = 0x510F_715E  # any number that no other program uses on this database


def script_location() -> Path:
    """The migrations: beside the modules of an installed wheel, or in the root of a checkout."""
    package = Path(app.__file__).parent
    for candidate in (package / "_migrations", package.parent / "migrations"):
        if (candidate / "env.py").is_file():
            return candidate
    raise SchemaError("The migrations are missing from this installation: install Slotwise again.")


def config(url: str | None = None) -> Config:
    """Alembic's configuration, made here so that no file is needed. Percent signs are Alembic's escape."""
    made = Config()
    made.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    if url is not None:
        made.attributes["url"] = url
    return made


def head() -> str:
    """The revision that this version works with."""
    return str(ScriptDirectory.from_config(config()).get_current_head())


def current(connection: Connection) -> str | None:
    """The revision of the database; None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_newer(revision: str | None, database: Database) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise SchemaError(
            f"The database {database} has schema {revision}, which a newer version of Slotwise made; this version "
            f"works with {head()}. Start the newer version, or restore a backup of the database."
        )


def is_new(url: str) -> bool:
    """Whether there is no schema yet: the database is missing or empty. It is not made.

    Raises:
        StoreUnavailable: the database cannot be read.
    """
    database = parse_url(url)
    if database.path is not None and not database.path.exists():
        return True
    engine = create(database, write=False, pool_size=1)
    try:
        return _revision(engine, database) is None
    finally:
        engine.dispose()


def _revision(engine: Engine, database: Database) -> str | None:
    try:
        with engine.connect() as connection:
            return current(connection)
    except SQLAlchemyError as error:
        raise translate(error, database) from error


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database to ``revision``, creating what is missing. Two servers may call it at once. Blocks.

    Raises:
        SchemaError: a newer version of Slotwise made the schema.
        StoreUnavailable: the database cannot be reached or written, or another server migrates it for too long.
    """
    with exclusive(url) as (connection, database):
        found = current(connection)
        _refuse_newer(found, database)
        if found == head() and revision == "head":
            return
        made = config()
        made.attributes["connection"] = connection
        command.upgrade(made, revision)


def downgrade(url: str, revision: str) -> None:
    """Take migrations back, down to ``revision`` ("base": an empty database). Loses what the older schema lacks."""
    with exclusive(url) as (connection, _):
        made = config()
        made.attributes["connection"] = connection
        command.downgrade(made, revision)


def check(engine: Engine, database: Database) -> None:
    """
    Raises:
        SchemaError: the schema is not the one of this version.
        StoreUnavailable: the database cannot be read.
    """
    found = _revision(engine, database)
    _refuse_newer(found, database)
    if found != head():
        made = "no schema yet" if found is None else f"the older schema {found}"
        raise SchemaError(
            f"The database {database} has {made}; this version works with {head()}: upgrade it first."
        )


@contextmanager
def exclusive(url: str) -> Iterator[tuple[Connection, Database]]:
    """A transaction for a migration, with all other servers kept out of theirs."""
    database = parse_url(url)
    engine = create(database, write=True, pool_size=1)
    try:
        with _file_lock(database), engine.connect() as connection:
            if database.dialect == "sqlite":
                # Alembic rebuilds a table to alter it; that must not cascade. It has no effect inside a transaction.
                raw = connection.connection.dbapi_connection
                assert raw is not None
                raw.cursor().execute("PRAGMA foreign_keys = OFF")
                # Nor must the moment without the old table trip over triggers of others that name it.
                raw.cursor().execute("PRAGMA legacy_alter_table = ON")
            with connection.begin():
                if database.dialect == "postgresql":
                    connection.execute(text(f"SET LOCAL lock_timeout = '{MIGRATION_WAIT_S}s'"))
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
                yield connection, database
                if database.dialect == "sqlite":
                    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
                    if broken:
                        raise SchemaError(
                            f"The migration of {database} would leave {len(broken)} rows without job."
                        )
    except SQLAlchemyError as error:
        raise translate(error, database) from error
    finally:
        engine.dispose()


@contextmanager
def _file_lock(database: Database) -> Iterator[None]:
    """SQLite's own lock would do for one statement; this one spans the look at the revision and what follows."""
    if database.path is None:
        yield
        return
    name = database.path.with_name(database.path.name + ".migration-lock")
    try:
        lock_fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable(
            f"The database {database} cannot be opened: {error.strerror} (its directory must exist and be writable)."
        ) from error
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock_fd)

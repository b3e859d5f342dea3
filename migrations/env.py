"""Alembic's way into the project. `app.store.schema` calls it with a connection, or developers with a URL."""

from __future__ import annotations

import importlib

from alembic import context
from sqlalchemy.engine import Connection

from app.store import schema
from app.store.tables import metadata


def run(connection: Connection) -> None:
    dialect = connection.dialect.name
    context.configure(
        connection=connection,
        target_metadata=metadata,
        # Some indexes are of one database only (`info` in `app.store.tables`).
        include_object=lambda one, *_: one.info.get("dialect", dialect) == dialect,
        # SQLite cannot alter a constraint: Alembic rebuilds the table. Its DDL is transactional, whatever the
        # default of Alembic says, because `app.store.engine` begins transactions itself.
        render_as_batch=dialect == "sqlite",
        transactional_ddl=True,
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = context.config.attributes.get("url")
    if url is None or context.is_offline_mode():
        raise SystemExit("Run migrations with: python -m app.store <database url> <command>")
    # A new migration is made of all tables, those of plugins included.
    importlib.import_module("app.plugins.livy.numbers")
    with schema.exclusive(url) as (opened, _):
        run(opened)

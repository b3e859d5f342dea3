"""``python -m app.store <database url> <alembic command>`` runs any Alembic command on a database, for developers."""

from __future__ import annotations

import sys

from alembic.config import CommandLine

from app.store import schema
from app.store.errors import StoreError


def main(arguments: list[str]) -> None:
    if len(arguments) < 2:
        raise SystemExit("usage: python -m app.store <database url> <alembic command> ...")
    line = CommandLine(prog="python -m app.store <database url>")
    options = line.parser.parse_args(arguments[1:])
    try:
        line.run_cmd(schema.config(arguments[0]), options)
    except StoreError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main(sys.argv[1:])

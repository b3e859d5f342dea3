"""The command line `slotwise`: a client of the REST API, and the command that starts the server."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit."""
    try:
        # Here and not above: Ctrl-C while the libraries are loaded is no reason for a traceback.
        from app.cli.program import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run(arguments)

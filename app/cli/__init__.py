"""The command line `slotwise`: a client of the REST API, and the command that starts the server."""

from __future__ import annotations

from app.cli.program import main

__all__ = ["main"]

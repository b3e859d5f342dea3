"""`slotwise serve`: the server, in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.errors import CliError
from app.cli.output import is_terminal, say
from app.cli.settings import SettingsOptions


def serve(
    given: SettingsOptions,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")] = None,
    slots: Annotated[
        int | None, typer.Option(help="Slots that this host offers; default: its cores.")
    ] = None,
) -> None:
    """Start a server: it listens on loopback, and keeps everything in its data directory."""
    settings = given.load(host=host, slots=slots)
    from app.main import StartRefused
    from app.main import serve as run_server

    def tell(url: str) -> None:
        # Where logs are collected they say it themselves.
        if is_terminal():
            where = settings.cluster_master or f"{settings.slots} slots"
            say(f"Slotwise listens on {url} with {where}; data in {settings.data_dir}")

    try:
        run_server(settings, on_ready=tell)
    except StartRefused as error:
        raise CliError(str(error)) from None

"""`slotwise serve`: the server, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import CliError, UsageError
from app.cli.options import path_of
from app.cli.output import is_terminal, say


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on, 0 for a free one; default 8081.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            parser=path_of,
            help="Directory of the database, jobs and logs; default ~/.local/state/slotwise.",
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="Slots that this host offers; default: its cores.")
    ] = None,
    cluster_master: Annotated[
        str | None,
        typer.Option(
            help="Run jobs on a cluster: spark://host:port of its master, or k8s://https://host:port."
        ),
    ] = None,
    cluster_webui: Annotated[
        str | None, typer.Option(help="The web address of that master, http://host:port.")
    ] = None,
    cluster_driver_host: Annotated[
        str | None, typer.Option(help="Address of this host under which executors reach the drivers.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", parser=path_of, help="Settings in TOML; see docs/configuration.md."
        ),
    ] = None,
) -> None:
    """Start a server: it listens on loopback, and keeps everything in its data directory."""
    # Imported here so that every other command starts without the server's libraries.
    from app.model.clustersettings import kind_of_master
    from app.settings import SettingsError, load_settings

    try:
        settings = load_settings(
            config,
            host=host,
            port=port,
            data_dir=data_dir,
            slots=slots,
            cluster_kind=kind_of_master(cluster_master) if cluster_master else None,
            cluster_master=cluster_master,
            cluster_webui=cluster_webui,
            cluster_driver_host=cluster_driver_host,
        )
    except SettingsError as error:
        raise UsageError(*error.errors) from None
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

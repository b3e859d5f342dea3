"""The options by which commands get the settings of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.errors import UsageError
from app.cli.options import path_of

if TYPE_CHECKING:
    from app.settings import Settings


@dataclass(frozen=True, slots=True)
class SettingsOptions:
    """Settings of a server: those of a file, and those that are given as options, which win."""

    port: Annotated[int | None, typer.Option(help="Port to listen on, 0 for a free one; default 8081.")] = (
        None
    )
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            parser=path_of,
            help="Directory of the database, jobs and logs; default ~/.local/state/slotwise.",
        ),
    ] = None
    cluster_master: Annotated[
        str | None,
        typer.Option(
            help="Run jobs on a cluster: spark://host:port of its master, or k8s://https://host:port."
        ),
    ] = None
    cluster_webui: Annotated[
        str | None, typer.Option(help="The web address of that master, http://host:port.")
    ] = None
    cluster_driver_host: Annotated[
        str | None, typer.Option(help="Address of this host under which executors reach the drivers.")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", parser=path_of, help="Settings in TOML; see docs/configuration.md."
        ),
    ] = None

    def load(self, **others: Any) -> Settings:
        """The settings that hold, with ``others`` that are given as options.

        Raises:
            UsageError: with everything that is wrong.
        """
        # Imported here so that every other command starts without the server's libraries.
        from app.model.clustersettings import kind_of_master
        from app.settings import SettingsError, load_settings

        try:
            return load_settings(
                self.config,
                port=self.port,
                data_dir=self.data_dir,
                cluster_kind=kind_of_master(self.cluster_master) if self.cluster_master else None,
                cluster_master=self.cluster_master,
                cluster_webui=self.cluster_webui,
                cluster_driver_host=self.cluster_driver_host,
                **others,
            )
        except SettingsError as error:
            raise UsageError(*error.errors) from None

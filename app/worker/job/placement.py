"""The cluster of a driver, and drivers that run on another cluster than the settings say.

The drivers of a server outlive it, and the next server may have another cluster in its settings. An old driver
would then use slots of the previous cluster that are not counted any more, and would hold slots of the new
cluster that it does not use.
"""

from __future__ import annotations

from app.model.addresses import SPARK_PREFIX, spark_masters
from app.model.clustersettings import KUBERNETES
from app.settings import Settings


def place_of(settings: Settings) -> str:
    """The name of the cluster of the settings, by which attempts are told apart; empty for the server's host."""
    if settings.cluster_kind == KUBERNETES:
        return f"{settings.cluster_master}, namespace {settings.cluster_namespace}"
    return settings.cluster_master or ""


def misplaced(started_on: str, runs_on: str) -> str | None:
    """Why a driver that was started on one cluster cannot stay, in a sentence; None if jobs still run there."""
    if started_on == runs_on or _masters(started_on) & _masters(runs_on):
        return None
    return (
        f"The driver was started on {_in_words(started_on)}, but the settings of the server now name "
        f"{_in_words(runs_on)}: the driver is stopped, and the job continues there from its checkpoint."
    )


def _in_words(place: str) -> str:
    return place or "the server's host (cluster_kind embedded)"


def _masters(place: str) -> frozenset[tuple[str, int]]:
    """The masters of a standalone cluster: those that are in both names are the same one."""
    if not place.startswith(SPARK_PREFIX):
        return frozenset()
    try:
        return frozenset((host.lower(), port) for host, port in spark_masters(place))
    except ValueError:
        return frozenset()

"""The checks of `slotwise doctor` for a Spark standalone cluster: its master is reachable, its workers offer
slots, and executors on them could reach the drivers.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.cli.doctor import Check
from app.model.addresses import is_loopback, spark_masters, web_pages

if TYPE_CHECKING:
    from app.cluster.standalone.roster import Roster
    from app.settings import Settings

_TIMEOUT_S = 5.0


def standalone_checks(settings: Settings) -> Iterator[Check]:
    """One after another; what the workers offer only if the page of the master can be read."""
    assert settings.cluster_master and settings.cluster_webui
    yield _master(spark_masters(settings.cluster_master))
    roster, line = _page(web_pages(settings.cluster_webui), settings.cluster_master)
    yield line
    if roster is not None:
        yield _workers(roster, settings.cluster_executor_memory_mb)
    yield _drivers(settings.cluster_driver_host, roster)


def _master(masters: tuple[tuple[str, int], ...]) -> Check:
    """Of several masters one has to be there; drivers find out which."""
    reasons = []
    for host, port in masters:
        try:
            with socket.create_connection((host, port), _TIMEOUT_S):
                return Check("Spark master", True, f"{host}, port {port}, can be called")
        except OSError as error:
            reasons.append(f"{host}, port {port}: {error.strerror or error}")
    advice = "Check cluster_master, that the master runs, and the network."
    return Check("Spark master", False, f"cannot be called: {'; '.join(reasons)}", advice)


def _page(pages: tuple[str, ...], master: str) -> tuple[Roster | None, Check]:
    """What the master that is alive says of its cluster."""
    import httpx

    from app.cluster.standalone.identity import Match, match, of_another
    from app.cluster.standalone.roster import NotAMaster, read_roster

    name, reasons = "Spark master's page", []
    advice = "Check cluster_webui and the network."
    for page in pages:
        try:
            answer = httpx.get(f"{page}/json/", timeout=_TIMEOUT_S, trust_env=False)
            answer.raise_for_status()
            roster = read_roster(answer.json())
        except httpx.HTTPStatusError as error:
            reasons.append(f"{page} answers {error.response.status_code}")
        except httpx.HTTPError as error:
            reasons.append(f"{page} does not answer: {str(error) or type(error).__name__}")
        except (NotAMaster, ValueError):
            reasons.append(f"{page} is not the page of a Spark master")
            advice = "Give the master's web address as cluster_webui (its own default is port 8080)."
        else:
            found = match(spark_masters(master), roster.url)
            if found is Match.OTHER:
                reasons.append(f"{page}: {of_another(roster.url, master)}")
                advice = (
                    "Give the page of that master as cluster_webui, or that page's master as cluster_master."
                )
                continue
            if roster.is_alive:
                # A page that does not say whose it is says nothing to doubt either.
                doubt = "" if found is Match.SAME or not roster.url else _doubt(roster.url, master)
                return roster, Check(name, True, f"{page} can be read, and the master is alive", doubt)
            reasons.append(f"{page}: the master is {roster.status}")
            advice = (
                "Wait until it is ALIVE. Of several masters, name all pages in cluster_webui, with commas."
            )
    return None, Check(name, False, "; ".join(reasons), advice)


def _doubt(url: str, master: str) -> str:
    return (
        f"The page says that it is of {url}. Make sure that this is another name of cluster_master ({master}): the "
        "page says how many slots there are."
    )


def _workers(roster: Roster, memory_mb: int) -> Check:
    name, slots = "Spark workers", roster.slots(memory_mb)
    total, cores = sum(slots.values()), sum(worker.cores for worker in roster.workers)
    found = f"{len(roster.workers)} with {cores} cores, {total} slots"
    if not roster.workers:
        return Check(name, False, "none", "Start some: without workers there are no slots.")
    short = [worker for worker in roster.workers if slots[worker.id] < worker.cores]
    if not short:
        return Check(name, True, found)
    shown = ", ".join(
        f"{worker.id} has {worker.memory_mb} MB for {slots[worker.id]} of its {worker.cores} cores"
        for worker in short
    )
    advice = f"Give them {memory_mb} MB for each core (cluster_executor_memory_mb), or set that lower."
    return Check(name, total > 0, f"{found}; memory is short: {shown}", advice)


def _drivers(host: str, roster: Roster | None) -> Check:
    """Drivers listen at the address that executors call them at."""
    name, advice = "drivers", "Set cluster_driver_host to an address of this host that the workers reach."
    if not is_here(host):
        return Check(name, False, f"{host} is no address of this host: drivers cannot listen there", advice)
    away = sorted({worker.host for worker in roster.workers if not is_here(worker.host)}) if roster else []
    if is_loopback(host) and away:
        return Check(name, False, f"{host} cannot be reached from {', '.join(away)}", advice)
    return Check(name, True, f"listen at {host}")


def is_here(host: str) -> bool:
    """Whether ``host`` is a name or an address of this machine: one that can be listened at."""
    from app.cluster.standalone.identity import addresses_of, can_listen

    return any(map(can_listen, addresses_of(host)))

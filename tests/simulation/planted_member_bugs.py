"""Defects to plant where several control planes share the jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from app.cluster import shared_slots
from app.store import merged_units, slot_table
from app.worker.clock import LeaseCertainty
from app.worker.ownership import recovery
from tests.simulation.planted_batch_bugs import instead


@contextlib.contextmanager
def several(*bugs: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for bug in bugs:
            stack.enter_context(bug)
        yield


def fence_removed() -> contextlib.AbstractContextManager[None]:
    """Writes look neither at the owner nor at the epoch."""
    return instead(merged_units, "lost_leases", lambda *_args: {})


def always_sure() -> contextlib.AbstractContextManager[None]:
    """One that was stopped between a write and its effects performs them when it wakes up."""
    return instead(LeaseCertainty, "is_sure", lambda _self: True)


def slots_not_asked_for() -> contextlib.AbstractContextManager[None]:
    """The arbiter deals all slots anew each time, whoever may be using them."""
    return several(
        instead(shared_slots, "may_hold", lambda _entry: frozenset()),
        instead(shared_slots, "usable", lambda _entry: ()),
    )


def arbiters_not_fenced() -> contextlib.AbstractContextManager[None]:
    """One that was overtaken as the arbiter writes what it has decided, whoever has decided since."""

    def renewed(connection: Connection, home: str, _arbiter: Any, _ttl_ms: int, *, changes: bool) -> bool:
        count = text("UPDATE slot_arbiters SET decisions = decisions + :more WHERE home = :home")
        connection.execute(count, {"home": home, "more": int(changes)})
        return True

    return instead(slot_table, "_renewed", renewed)


def address_not_told() -> contextlib.AbstractContextManager[None]:
    """Whoever takes a job over does not tell its driver, which calls the one before for ever."""
    original = recovery.JobKeeper.tell_address

    async def tell(self: recovery.JobKeeper, job_id: str, epoch: int) -> None:
        if epoch == 1:
            await original(self, job_id, epoch)

    return instead(recovery.JobKeeper, "tell_address", tell)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "writes are not fenced by the epoch": fence_removed,
    "a control plane that was stopped performs effects": always_sure,
    "slots are given away that their jobs are using": slots_not_asked_for,
    "arbiters are not fenced by the epoch": arbiters_not_fenced,
    "drivers are not told of a new owner": address_not_told,
}

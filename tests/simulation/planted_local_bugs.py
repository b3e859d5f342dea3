"""Defects of local failovers, and of the limit for repeated errors of the user's code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.model.value import evolve
from app.scheduler.adaptive import local_failover
from app.scheduler.step import TABLE
from tests.simulation.planted_batch_bugs import instead


def never_escalates() -> contextlib.AbstractContextManager[None]:
    """A query that was restarted alone may take for ever."""

    def due_ms(_state: Any, one: Any) -> int:
        return int(one.restart_ms) + (10**12 if one.ordered else 0)

    return instead(local_failover, "_due_ms", due_ms)


def forgets_the_backoff() -> contextlib.AbstractContextManager[None]:
    """A query is started again at once, whatever the restart strategy says."""
    original = local_failover.query_failed

    def failed(draft: Any, event: Any) -> None:
        original(draft, event)
        known = draft.state.recovery.local
        draft.set_part(
            "recovery",
            local=tuple(evolve(one, restart_ms=min(one.restart_ms, draft.now_ms)) for one in known),
        )

    return instead_of_handler("QueryFailed", failed)


def counts_before_it_listens() -> contextlib.AbstractContextManager[None]:
    """Who takes a job up goes by the time of the control plane before, which may have been away for long."""
    return instead(local_failover, "event_of_takeover", lambda _state: None)


def instead_of_handler(event: str, handler: Any) -> contextlib.AbstractContextManager[None]:
    """The core looks its handlers up in a table."""

    @contextlib.contextmanager
    def planted() -> Any:
        known = {(phase, event): TABLE[phase, event] for phase in _RUNNING}
        TABLE.update({pair: replace(row, streaming=handler) for pair, row in known.items()})
        try:
            yield
        finally:
            TABLE.update(known)

    return planted()


_RUNNING = ("Executing", "Rescaling")

PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a local failover never becomes a global one": never_escalates,
    "a local failover is late before its driver is heard": counts_before_it_listens,
    "a local failover forgets the backoff": forgets_the_backoff,
}

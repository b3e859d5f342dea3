"""The end of an attempt: it is told to stop, and known to be dead; and the pauses before the next one."""

from __future__ import annotations

from typing import Final

from app.model.value import evolve
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import StopAttempt, StopMode
from app.scheduler.adaptive.journal import AttemptEnded

STOP_TIMER: Final = "stop-timeout"
BACKOFF_TIMER: Final = "backoff"

CLUSTER_RETRY_MS: Final = 10_000
"""The pause after a start that the cluster has made fail. The number of such starts has no limit."""


def mark_dead(draft: Draft, *, driver_waiting: bool = False) -> None:
    """Nothing of the attempt writes any more, so no plan is in force."""
    state = draft.state
    if state.driver.alive or state.plan is not None or state.driver.waits != driver_waiting:
        if state.driver.alive:
            draft.tell(AttemptEnded(state.attempt))
        draft.set(plan=None)
        draft.set_part("driver", alive=False, waits=driver_waiting)


def order_stop(draft: Draft, mode: StopMode) -> None:
    """Tell the attempt to stop, and look again after the stop timeout."""
    draft.emit(StopAttempt(draft.state.attempt, mode))
    draft.arm(STOP_TIMER, draft.now_ms + draft.state.options.stop_timeout_ms)


def break_off_stop(draft: Draft, error: str) -> None:
    """A stop that a client asked for cannot be completed; no effect if none is in progress."""
    stop = draft.state.stop
    if stop is not None and stop.state == "IN_PROGRESS":
        draft.set(stop=evolve(stop, state="COMPLETED", error=error))

"""The work sheet of one step: the state being built, the effects so far, and the rules every change obeys.

A `Draft` lives for one call of `step`. It is the only mutable thing of the core and is never handed out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from app.model.rescale import StateSpan
from app.model.status import JobStatus
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import Event
from app.scheduler.adaptive.state import Finished, JobState, Phase, Timer
from app.scheduler.adaptive.table import ENTRY, TRANSITIONS, InvalidTransition

MAX_TRANSITIONS_PER_STEP: Final = 16
"""More transitions than this within one step are a loop, hence a bug."""

_STATUS: Final = {
    "Created": JobStatus.INITIALIZING,
    "WaitingForResources": JobStatus.CREATED,
    "CreatingExecutionGraph": JobStatus.CREATED,
    "RetryingExecutionGraphCreation": JobStatus.CREATED,
    "Executing": JobStatus.RUNNING,
    "Rescaling": JobStatus.RUNNING,
    "StopWithSavepoint": JobStatus.RUNNING,
    "Restarting": JobStatus.RESTARTING,
    "Failing": JobStatus.FAILING,
    "Canceling": JobStatus.CANCELLING,
}


def phase_status(phase: Phase) -> JobStatus:
    """The job status that clients see while the job is in ``phase``."""
    return phase.status if isinstance(phase, Finished) else _STATUS[phase.kind]


class Draft:
    """One step in the making. ``trigger`` is the event kind, and `ENTRY` once a phase was entered in this step."""

    __slots__ = ("effects", "event_kind", "now_ms", "state", "transitions", "trigger")

    def __init__(self, state: JobState, event: Event, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.effects: list[Effect] = []
        self.event_kind = type(event).__name__
        self.trigger = self.event_kind
        self.transitions = 0

    def set(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def set_phase(self, **changes: Any) -> None:
        """Replace fields of the current phase, without leaving it."""
        self.state = replace(self.state, phase=replace(self.state.phase, **changes))

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def refuse(self, reason: str) -> InvalidTransition:
        """The exception for an event that does not fit."""
        return refusal(self.state, self.event_kind, reason)

    def enter(self, phase: Phase, exception: str | None = None) -> None:
        """Leave the current phase for ``phase``; the time spent becomes a span of the open rescale record.

        Timers of the old phase are gone. ``exception`` is kept with the span of the phase that is left.
        """
        old = self.state
        if (
            phase.kind not in TRANSITIONS.get((old.phase.kind, self.trigger), ())
            or phase.kind == old.phase.kind
        ):
            raise self.refuse(f"There is no edge from {old.phase.kind} to {phase.kind} under {self.trigger}")
        self.transitions += 1
        if self.transitions > MAX_TRANSITIONS_PER_STEP:
            raise self.refuse("The phases go round in circles")
        status, before = phase_status(phase), phase_status(old.phase)
        since = old.status_since_ms
        if status is not before:
            since = (*((one, at) for one, at in since if one is not status), (status, self.now_ms))
        self.state = replace(
            old,
            phase=phase,
            phase_version=old.phase_version + 1,
            phase_since_ms=self.now_ms,
            timers=(),
            timeline=replace(old.timeline, open=self.with_span(exception))
            if old.timeline.open
            else old.timeline,
            status_since_ms=since,
        )
        self.trigger = ENTRY

    def with_span(self, exception: str | None = None) -> Any:
        """The open rescale record with the span of the current phase added, from its start or the record's."""
        record = self.state.timeline.open
        if record is None:
            return None
        enter_ms = max(self.state.phase_since_ms, record.start_ms)
        span = StateSpan(self.state.phase.kind, enter_ms, self.now_ms, exception)
        return replace(record, spans=(*record.spans, span))

    def arm(self, name: str, at_ms: int) -> None:
        """Hold the timer ``name`` of the current phase, due at ``at_ms``; an earlier one of that name is replaced."""
        timer = Timer(name, self.state.phase_version, at_ms)
        self.set(timers=(*(one for one in self.state.timers if one.name != name), timer))

    def disarm(self, *names: str) -> None:
        if any(one.name in names for one in self.state.timers):
            self.set(timers=tuple(one for one in self.state.timers if one.name not in names))

    def timer_at(self, name: str) -> int | None:
        """When the timer ``name`` is due, None if it is not held."""
        return next((one.at_ms for one in self.state.timers if one.name == name), None)


def refusal(state: JobState, event_kind: str, reason: str) -> InvalidTransition:
    """The exception for an event that does not fit ``state``."""
    return InvalidTransition(
        reason,
        job_id=state.job_id,
        phase=state.phase.kind,
        phase_version=state.phase_version,
        event=event_kind,
        attempt=state.attempt,
    )

"""The draft of one step: the state that is being built, the effects so far, and the rules for every change.

A `Draft` lives for one call of `step`. It is the only mutable thing of the core and is never handed out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

from app.model.rescale import RescaleRecord, StateSpan
from app.model.status import JobStatus
from app.scheduler.adaptive import goal
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import Event
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.state import Finished, JobState, Phase, Timeline, Timer
from app.scheduler.slots import Demand

P = TypeVar("P", bound=Phase)

ENTRY: Final = "Entry"
"""In the place of an event: what a phase does at once when it is entered."""

_BASIS: Final[Callable[[JobState], tuple[object, ...]]] = operator.attrgetter(
    *("graph", "options", "requirements", "policy", "taken_back", "plan", "last_plan", "unproven"),
    *("slots", "allowed", "repartition", "repartition_refused", "fixed", "attempt"),
)
"""What `goal.demand_of` and `goal.goal_graph` look at."""

Follows = Callable[[str, str], Collection[str]]
"""The phases that can follow a phase under an event or `ENTRY`, by the transition table."""

MAX_TRANSITIONS_PER_STEP: Final = 16
"""More transitions than this within one step are a loop, hence a bug."""

MAX_SPANS: Final = 200
"""Spans that are kept with a record: beyond it those in the middle become one, so that no record grows without end."""

OMITTED: Final = "Omitted"
"""The state name of the span that stands for several."""

STATUS: Final = {
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
"""The job status that clients see in each phase but Finished, which has its own (as production Flink maps them)."""


def status_of(state: JobState) -> JobStatus:
    """The job status that clients see."""
    phase = state.phase
    if isinstance(phase, Finished):
        return phase.status
    status = STATUS[phase.kind]
    return JobStatus.CREATED if status is JobStatus.RUNNING and state.is_before_query else status


def timer_at(state: JobState, name: str) -> int | None:
    """When the timer ``name`` is due, None if it is not held."""
    return next((timer.at_ms for timer in state.timers if timer.name == name), None)


class InvalidTransition(Exception):
    """An event does not fit the phase the job is in. Nothing was changed."""

    def __init__(self, state: JobState, event: str, reason: str) -> None:
        phase = f"{state.phase.kind} number {state.phase_version}"
        super().__init__(
            f"{reason} (job {state.job_id}, attempt {state.attempt}, phase {phase}, event {event})"
        )
        self.reason = reason
        self.job_id = state.job_id
        self.phase = state.phase.kind
        self.event = event


class Draft:
    """One step in the making. ``trigger`` is the event kind, and `ENTRY` once a phase was entered in this step.

    ``state`` is the state that the step began with until the first change, and from then on a copy that nobody else
    has seen: that one is changed in place, because a copy per change would take most of a step's time.
    """

    __slots__ = (
        "_basis",
        "_demand",
        "_follows",
        "_goal",
        "_owned",
        "_timeline",
        "effects",
        "event_kind",
        "now_ms",
        "state",
        "transitions",
        "trigger",
        "view",
    )

    def __init__(self, state: JobState, event: Event, now_ms: int, follows: Follows) -> None:
        self.state = state
        self._follows = follows
        self._owned = False
        self._demand: Demand | None = None
        self._goal: Demand | None = None
        self._basis: tuple[object, ...] = ()
        self._timeline: Timeline | None = None
        self.now_ms = now_ms
        self.effects: list[Effect] = []
        self.event_kind = type(event).__name__
        self.trigger = self.event_kind
        self.transitions = 0
        # What `attainable` has worked out last, and from what.
        self.view: tuple[Any, tuple[object, ...]] | None = None

    @property
    def demand(self) -> Demand:
        """`goal.demand_of` the state."""
        state = self.state
        basis = _BASIS(state)
        if self._demand is None or not all(map(operator.is_, self._basis, basis)):
            self._demand, self._goal = goal.demand_of(state), None
            self._basis = basis
        return self._demand

    @property
    def goal(self) -> Demand:
        """The same once the state has the partitions that are asked for."""
        demand = self.demand
        if self._goal is None:
            graph = goal.goal_graph(self.state)
            self._goal = demand if graph is self.state.graph else Demand.of(graph, demand.requirements)
        return self._goal

    @property
    def demands(self) -> tuple[Demand, Demand]:
        """`demand` and `goal`."""
        return self.demand, self.goal

    @property
    def declared(self) -> Demand:
        """What the bounds of the state ask for: records show this."""
        state = self.state
        return self.demand if self._is_plain else Demand.of(state.graph, state.bounds)

    @property
    def declared_goal(self) -> Demand:
        """The same once the state has the partitions that they ask for."""
        state = self.state
        return self.goal if self._is_plain else Demand.of(goal.goal_graph(state), state.bounds)

    @property
    def _is_plain(self) -> bool:
        """Whether decisions are made with the bounds of the state."""
        state = self.state
        is_down = state.plan is None and state.last_plan is not None
        return state.taken_back is None and not (is_down and goal.comes_back(state))

    def set(self, **changes: Any) -> None:
        """Replace fields of the state."""
        if not self._owned:
            self.state = evolve(self.state, **changes)
            self._owned = True
            return
        for name, value in changes.items():
            setattr(self.state, name, value)

    def set_timeline(self, **changes: Any) -> None:
        """Replace fields of the rescale timeline."""
        own = self._timeline
        if own is None:
            own = self._timeline = evolve(self.state.timeline, **changes)
            self.set(timeline=own)
            return
        for name, value in changes.items():
            setattr(own, name, value)

    def phase_as(self, kind: type[P]) -> P:
        """The current phase where the transition table leaves no other than ``kind``."""
        phase = self.state.phase
        assert isinstance(phase, kind)
        return phase

    def set_phase(self, **changes: Any) -> None:
        """Replace fields of the current phase, without leaving it."""
        self.set(phase=evolve(self.state.phase, **changes))

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def refuse(self, reason: str) -> InvalidTransition:
        """The exception for an event that does not fit."""
        return InvalidTransition(self.state, self.event_kind, reason)

    def enter(self, phase: Phase, exception: str | None = None) -> None:
        """Leave the current phase for ``phase``; the time spent becomes a span of the open rescale record.

        Timers of the old phase are gone. ``exception`` is kept with the span of the phase that is left.
        """
        old = self.state
        if phase.kind == old.phase.kind or phase.kind not in self._follows(old.phase.kind, self.trigger):
            raise self.refuse(f"There is no edge from {old.phase.kind} to {phase.kind} under {self.trigger}")
        # A draft is changed in place: what is needed of the state before is taken now.
        before, since = status_of(old), old.status_since_ms
        self.transitions += 1
        if self.transitions > MAX_TRANSITIONS_PER_STEP:
            raise self.refuse("The phases go round in circles")
        record = old.timeline.open
        if record is not None:
            self.set_timeline(open=evolve(record, spans=self.spans_until_now(record, exception)))
        self.set(
            phase=phase,
            phase_version=old.phase_version + 1,
            phase_since_ms=self.now_ms,
            timers=(),
        )
        self._note_status(before, since)
        self.trigger = ENTRY

    def set_started(self, started: tuple[str, ...]) -> None:
        """Replace the queries that the program has started: with the first one the job is RUNNING."""
        before, since = status_of(self.state), self.state.status_since_ms
        self.set(started=started)
        self._note_status(before, since)

    def _note_status(self, before: JobStatus, since: tuple[tuple[JobStatus, int], ...]) -> None:
        status = status_of(self.state)
        if status is not before:
            kept = ((one, at) for one, at in since if one is not status)
            self.set(status_since_ms=(*kept, (status, self.now_ms)))

    def spans_until_now(self, record: RescaleRecord, exception: str | None = None) -> tuple[StateSpan, ...]:
        """The spans of the open ``record`` with that of the current phase, from its start or the record's."""
        enter_ms = max(self.state.phase_since_ms, record.start_ms)
        span = StateSpan(self.state.phase.kind, enter_ms, self.now_ms, exception)
        spans = record.spans
        if len(spans) >= MAX_SPANS:
            middle = MAX_SPANS // 2
            first, second = spans[middle : middle + 2]
            merged = StateSpan(OMITTED, first.enter_ms, second.leave_ms)
            spans = (*spans[:middle], merged, *spans[middle + 2 :])
        return (*spans, span)

    def arm(self, name: str, at_ms: int) -> None:
        """Hold the timer ``name`` of the current phase, due at ``at_ms``; an earlier one of that name is replaced."""
        timer = Timer(name, self.state.phase_version, at_ms, self.now_ms)
        self.set(timers=(*[one for one in self.state.timers if one.name != name], timer))

    def disarm(self, *names: str) -> None:
        kept = [one for one in self.state.timers if one.name not in names]
        if len(kept) < len(self.state.timers):
            self.set(timers=tuple(kept))

    def keep(self, name: str, at_ms: int | None) -> None:
        """Bring the timer ``name`` in line: due at ``at_ms``, and not held if that is None."""
        if at_ms is None:
            self.disarm(name)
        elif timer_at(self.state, name) != at_ms:
            self.arm(name, at_ms)

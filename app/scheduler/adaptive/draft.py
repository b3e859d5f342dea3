"""The draft of one step: the state that is being built, the effects so far, and the rules for every change.

A `Draft` lives for one call of `step`. It is the only mutable thing of the core and is never handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from app.model.job_state.changes import Parallelism
from app.model.jobgraph import JobGraph
from app.model.plan import Plan
from app.model.requirements import Requirements
from app.model.rescale import RescaleRecord, StateSpan, TriggerCause
from app.model.status import JobStatus
from app.model.value import evolve
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import BoundsUpdated, Event, RequirementsUpdated
from app.scheduler.adaptive.journal import GraphReplaced, Moved, RecordBegun, StatusChanged, Told
from app.scheduler.adaptive.state import (
    CreatingExecutionGraph,
    Finished,
    JobState,
    Phase,
    Rescaling,
    Restarting,
    StopWithSavepoint,
    Timeline,
    Timer,
)

P = TypeVar("P", bound=Phase)

Handler = Callable[["Draft", Any], None]
"""What decides under an event, or at the entry of a phase."""

ENTRY: Final = "Entry"
"""In the place of an event: what a phase does at once when it is entered."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the transition table says of one pair of a phase and an event, or `ENTRY`: the handlers of STREAMING and of
    BATCH jobs, and ``edges``: each phase that can follow, and when it does."""

    streaming: Handler | None
    batch: Handler | None
    edges: dict[str, str]


Table = Mapping[tuple[str, str], Row]


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
        "_owned",
        "_table",
        "_timeline",
        "effects",
        "event_kind",
        "goal",
        "is_handled",
        "left",
        "now_ms",
        "state",
        "told",
        "transitions",
        "trigger",
        "view",
    )

    def __init__(self, state: JobState, event: Event, now_ms: int, table: Table) -> None:
        self.state = state
        self._table = table
        self._owned = False
        self._timeline: Timeline | None = None
        self.now_ms = now_ms
        self.effects: list[Effect] = []
        self.told: list[Told] = []
        self.event_kind = type(event).__name__
        self.trigger = self.event_kind
        self.transitions = 0
        # What of the event is left to the handler of the phase; and whether that, or a deadline, has decided anything.
        self.left: Event | None = event
        self.is_handled = False
        # What `goal` has worked out last, and from what.
        self.goal: tuple[Any, tuple[object, ...]] | None = None
        self.view: tuple[Any, tuple[object, ...]] | None = None

    def set(self, **changes: Any) -> None:
        """Replace fields of the state."""
        if not self._owned:
            self.state = evolve(self.state, **changes)
            self._owned = True
            return
        for name, value in changes.items():
            setattr(self.state, name, value)

    def set_part(self, part: str, **changes: Any) -> None:
        """Replace fields of a part of the state, such as its ``trial``."""
        self.set(**{part: evolve(getattr(self.state, part), **changes)})

    def set_timeline(self, **changes: Any) -> None:
        """Replace fields of the rescale timeline."""
        own = self._timeline
        if own is None:
            own = self._timeline = evolve(self.state.timeline, **changes)
            self.set(timeline=own)
            return
        for name, value in changes.items():
            setattr(own, name, value)

    def set_graph(self, graph: JobGraph, requirements: Requirements, **changes: Any) -> None:
        """Replace the graph by one that may have other vertices, with the requirements for it, and other fields."""
        self.tell(GraphReplaced(self.state.graph))
        self.set_requirements(requirements, graph=graph, **changes)

    def set_requirements(self, requirements: Requirements, **changes: Any) -> None:
        """Replace the requirements, and other fields with them."""
        self.tell(requirements)
        self.set(requirements=requirements, **changes)

    def set_record(self, record: RescaleRecord, **changes: Any) -> None:
        """Tell what ``record`` is now; if it has not ended, it is the open one. ``changes``: of other fields of the
        timeline."""
        if record.number > self.state.timeline.records:
            self.tell(RecordBegun(record.number))
            changes["records"] = record.number
        self.tell(record)
        if record.is_open:
            changes["open"] = record
        self.set_timeline(**changes)

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

    def tell(self, fact: Told) -> None:
        self.told.append(fact)

    def begin(self) -> None:
        """Do what the phase that the job has entered does at once."""
        handler = self._table[self.state.phase.kind, ENTRY].streaming
        if handler is not None:
            handler(self, None)

    def hand_on(self, event: RequirementsUpdated) -> None:
        """Give other bounds, which a rule has made, to the handler of the phase that the job is in."""
        row = self._table[self.state.phase.kind, RequirementsUpdated.__name__]
        handler = row.batch if self.state.graph.runs_by_regions else row.streaming
        assert handler is not None
        self.trigger, self.is_handled = RequirementsUpdated.__name__, True
        handler(self, event)

    def refuse(self, reason: str) -> InvalidTransition:
        """The exception for an event that does not fit."""
        return InvalidTransition(self.state, self.event_kind, reason)

    def enter(self, phase: Phase, exception: str | None = None) -> None:
        """Leave the current phase for ``phase``; the time spent becomes a span of the open rescale record.

        Timers of the old phase are gone. ``exception`` is kept with the span of the phase that is left.
        """
        old = self.state
        row = self._table.get((old.phase.kind, self.trigger))
        if phase.kind == old.phase.kind or row is None or phase.kind not in row.edges:
            raise self.refuse(f"There is no edge from {old.phase.kind} to {phase.kind} under {self.trigger}")
        # A draft is changed in place: what is needed of the state before is taken now.
        before, since = status_of(old), old.status_since_ms
        self.transitions += 1
        if self.transitions > MAX_TRANSITIONS_PER_STEP:
            raise self.refuse("The phases go round in circles")
        record = old.timeline.open
        if record is not None:
            self.set_record(evolve(record, spans=self.spans_until_now(record, exception)))
        self.tell(Moved())
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
        self.set_part("driver", started=started)
        self._note_status(before, since)

    def _note_status(self, before: JobStatus, since: tuple[tuple[JobStatus, int], ...]) -> None:
        status = status_of(self.state)
        if status is not before:
            kept = ((one, at) for one, at in since if one is not status)
            self.set(status_since_ms=(*kept, (status, self.now_ms)))
            self.tell(StatusChanged(before, status))

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

    def arm_new(self, name: str, at_ms: int) -> None:
        """The same, unless a timer of that name is held."""
        if timer_at(self.state, name) is None:
            self.arm(name, at_ms)

    def hold(self, names: Collection[str], due: tuple[str, int] | None) -> None:
        """Of the timers ``names`` hold only the one that is ``due``."""
        kept = [one for one in self.state.timers if one.name not in names]
        if due is not None:
            kept.append(Timer(due[0], self.state.phase_version, due[1], self.now_ms))
        if due is not None or len(kept) < len(self.state.timers):
            self.set(timers=tuple(kept))

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


def change_plans(draft: Draft, changed: Callable[[Parallelism, int | None], Parallelism]) -> None:
    """Give each plan that is in force, on its way, or to be gone back to what ``changed`` makes of its parallelism and
    of the number of its slots, which is None for a plan on its way."""

    def plan_of(plan: Plan | None, *, in_force: bool = False) -> Plan | None:
        if plan is None:
            return None
        return evolve(plan, parallelism=changed(plan.parallelism, plan.slot_count if in_force else None))

    state, phase = draft.state, draft.state.phase
    draft.set(plan=plan_of(state.plan, in_force=True), last_plan=plan_of(state.last_plan, in_force=True))
    if isinstance(phase, CreatingExecutionGraph):
        draft.set_phase(plan=plan_of(phase.plan))
    elif isinstance(phase, Rescaling | StopWithSavepoint):
        draft.set_phase(target=plan_of(phase.target))
    elif isinstance(phase, Restarting) and phase.target is not None:
        draft.set_phase(target=changed(phase.target, None))


def take_bounds(draft: Draft, event: BoundsUpdated) -> TriggerCause:
    """Note other requirements or another scaling policy. The cause of a record for it."""
    if isinstance(event, RequirementsUpdated):
        draft.set_requirements(event.requirements)
        return TriggerCause.UPDATE_REQUIREMENT
    draft.tell(event.policy)
    draft.set(policy=event.policy)
    return TriggerCause.UPDATE_POLICY

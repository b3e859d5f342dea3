"""The scheduler of a job as one pure function: `step(state, event, now_ms) -> (state, effects)`.

Rule 1: nothing here reads a clock, draws a number or waits. Time is what the caller hands in.
Rule 2: an event that changes nothing gives back the very same state object and no effects. (The caller writes down
        the records in ``timeline.closed`` and empties it before it keeps a state; if it does not, `step` does.)
Rule 3: an event that does not fit raises `InvalidTransition` and changes nothing.

Timers live in ``state.timers``; the caller fires them. There is no effect that arms one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.requirements import Requirements
from app.model.slot_share import SlotShare
from app.model.status import JobStatus
from app.scheduler.adaptive import (
    bounds_queue,
    growth,
    local_failover,
    no_change,
    repeated_errors,
    replacing,
    rollback,
    slot_declaration,
    versions,
)
from app.scheduler.adaptive.draft import Draft, InvalidTransition
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import (
    BatchCompleted,
    BoundsUpdated,
    Event,
    PlanApplied,
    QueryEnded,
    QueryStarted,
    RequirementsUpdated,
    ScalingPolicyUpdated,
    SlotsChanged,
    SlotShareUpdated,
    StateRepartitioned,
    TimerFired,
)
from app.scheduler.adaptive.state import Executing, Finished, JobState
from app.scheduler.adaptive.transition_manager import waits_for_change
from app.scheduler.table import TABLE, following
from app.scheduler.transitions import Handler


def initial_state(
    job_id: str, graph: JobGraph, options: JobOptions, requirements: Requirements, now_ms: int
) -> JobState:
    """A job that was just submitted, in Created."""
    weight, priority, cap = options.slots_weight, options.slots_priority, options.slots_cap
    who = requirements.requested_by
    return JobState(
        job_id=job_id,
        graph=graph,
        options=options,
        requirements=requirements,
        phase_since_ms=now_ms,
        status_since_ms=((JobStatus.INITIALIZING, now_ms),),
        share=SlotShare(1, weight, priority, cap, requested_by=who, changed_ms=now_ms),
        unproven=True,
    )


def step(state: JobState, event: Event, now_ms: int) -> tuple[JobState, tuple[Effect, ...]]:
    """What ``event`` makes of the job, and what is to be done about it.

    ``now_ms`` may go back; the time that counts here never goes back behind what the state has seen.

    Raises:
        InvalidTransition: the event does not fit the phase; nothing was changed.
    """
    phase = state.phase
    kind = type(event)
    if (
        kind is BatchCompleted
        and isinstance(phase, Executing)
        and event.attempt == state.attempt  # type: ignore[union-attr]
        and phase.first_batch
        and waits_for_change(phase.manager)
        and not state.timeline.closed
        and state.watch is None
        and not state.unproven
        and not state.user_errors
        and not event.not_followed  # type: ignore[union-attr]
        and state.versions.replacement is None
    ):
        # The hot path: a batch of a job that has nothing to do.
        return state, ()
    if kind in _OF_ATTEMPT:
        attempt: int = event.attempt  # type: ignore[union-attr]
        if attempt < state.attempt:
            return state, ()
        if attempt > state.attempt:
            raise InvalidTransition(state, kind.__name__, f"Attempt {attempt} was never started")
    elif isinstance(event, TimerFired) and not _is_due(state, event, now_ms):
        return state, ()
    row = TABLE.get((phase.kind, kind.__name__))
    if row is None:
        raise InvalidTransition(state, kind.__name__, f"A job in {phase.kind} does not take {kind.__name__}")
    handler = row.batch if state.graph.runs_by_regions else row.streaming
    if handler is None or _is_repetition(state, event):
        return state, ()
    draft = Draft(state, event, max(now_ms, _latest_ms(state)), following)
    if state.timeline.closed:
        draft.set_timeline(closed=())
    _work(draft, event, handler)
    if draft.state is state:
        return state, tuple(draft.effects)
    return _finished_step(state, event, draft)


def forget_closed(state: JobState) -> None:
    """The records that ended in the step that has just made ``state`` are written down. Its timeline is of this step,
    so nobody else has seen it: it is changed in place, since copies of both would take a tenth of a step."""
    if state.timeline.closed:
        # No assignment: the type checker refuses one to a field of a value.
        setattr(state.timeline, "closed", ())  # noqa: B010


def _work(draft: Draft, event: Event, handler: Handler) -> None:
    if isinstance(event, BatchCompleted) and draft.state.user_errors:
        repeated_errors.forget(draft, event.query_id, event.batch_id)
    if isinstance(event, BatchCompleted | PlanApplied):
        rollback.note_batch(draft, event)
        versions.note_progress(draft, event)
    everywhere = _TIMERS.get(event.name) if isinstance(event, TimerFired) else None
    if everywhere is not None:
        everywhere(draft)
        return
    counts = bounds_queue.take(draft, event) if isinstance(event, RequirementsUpdated) else event
    if counts is not None:
        handler(draft, counts)


def _finished_step(before: JobState, event: Event, draft: Draft) -> tuple[JobState, tuple[Effect, ...]]:
    if draft.state.queued or before.queued:
        bounds_queue.look(draft, before, _update)
    if draft.state.local or before.local:
        local_failover.settle(draft)
    if draft.state.versions.replacement or before.versions.replacement:
        versions.settle(draft, before)
    now = draft.state
    if now.started and not (
        now.started is before.started and now.graph is before.graph and now.phase is before.phase
    ):
        growth.settle(draft)
    after = draft.state
    over = isinstance(after.phase, Finished)
    if not over and after.last_plan is not None and (after.plan is None or before.plan is None):
        # What it cannot do without depends on the slots while it is down.
        slot_declaration.declare(draft)
    if not over and (
        after.slots is not before.slots
        or after.phase is not before.phase
        or after.plan is not before.plan
        or after.declared_slots != before.declared_slots
        or after.allowed != before.allowed
        or after.attempt_alive != before.attempt_alive
        or after.timers is not before.timers
    ):
        slot_declaration.settle_surplus(draft)
    if draft.state.slots is not before.slots and set(draft.state.slots) != set(before.slots):
        draft.set(slots_changed_ms=draft.now_ms)
        if before.slots_stayed:
            # What left and comes again has not stayed.
            held = draft.state.slot_ids
            draft.set(slots_stayed=tuple(one for one in draft.state.slots_stayed if one in held))
    looks = isinstance(event, _LOOKS) or (isinstance(event, TimerFired) and event.name not in _LOOKED_AFTER)
    began = draft.transitions > 0 and isinstance(draft.state.phase, Executing)
    moved = draft.state.requirements is not before.requirements
    no_change.settle(draft, looks=looks or began or moved)
    return draft.state, tuple(draft.effects)


def _is_due(state: JobState, event: TimerFired, now_ms: int) -> bool:
    """Whether the state still holds the timer and its time has come; else the event is stale."""
    return any(
        timer.name == event.name and timer.version == event.version and now_ms >= timer.at_ms
        for timer in state.timers
    )


def _is_repetition(state: JobState, event: Event) -> bool:
    """Whether ``event`` says only what the state knows: equal bounds, equal slots."""
    if isinstance(event, BoundsUpdated):
        # Another reason alone changes nothing: it is told with what it leads to. What was refused or taken back may be
        # asked for again.
        if state.repartition_refused is not None or state.taken_back is not None:
            return False
        if isinstance(event, RequirementsUpdated):
            return event.undoes is None and state.requirements.same_as(event.requirements)
        return state.policy.same_as(event.policy)
    if isinstance(event, SlotShareUpdated):
        return event.share == state.share
    return isinstance(event, SlotsChanged) and (event.slots, event.allowed, event.cluster_unreachable) == (
        state.slots,
        state.allowed,
        state.cluster_unreachable,
    )


def _latest_ms(state: JobState) -> int:
    """The latest instant that the state has seen; the clock of a host may be set back."""
    record = state.timeline.open
    return max(state.phase_since_ms, record.start_ms) if record else state.phase_since_ms


_LOOKS: Final = (
    RequirementsUpdated,
    ScalingPolicyUpdated,
    SlotShareUpdated,
    SlotsChanged,
    StateRepartitioned,
    QueryStarted,
    QueryEnded,
)
"""Under these, timers of a phase, and when it enters Executing the scheduler looks at what the job could become."""

_OF_ATTEMPT: Final = frozenset(kind for kind in Event.__args__ if "attempt" in kind.__dataclass_fields__)


def _deadlines_due(draft: Draft) -> None:
    bounds_queue.due(draft, _update)


def _update(draft: Draft, event: RequirementsUpdated) -> None:
    row = TABLE[draft.state.phase.kind, RequirementsUpdated.__name__]
    handler = row.batch if draft.state.graph.runs_by_regions else row.streaming
    assert handler is not None
    draft.trigger = RequirementsUpdated.__name__
    handler(draft, event)


_LOOKED_AFTER: Final = frozenset(
    {slot_declaration.IDLE_TIMER, local_failover.LOCAL_TIMER, versions.TRIAL_TIMER}
)
"""Timers that say nothing of what the job could become."""

_TIMERS: Final[dict[str, Callable[[Draft], None]]] = {
    slot_declaration.IDLE_TIMER: slot_declaration.release_idle,
    local_failover.LOCAL_TIMER: local_failover.due,
    versions.TRIAL_TIMER: replacing.trial_is_over,
    bounds_queue.DEADLINE_TIMER: _deadlines_due,
}
"""Timers that do the same in every phase."""

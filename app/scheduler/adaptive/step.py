"""The scheduler of a job as one pure function: `step(state, event, now_ms) -> (state, effects)`.

Rule 1: nothing here reads a clock, draws a number or waits. Time is what the caller hands in.
Rule 2: an event that changes nothing gives back the very same state object and no effects. (The caller writes down
        the records in ``timeline.closed`` and empties it before it keeps a state; if it does not, `step` does.)
Rule 3: an event that does not fit raises `InvalidTransition` and changes nothing.

Timers live in ``state.timers``; the caller fires them. There is no effect that arms one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.requirements import Requirements
from app.model.slot_share import SlotShare
from app.model.status import JobStatus
from app.scheduler.adaptive import (
    budget,
    created,
    ending,
    executing,
    local_failover,
    misplacing,
    repartition,
    replacing,
    rescaling,
    restarting,
    rollback,
    slot_declaration,
    starting,
    stopping,
    versions,
)
from app.scheduler.adaptive import table as t
from app.scheduler.adaptive.draft import Draft, phase_status
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptMisplaced,
    AttemptRunning,
    AttemptStartFailed,
    AttemptStopped,
    BatchAborted,
    BatchCompleted,
    DriverContact,
    Event,
    PlanApplied,
    QueryFailed,
    QueryRecovered,
    RegionFailed,
    RegionFinished,
    RequirementsUpdated,
    SlotsChanged,
    SlotShareUpdated,
    StateRepartitioned,
    TimerFired,
)
from app.scheduler.adaptive.explain import explain
from app.scheduler.adaptive.refusal import InvalidTransition, refusal
from app.scheduler.adaptive.state import Executing, Finished, JobState
from app.scheduler.adaptive.table import TRANSITIONS
from app.scheduler.adaptive.validate import InvariantViolation, validate
from app.scheduler.batch import executing as batch

__all__ = [
    "InvalidTransition",
    "InvariantViolation",
    "explain",
    "initial_state",
    "status_of",
    "step",
    "validate",
]

Handler = Callable[[Draft, Any], None]


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


def status_of(state: JobState) -> JobStatus:
    """The job status that clients see."""
    return phase_status(state.phase)


def step(state: JobState, event: Event, now_ms: int) -> tuple[JobState, tuple[Effect, ...]]:
    """What ``event`` makes of the job, and what is to be done about it.

    ``now_ms`` may go back; the time that counts here never goes back behind what the state has seen.

    Raises:
        InvalidTransition: the event does not fit the phase; nothing was changed.
    """
    phase = state.phase
    kind = type(event)
    if kind is BatchCompleted and isinstance(phase, Executing) and event.attempt == state.attempt:  # type: ignore[union-attr]
        # The hot path: a batch of a job that has nothing to do.
        moves = phase.manager
        if (
            phase.first_batch
            and moves.failed_batches_left is None
            and (moves.stage == "Idling" or moves.stage == "Cooldown")
            and not state.timeline.closed
            and state.watch is None
            and not state.unproven
            and not state.user_errors
            and not event.not_followed  # type: ignore[union-attr]
            and state.versions.replacement is None
        ):
            return state, ()
    if kind in _OF_ATTEMPT:
        attempt: int = event.attempt  # type: ignore[union-attr]
        if attempt < state.attempt:
            return state, ()
        if attempt > state.attempt:
            raise refusal(state, kind.__name__, f"Attempt {attempt} was never started")
    elif isinstance(event, TimerFired) and not _is_due(state, event, now_ms):
        return state, ()
    if (phase.kind, kind.__name__) not in TRANSITIONS:
        raise refusal(state, kind.__name__, f"A job in {phase.kind} does not take {kind.__name__}")
    handler = _handler(state, kind)
    if handler is None or _is_repetition(state, event):
        return state, ()
    draft = Draft(state, event, max(now_ms, _latest_ms(state)))
    if state.timeline.closed:
        draft.set_timeline(closed=())
    _work(draft, event, handler)
    if draft.state is state:
        return state, tuple(draft.effects)
    return _finished_step(state, draft)


def _work(draft: Draft, event: Event, handler: Handler) -> None:
    if isinstance(event, BatchCompleted) and draft.state.user_errors:
        budget.forget(draft, event)
    if isinstance(event, BatchCompleted | PlanApplied):
        rollback.note_batch(draft, event)
        versions.note_progress(draft, event)
    everywhere = _TIMERS.get(event.name) if isinstance(event, TimerFired) else None
    if everywhere is not None:
        everywhere(draft)
    else:
        handler(draft, event)


def _handler(state: JobState, kind: type) -> Handler | None:
    pair = (state.phase.kind, kind)
    if state.graph.runs_by_regions and pair in _BATCH_HANDLERS:
        return _BATCH_HANDLERS[pair]
    return _HANDLERS.get(pair)


def _finished_step(before: JobState, draft: Draft) -> tuple[JobState, tuple[Effect, ...]]:
    if draft.state.local or before.local:
        local_failover.settle(draft)
    if draft.state.versions.replacement or before.versions.replacement:
        versions.settle(draft)
    after = draft.state
    if not isinstance(after.phase, Finished) and (
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
    return draft.state, tuple(draft.effects)


def _is_due(state: JobState, event: TimerFired, now_ms: int) -> bool:
    """Whether the state still holds the timer and its time has come; else the event is stale."""
    return any(
        timer.name == event.name and timer.version == event.version and now_ms >= timer.at_ms
        for timer in state.timers
    )


def _is_repetition(state: JobState, event: Event) -> bool:
    """Whether ``event`` says only what the state knows: equal bounds, equal slots."""
    if isinstance(event, RequirementsUpdated):
        # Another reason alone changes nothing: it is told with what it leads to. What was refused or taken back may be
        # asked for again.
        again = state.repartition_refused is not None or state.taken_back is not None
        return not again and state.requirements.same_as(event.requirements)
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


_OF_ATTEMPT: Final = frozenset(
    {
        AttemptRunning,
        StateRepartitioned,
        AttemptStartFailed,
        BatchCompleted,
        BatchAborted,
        PlanApplied,
        RegionFinished,
        RegionFailed,
        AttemptFailed,
        QueryFailed,
        QueryRecovered,
        DriverContact,
        AttemptMisplaced,
        AttemptStopped,
        AttemptFinished,
    }
)

_TIMERS: Final[dict[str, Callable[[Draft], None]]] = {
    slot_declaration.IDLE_TIMER: slot_declaration.release_idle,
    local_failover.LOCAL_TIMER: local_failover.due,
    versions.TRIAL_TIMER: replacing.trial_is_over,
}
"""Timers that do the same in every phase."""

# (phase, event) -> what happens. Pairs of the table that are not here change nothing.
_BY_NAME: Final[dict[tuple[str, str], Handler]] = {
    (t.CREATED, "StartScheduling"): created.created_start,
    (t.CREATED, "RequirementsUpdated"): created.created_requirements,
    (t.CREATED, "SlotsChanged"): starting.note_slots,
    (t.CREATED, "CancelRequested"): ending.cancel_unstarted,
    (t.CREATED, "GlobalFailure"): ending.fail_unstarted,
    (t.WAITING, "SlotsChanged"): starting.waiting_slots,
    (t.WAITING, "RequirementsUpdated"): starting.waiting_requirements,
    (t.WAITING, "TimerFired"): starting.waiting_timer,
    (t.WAITING, "AttemptStartFailed"): starting.waiting_attempt_gone,
    (t.WAITING, "AttemptStopped"): starting.waiting_attempt_gone,
    (t.WAITING, "AttemptFailed"): starting.waiting_attempt_gone,
    (t.WAITING, "AttemptFinished"): starting.waiting_finished,
    (t.WAITING, "CancelRequested"): ending.cancel_unstarted,
    (t.WAITING, "GlobalFailure"): ending.fail_unstarted,
    (t.CREATING, "AttemptRunning"): executing.creating_running,
    (t.CREATING, "StateRepartitioned"): starting.creating_repartitioned,
    (t.EXECUTING, "StateRepartitioned"): executing.executing_repartitioned,
    (t.RESCALING, "StateRepartitioned"): repartition.found_late,
    (t.CREATING, "AttemptStartFailed"): starting.creating_failed,
    (t.CREATING, "AttemptFailed"): starting.creating_failed,
    (t.CREATING, "AttemptStopped"): starting.creating_stopped,
    (t.CREATING, "AttemptMisplaced"): misplacing.creating_misplaced,
    (t.CREATING, "AttemptFinished"): ending.attempt_finished,
    (t.CREATING, "TimerFired"): starting.creating_timer,
    (t.CREATING, "SlotsChanged"): starting.creating_slots,
    (t.CREATING, "RequirementsUpdated"): starting.noted_requirements,
    (t.CREATING, "CancelRequested"): ending.cancel,
    (t.CREATING, "GlobalFailure"): starting.creating_global_failure,
    (t.RETRYING, "TimerFired"): starting.retrying_timer,
    (t.RETRYING, "SlotsChanged"): starting.note_slots,
    (t.RETRYING, "RequirementsUpdated"): starting.noted_requirements,
    (t.RETRYING, "CancelRequested"): ending.cancel_unstarted,
    (t.RETRYING, "GlobalFailure"): ending.fail_unstarted,
    (t.EXECUTING, "RequirementsUpdated"): executing.executing_requirements,
    (t.EXECUTING, "SlotsChanged"): executing.executing_slots,
    (t.EXECUTING, "BatchCompleted"): executing.executing_batch,
    (t.EXECUTING, "BatchAborted"): executing.executing_batch_aborted,
    (t.EXECUTING, "PlanApplied"): executing.executing_plan_applied,
    (t.EXECUTING, "TimerFired"): executing.executing_timer,
    (t.RESCALING, "PlanApplied"): rescaling.rescaling_plan_applied,
    (t.RESCALING, "BatchCompleted"): rescaling.rescaling_batch,
    (t.RESCALING, "RequirementsUpdated"): rescaling.rescaling_requirements,
    (t.RESCALING, "SlotsChanged"): rescaling.rescaling_slots,
    (t.RESCALING, "TimerFired"): rescaling.rescaling_timer,
    (t.STOPPING, "AttemptStopped"): stopping.stopping_stopped,
    (t.STOPPING, "RequirementsUpdated"): starting.noted_requirements,
    (t.STOPPING, "SlotsChanged"): starting.note_slots,
    (t.STOPPING, "TimerFired"): stopping.stopping_timer,
    (t.STOPPING, "BatchCompleted"): stopping.stopping_batch,
    (t.STOPPING, "PlanApplied"): stopping.stopping_plan_applied,
    (t.STOPPING, "StopRequested"): stopping.stopping_requested,
    (t.RESTARTING, "AttemptStopped"): restarting.restarting_stopped,
    (t.RESTARTING, "BatchCompleted"): restarting.restarting_batch,
    (t.RESTARTING, "PlanApplied"): restarting.restarting_batch,
    (t.RESTARTING, "AttemptStartFailed"): restarting.restarting_failed,
    (t.RESTARTING, "AttemptFailed"): restarting.restarting_failed,
    (t.RESTARTING, "AttemptFinished"): restarting.restarting_finished,
    (t.RESTARTING, "GlobalFailure"): restarting.restarting_global_failure,
    (t.RESTARTING, "TimerFired"): restarting.restarting_timer,
    (t.RESTARTING, "SlotsChanged"): starting.note_slots,
    (t.RESTARTING, "RequirementsUpdated"): starting.noted_requirements,
    (t.RESTARTING, "CancelRequested"): ending.cancel,
    (t.WAITING, "VersionRequested"): replacing.waiting_requested,
    (t.CREATING, "VersionRequested"): replacing.creating_requested,
    (t.RETRYING, "VersionRequested"): replacing.retrying_requested,
    (t.RESTARTING, "VersionRequested"): replacing.restarting_requested,
    (t.EXECUTING, "VersionRequested"): replacing.running_requested,
    (t.RESCALING, "VersionRequested"): replacing.running_requested,
}
for _phase in (t.EXECUTING, t.RESCALING, t.STOPPING):
    _BY_NAME[_phase, "AttemptFailed"] = restarting.running_failed
    _BY_NAME[_phase, "AttemptStartFailed"] = restarting.running_start_failed
    _BY_NAME[_phase, "GlobalFailure"] = restarting.running_global_failure
    _BY_NAME[_phase, "AttemptFinished"] = ending.attempt_finished
    _BY_NAME[_phase, "CancelRequested"] = ending.cancel
_BY_NAME[t.STOPPING, "QueryFailed"] = local_failover.stopping_query_failed
for _phase in (t.RESTARTING, t.FAILING, t.CANCELING):
    _BY_NAME[_phase, "QueryFailed"] = local_failover.noted_query_failed
for _phase in (t.EXECUTING, t.RESCALING):
    _BY_NAME[_phase, "QueryFailed"] = local_failover.query_failed
    _BY_NAME[_phase, "QueryRecovered"] = local_failover.query_recovered
    _BY_NAME[_phase, "DriverContact"] = local_failover.driver_contact
    _BY_NAME[_phase, "AttemptMisplaced"] = misplacing.running_misplaced
    _BY_NAME[_phase, "AttemptStopped"] = restarting.running_stopped
    _BY_NAME[_phase, "StopRequested"] = stopping.stop_requested
for _phase in (t.FAILING, t.CANCELING):
    for _event in ("AttemptStopped", "AttemptStartFailed", "AttemptFailed", "AttemptFinished"):
        _BY_NAME[_phase, _event] = ending.ended_attempt_gone
    _BY_NAME[_phase, "GlobalFailure"] = ending.ended_global_failure
    _BY_NAME[_phase, "TimerFired"] = ending.ended_timer
    _BY_NAME[_phase, "RequirementsUpdated"] = ending.ended_requirements
    _BY_NAME[_phase, "SlotsChanged"] = starting.note_slots
_BY_NAME[t.FAILING, "CancelRequested"] = ending.cancel
for _phase in t.PHASES:
    if _phase != t.FINISHED:
        _BY_NAME[_phase, "SuspendRequested"] = ending.suspend
        _BY_NAME[_phase, "SlotShareUpdated"] = slot_declaration.take_share

_CLASSES: Final[dict[str, type]] = {one.__name__: one for one in Event.__args__}
_HANDLERS: Final[dict[tuple[str, type], Handler]] = {
    (phase, _CLASSES[event]): handler for (phase, event), handler in _BY_NAME.items()
}

# What is another thing for a BATCH job: FLIP-160 has one scheduler for each type of job. They share how attempts start
# and end, and differ in what an attempt does.
_BATCH_HANDLERS: Final[dict[tuple[str, type], Handler]] = {
    (t.CREATING, AttemptRunning): batch.begin,
    (t.EXECUTING, RegionFinished): batch.region_finished,
    (t.EXECUTING, RegionFailed): batch.region_failed,
    (t.EXECUTING, RequirementsUpdated): batch.batch_requirements,
    (t.EXECUTING, SlotsChanged): batch.batch_slots,
    (t.EXECUTING, TimerFired): batch.batch_timer,
}

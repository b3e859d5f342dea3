"""Changed bounds and slots, as every phase applies them, and the timers of a wait for slots.

While the cluster is unreachable, its slots are not known: the held slots may be lost, and none can come. So
nothing is started and no wait ends; when the cluster is reachable again, the waits begin again.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Final

from app.model.job_state.changes import Change, Patch, TakenBack
from app.model.jobgraph import InPlace, JobType
from app.model.requirements import Requirements, changed_between
from app.model.rescale import TriggerCause
from app.model.value import evolve
from app.scheduler.adaptive import (
    bounds_queue,
    repartition,
    timeline,
    transition_manager,
    trial,
)
from app.scheduler.adaptive.blame import last_taken_back
from app.scheduler.adaptive.draft import Draft, take_bounds
from app.scheduler.adaptive.events import BoundsUpdated, RequirementsUpdated, SlotsChanged
from app.scheduler.adaptive.goal import Goal, goal_of
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.transition_manager import Outlook, Timing

WAIT_TIMER: Final = "wait-timeout"

FLINK_STABILIZATION_MS: Final = 10_000
"""What production Flink waits for the slots of the upper bounds, by default."""


def created_bounds(draft: Draft, event: BoundsUpdated) -> None:
    """Take over new bounds of a job that is not scheduled yet, and has neither a record nor slots."""
    take_bounds(draft, event)
    repartition.adopt_free(draft)


def replace_bounds(draft: Draft, event: BoundsUpdated) -> None:
    """Apply new bounds: the open record ends, and one for the update begins."""
    state = draft.state
    was, update = state.requirements, event if isinstance(event, RequirementsUpdated) else None
    undone = None if update is None else update.undoes
    may_be_back = state.trial.taken_back or state.queued or state.timeline.change
    taken = last_taken_back(state) if may_be_back else None
    if taken is None and isinstance(undone, Change):
        taken = undone.taken_back
    how = _end_open_record(draft, update)
    cause, lifted = _take_over(draft, event, taken)
    if draft.state.partitions.repartition is not None:
        repartition.make_way(draft)
    if goal_of(draft).whole.graph is not draft.state.graph:
        repartition.adopt_free(draft)
    _tell_of_bounds(draft, how, cause, update)
    if update is None:
        bounds_queue.take_slots(draft, partial(replace_bounds, draft))
    if update is not None and update.patch is None:
        _remember(draft, was, taken if lifted else None, undone=undone is not None)
    if not lifted and taken is not None and last_taken_back(draft.state) is None:
        draft.set_part("trial", taken_back=taken, watch=None)


class _Telling(Enum):
    """How the history tells of other bounds once they are taken over."""

    BY_A_RECORD = 1
    BY_A_CLOSED_RECORD = 2
    BY_THE_OPEN_RECORD = 3


def _end_open_record(draft: Draft, update: RequirementsUpdated | None) -> _Telling:
    """End the open record because of other bounds, if it does not go on; and how is told of these. ``update``: None if
    it is a scaling policy."""
    if update is not None and update.patch is not None:
        timeline.leave_record_in_force(draft)
        return _Telling.BY_A_RECORD if draft.state.timeline.open is None else _Telling.BY_THE_OPEN_RECORD
    undone = None if update is None else update.undoes
    if update is None or undone is None:
        timeline.overtake_record(draft)
        return _Telling.BY_A_RECORD
    if isinstance(undone, Change) and _is_of_other_bounds(draft.state, undone):
        return _Telling.BY_A_CLOSED_RECORD
    timeline.overtake_record(draft, _what_came_back(draft.state, undone, update.why))
    return _Telling.BY_A_RECORD


def _tell_of_bounds(
    draft: Draft, how: _Telling, cause: TriggerCause, update: RequirementsUpdated | None
) -> None:
    """Other bounds were taken over, in whose record the numbers are those of now."""
    message, rollback_of, patch = None, None, None
    if update is not None:
        message, patch = update.why or None, update.patch
        if patch is None and update.undoes is not None:
            message = f"Takes back the bounds of version {update.undoes.version}: {update.why}"
            rollback_of = update.undoes.record or None
    if how is _Telling.BY_A_RECORD:
        timeline.open_record(draft, cause, message=message, rollback_of=rollback_of, asked=patch)
    elif how is _Telling.BY_A_CLOSED_RECORD:
        timeline.redraw(draft)
        timeline.add_closed_record(draft, cause, message, rollback_of=rollback_of)
    else:
        timeline.keep_open(draft)
        timeline.note(draft, message or "")


def _remember(draft: Draft, was: Requirements, lifted: TakenBack | None, *, undone: bool) -> None:
    """What comes back if the change of bounds that was just made, after ``was``, is taken back. ``lifted``: what had
    been taken back, and may be tried again by these bounds. ``undone``: they come back themselves."""
    state, open_ = draft.state, draft.state.timeline.open
    changed = changed_between(was, state.requirements)
    # What has waited, and is applied with them, is taken back by itself.
    changed -= {
        vertex
        for one in state.queued
        if one.begun is not None and one.version != state.requirements.version
        for vertex in one.vertices
    }
    if undone or not changed:
        draft.set_timeline(change=None)
        return
    former = tuple(pair for pair in was.bounds if pair[0] in changed)
    partitions = tuple(pair for pair in was.state_partitions if pair[0] in changed)
    record = 0 if open_ is None else open_.number
    draft.set_timeline(change=Change(state.requirements.version, record, former, partitions, lifted))


def _take_over(draft: Draft, event: BoundsUpdated, taken: TakenBack | None) -> tuple[TriggerCause, bool]:
    """The cause of a record for ``event``; and whether what was ``taken`` back, or given up, may be tried again: it may
    if other bounds count now, or if the same ones are declared once more."""
    declared, refused = draft.state.requirements, draft.state.partitions.refused
    if taken is None and refused is None:
        return take_bounds(draft, event), True
    counted = draft.state.bounds
    cause = take_bounds(draft, event)
    update = event if isinstance(event, RequirementsUpdated) else None
    counts = draft.state.bounds
    same = (counts.bounds, counts.state_partitions) == (counted.bounds, counted.state_partitions)
    if same and not (update is not None and update.requirements.same_as(declared)):
        if refused is not None and refused.requirements_uuid == declared.uuid:
            draft.set_part("partitions", refused=evolve(refused, requirements_uuid=counts.uuid))
        return cause, False
    if update is None:
        draft.set_part("partitions", refused=None)
    elif update.undoes is not None:
        return cause, False
    trial.allow_retry(draft)
    return cause, True


def _is_of_other_bounds(state: JobState, undone: Change) -> bool:
    """Whether the open record is of other bounds than ``undone``, for which no plan was made yet: it goes on."""
    record = state.timeline.open
    if record is None or record.has_plan:
        return False
    return record.number != undone.record and record.cause.is_asked


def _what_came_back(state: JobState, undone: Patch | Change, why: str) -> str:
    """For the record that ends because bounds come back, which may be that of something else."""
    record = state.timeline.open
    if record is not None and record.number == undone.record:
        return f"{why} The former bounds are back."
    return f"The bounds of version {undone.version} were taken back meanwhile; the next record is for what is left."


def replace_slots(draft: Draft, event: SlotsChanged) -> None:
    slots = {slot.id: slot for slot in event.slots}
    state = draft.state
    since_ms = state.supply.away_since_ms if state.cluster_unreachable else draft.now_ms
    has_all = state.usable_slots >= state.declared_within_cap
    if state.supply.cap_raise is not None and (has_all or not state.slot_ids <= slots.keys()):
        # What comes from now on comes for another reason.
        draft.set_part("supply", cap_raise=None)
    draft.set(slots=tuple(slots.values()))
    draft.set_part(
        "supply",
        allowed=event.allowed,
        reason=event.reason,
        coming=event.coming,
        stayed=tuple([one for one in draft.state.supply.stayed if one in slots]),
        away_since_ms=since_ms if event.cluster_unreachable else None,
    )
    trial.allow_retry_if_cluster_changed(draft)
    bounds_queue.take_slots(draft, partial(replace_bounds, draft))


def arm_wait(draft: Draft) -> None:
    """Arm the timer after which a start without the slots of its lower bounds has failed."""
    wait_ms = draft.state.options.submission_wait_ms
    if wait_ms >= 0 and not draft.state.cluster_unreachable:
        draft.arm(WAIT_TIMER, draft.now_ms + wait_ms)


def wait_anew(draft: Draft) -> None:
    """The cluster has become unreachable or reachable: the wait ends or begins. Nothing before it counts."""
    draft.set_phase(manager=transition_manager.start(draft.now_ms, 0))
    draft.disarm(WAIT_TIMER, *transition_manager.TIMERS)
    arm_wait(draft)


def waiting_outlook(state: JobState, goal: Goal) -> Outlook:
    """No attempt is started while another may live, nor while the cluster is unreachable, whatever the slots."""
    held = 0 if state.driver.alive or state.cluster_unreachable else state.usable_slots
    timing = Timing(stabilization_ms=stabilization_ms(state))
    if not held:
        return Outlook(sufficient=False, desired=False, timing=timing)
    # Bounds that wait do not keep a job waiting that can run by those that hold, nor start one that cannot.
    minimal, wanted = goal.now.minimal, goal.wanted
    if state.queued:
        wanted = min(wanted, goal.now.desired)
    elif goal.whole is not goal.now and state.open_change is None:
        minimal = goal.whole.minimal
    return Outlook(sufficient=held >= minimal, desired=held >= wanted, timing=timing)


def stabilization_ms(state: JobState) -> int:
    """How long a start that has the slots of its lower bounds waits for more. Where it is not set, only slots that will
    come are waited for: others are added in place whenever they come, and tasks of a BATCH job take turns."""
    set_ms = state.options.submission_stabilization_ms
    if set_ms is not None:
        return set_ms
    streaming = state.graph.type is JobType.STREAMING
    by_restart = streaming and not all([one.in_place is InPlace.YES for one in state.graph.vertices])
    return FLINK_STABILIZATION_MS if by_restart or state.supply.coming else 0

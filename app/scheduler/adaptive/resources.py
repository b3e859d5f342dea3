"""Other bounds and other slots, as every phase takes them over, and what a wait for slots waits for.

While the cluster is unreachable nothing is known of its slots: those held may be gone, and none can come. So nothing is
started, and no wait is over; when the cluster is reachable again the waits begin anew.
"""

from __future__ import annotations

from typing import Final

from app.model.jobgraph import JobType
from app.model.rescale import TriggerCause
from app.scheduler.adaptive import (
    hold,
    pending,
    repartition,
    rollback,
    slot_declaration,
    timeline,
    transition_manager,
)
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import BoundsUpdated, RequirementsUpdated, SlotsChanged
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.state import JobState, Manager
from app.scheduler.adaptive.transition_manager import Outlook, Timing

WAIT_TIMER: Final = "wait-timeout"


def take_bounds(draft: Draft, event: BoundsUpdated) -> TriggerCause:
    """Note other requirements or another scaling policy. The cause of a record for it."""
    if isinstance(event, RequirementsUpdated):
        draft.set(requirements=event.requirements)
        return TriggerCause.UPDATE_REQUIREMENT
    # What was refused under the policy before may be tried again, as with other requirements.
    draft.set(policy=event.policy, repartition_refused=None)
    return TriggerCause.UPDATE_POLICY


def created_bounds(draft: Draft, event: BoundsUpdated) -> None:
    """Take over new bounds of a job that is not scheduled yet, and has neither a record nor slots."""
    declared, was = draft.state.requirements, pending.before(draft.state)
    if isinstance(event, RequirementsUpdated):
        pending.overtake(draft, event)
    take_bounds(draft, event)
    if isinstance(event, RequirementsUpdated):
        pending.begin(draft, declared, was, event)
    repartition.adopt_free(draft)


def replace_bounds(draft: Draft, event: BoundsUpdated) -> None:
    """Take over new bounds: the open record ends, one for the update begins, and the cluster is told."""
    declared, was = draft.state.requirements, pending.before(draft.state)
    undone, why, told = None, "", []
    if isinstance(event, RequirementsUpdated):
        undone, why, told = event.undoes, event.why, pending.overtake(draft, event)
    timeline.overtake_record(draft, None if undone is None else _what_came_back(draft.state, undone, why))
    if undone is None:
        rollback.lift(draft)
    cause = take_bounds(draft, event)
    repartition.adopt_free(draft)
    rollback_of = None
    if undone is not None:
        told.insert(0, f"Takes back the bounds of version {undone.version}: {why}")
        rollback_of = undone.record or None
    timeline.open_record(draft, cause, message=" ".join(told) or None, rollback_of=rollback_of)
    if isinstance(event, RequirementsUpdated):
        pending.begin(draft, declared, was, event)
    slot_declaration.declare(draft)


def _what_came_back(state: JobState, undone: Pending, why: str) -> str:
    """For the record that ends because bounds come back, which may be that of other ones."""
    record = state.timeline.open
    if record is not None and record.number == undone.record:
        return f"{why} The former bounds are back."
    return f"The bounds of version {undone.version} were taken back meanwhile; the next record is for what is left."


def replace_slots(draft: Draft, event: SlotsChanged) -> None:
    slots = tuple({slot.id: slot for slot in event.slots}.values())
    since_ms = draft.state.away_since_ms if draft.state.cluster_unreachable else draft.now_ms
    draft.set(
        slots=slots,
        allowed=event.allowed,
        slots_reason=event.reason,
        away_since_ms=since_ms if event.cluster_unreachable else None,
    )
    rollback.lift_if_cluster_changed(draft)


def arm_wait(draft: Draft) -> None:
    """How long slots are waited for from now on."""
    wait_ms = draft.state.options.submission_wait_ms
    if wait_ms >= 0 and not draft.state.cluster_unreachable:
        draft.arm(WAIT_TIMER, draft.now_ms + wait_ms)


def wait_anew(draft: Draft) -> None:
    """The cluster has become unreachable or reachable: the wait ends or begins. Nothing before it counts."""
    draft.set_phase(manager=transition_manager.start(draft.now_ms, 0))
    draft.disarm(WAIT_TIMER, *transition_manager.TIMERS)
    arm_wait(draft)


def waiting_outlook(state: JobState) -> Outlook:
    """No attempt is started while another may live, nor while the cluster is unreachable, whatever the slots."""
    held = 0 if state.attempt_alive or state.cluster_unreachable else state.usable_slots
    # Bounds that wait for their deadline do not keep a job waiting that can run by the former ones.
    former = hold.held_back(state)
    wanted = state.wanted_slots if former is None else min(former.desired, state.wanted_slots)
    # Tasks of a BATCH job take turns: it has no reason to wait for more slots than it needs.
    batch = state.graph.type is JobType.BATCH
    return Outlook(
        sufficient=held > 0 and held >= state.declared_minimal,
        desired=held > 0 and held >= wanted,
        timing=Timing(stabilization_ms=0 if batch else state.options.submission_stabilization_ms),
    )


def arm_manager(draft: Draft, moved: Manager, outlook: Outlook) -> None:
    """Hold exactly the timer that the manager needs."""
    draft.disarm(*transition_manager.TIMERS)
    due = transition_manager.next_due_ms(moved, outlook)
    if due is not None:
        draft.arm(*due)

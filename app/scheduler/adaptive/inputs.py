"""Other bounds and other slots, as every phase takes them over before it draws its own conclusions."""

from __future__ import annotations

from app.model.rescale import TriggerCause
from app.scheduler.adaptive import repartition, rollback, slot_declaration, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import RequirementsUpdated, SlotsChanged


def replace_requirements(draft: Draft, event: RequirementsUpdated) -> None:
    """Take over new bounds: the open record ends, one for the update begins, and the cluster is told."""
    timeline.overtake_record(draft)
    rollback.lift(draft)
    draft.set(requirements=event.requirements)
    repartition.adopt_free(draft)
    timeline.open_record(draft, TriggerCause.UPDATE_REQUIREMENT)
    slot_declaration.declare(draft)


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

"""The deadline of bounds that still wait for their slots: COMMIT or ROLLBACK."""

from __future__ import annotations

from collections.abc import Callable

from app.model.requirements import OnTimeout
from app.model.rescale import TriggerCause
from app.scheduler.adaptive import (
    executing,
    hold,
    pending,
    rescaling,
    slot_declaration,
    starting,
    timeline,
)
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import RequirementsUpdated
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.state import Executing, JobState, Rescaling, WaitingForResources

Update = Callable[[Draft, RequirementsUpdated], None]
"""Takes other bounds over, in whatever phase the job is."""


def due(draft: Draft, update: Update) -> None:
    """Do what was asked for in case of a timeout.

    At most one change of bounds comes back in a step, as each step stores one version of the requirements. The timer of
    another one that is due stays due.
    """
    for version in [one.version for one in draft.state.pending]:
        one = next((other for other in draft.state.pending if other.version == version), None)
        if one is None or one.deadline is None or one.begun or one.deadline.at_ms > draft.now_ms:
            continue
        reason, why = f"The deadline of version {one.version} passed.", _why(draft.state, one)
        back = pending.undoing(draft.state, one, one.requested_by, f"{why}.", reason)
        if one.deadline.on_timeout is OnTimeout.COMMIT:
            _commit(draft, one, why)
        elif (needed := slot_declaration.needed_beyond_cap(draft.state, back.requirements)) is not None:
            # A lower cap was set while they waited.
            kept = f"their lower bounds need {needed} slots, and the cap is {draft.state.share.cap}"
            _commit(draft, one, f"The former bounds do not come back: {kept}. {why}")
        else:
            update(draft, back)
            return


def _commit(draft: Draft, one: Pending, why: str) -> None:
    """The bounds count from now on, whatever the slots. The record of it is by whoever has declared them."""
    pending.drop(draft, one)
    state, minimal = draft.state, draft.demand.minimal
    then = (
        "the bounds are brought into force as far as they allow"
        if state.usable_slots >= minimal
        else f"the lower bounds need {minimal}, so the job is left as it is, and the bounds stay declared"
    )
    if state.taken_back is not None:
        then = "they stay declared, and what was taken back is not tried again by them"
    message, record = f"{why}; {then}.", state.timeline.open
    if record is not None and record.number == one.record and not timeline.has_plan(record):
        timeline.note(draft, message)
    elif record is not None and record.cause.is_asked and not timeline.leave_record_in_force(draft):
        timeline.tell(draft, TriggerCause.UPDATE_REQUIREMENT, message, asked=one)
    else:
        timeline.overtake_record(draft, f"The bounds of version {one.version} count from now on.")
        timeline.open_record(draft, TriggerCause.UPDATE_REQUIREMENT, message=message, asked=one)
    slot_declaration.declare(draft)
    phase = draft.state.phase
    if isinstance(phase, Executing):
        executing.review_bounds(draft)
    elif isinstance(phase, WaitingForResources):
        starting.review_waiting(draft)
    elif isinstance(phase, Rescaling):
        rescaling.retarget(draft)


def _why(state: JobState, one: Pending) -> str:
    """Why ``one`` has not begun, without a full stop."""
    usable, needed = state.usable_slots, hold.slots_needed(state, one)
    if usable < needed:
        return f"Not all slots had come by the deadline: {needed} are wanted, and {usable} can be used"
    return f"The rescale had not begun by the deadline, although {usable} slots can be used"

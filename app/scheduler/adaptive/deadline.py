"""What happens at the deadline of bounds that still wait for their slots."""

from __future__ import annotations

from collections.abc import Callable

from app.model.requirements import OnTimeout
from app.scheduler.adaptive import executing, pending, rescaling, slot_declaration, starting, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import RequirementsUpdated
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.state import Executing, Rescaling, WaitingForResources

Update = Callable[[Draft, RequirementsUpdated], None]
"""Takes other bounds over, in whatever phase the job is."""


def due(draft: Draft, update: Update) -> None:
    """Do what was asked for in case of a timeout."""
    for version in [one.version for one in draft.state.pending]:
        one = next((other for other in draft.state.pending if other.version == version), None)
        if one is None or one.deadline is None or one.deadline.at_ms > draft.now_ms:
            continue
        if one.deadline.on_timeout is OnTimeout.ROLLBACK:
            why = f"Not all slots had come by the deadline: {_slots(draft)}."
            reason = f"The deadline of version {one.version} passed."
            update(draft, pending.undoing(draft.state, one, one.requested_by, why, reason))
        else:
            _commit(draft, one)


def _commit(draft: Draft, one: Pending) -> None:
    """The bounds count from now on, whatever the slots."""
    had = _slots(draft)
    pending.drop(draft, one)
    minimal, usable = draft.demand.minimal, draft.state.usable_slots
    then = (
        "the bounds are brought into force as far as they allow"
        if usable >= minimal
        else f"the lower bounds need {minimal}, so the job is left as it is, and the bounds stay declared"
    )
    timeline.note(draft, f"Not all slots had come by the deadline: {had}; {then}.")
    slot_declaration.declare(draft)
    phase = draft.state.phase
    if isinstance(phase, Executing):
        executing.review_bounds(draft)
    elif isinstance(phase, WaitingForResources):
        starting.review_waiting(draft)
    elif isinstance(phase, Rescaling):
        rescaling.retarget(draft)


def _slots(draft: Draft) -> str:
    state = draft.state
    return f"{state.wanted_slots} are wanted, and {state.usable_slots} can be used"

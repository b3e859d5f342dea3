"""Deciding a request to cancel a rescale, seeing the state that is current when its turn comes."""

from __future__ import annotations

from app.model.rescale import RescaleRecord, TriggerCause
from app.model.sentences import ended
from app.scheduler.adaptive.pending import undoing
from app.scheduler.adaptive.state import JobState
from app.worker.job.mailbox import RequestDecision
from app.worker.views import RequirementsResult, StateConflict


def decide_cancellation(
    state: JobState, record: RescaleRecord, requested_by: str | None, reason: str | None
) -> RequestDecision:
    """
    Raises:
        StateConflict: nothing of the rescale of ``record`` waits.
    """
    one = next((one for one in state.pending if one.record == record.number), None)
    if one is None:
        raise StateConflict(_refusal(state, record))
    who = f"Canceled by {requested_by}" if requested_by else "Canceled"
    why = ended(f"{who}: {reason}" if reason else who)
    event = undoing(state, one, requested_by, why, reason)
    return RequestDecision(event, RequirementsResult(event.requirements.version, changed=True))


def _refusal(state: JobState, record: RescaleRecord) -> str:
    what, now = f"Rescale {record.number} of job {state.job_id}", state.timeline.open
    if now is None or now.number != record.number:
        return f"{what} has ended: there is nothing of it to cancel. To change the bounds, declare others."
    if record.cause is not TriggerCause.UPDATE_REQUIREMENT:
        return (
            f"{what} does not follow from declared bounds ({record.cause}), so there are none to take back."
        )
    if record.rollback_of is not None:
        return f"{what} takes back rescale {record.rollback_of}. To change the bounds, declare others."
    return (
        f"{what} cannot be canceled any more: it is being carried out. To change the bounds, declare others."
    )

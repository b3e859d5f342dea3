"""A request to cancel a rescale: accepted or refused by the state at the moment when it is processed."""

from __future__ import annotations

from dataclasses import dataclass

from app.model.rescale import RescaleRecord, TriggerCause
from app.model.sentences import ended
from app.scheduler.adaptive.pending import undoing
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.state import JobState
from app.worker.job.idempotency import request_hash_of
from app.worker.job.mailbox import RequestDecision
from app.worker.requests.requirements import refuse_stale
from app.worker.views import RequirementsResult, StateConflict


@dataclass(frozen=True, slots=True)
class RescaleCancellation:
    """A DELETE of the rescale ``uuid``. ``if_match`` is the version of If-Match, of the requirements."""

    uuid: str
    if_match: int | None = None
    requested_by: str | None = None
    reason: str | None = None
    idempotency_key: str | None = None


def cancellation_hash(asked: RescaleCancellation) -> str:
    """What makes two requests with one Idempotency-Key the same request."""
    return request_hash_of(["cancel-rescale", asked.uuid, asked.if_match, asked.reason])


def decide_cancellation(
    state: JobState, record: RescaleRecord, asked: RescaleCancellation
) -> RequestDecision:
    """
    Raises:
        StateConflict: nothing of the rescale of ``record`` waits.
        StaleVersion: If-Match names another version of the requirements than the one in force.
    """
    refuse_stale(state, asked.if_match)
    one = next((one for one in state.pending if one.record == record.number), None)
    if one is None or one.begun:
        raise StateConflict(_refusal(state, record, one))
    who = f"Canceled by {asked.requested_by}" if asked.requested_by else "Canceled"
    why = ended(f"{who}: {asked.reason}" if asked.reason else who)
    event = undoing(state, one, asked.requested_by, why, asked.reason)
    return RequestDecision(event, RequirementsResult(event.requirements.version, changed=True))


def _refusal(state: JobState, record: RescaleRecord, begun: Pending | None) -> str:
    what, now = f"Rescale {record.number} of job {state.job_id}", state.timeline.open
    if begun is None and (now is None or now.number != record.number):
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

"""A PUT of a job's slot share: accepted or refused by the state at the moment when it is processed; and the
effect of its cap on bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.requirements import Requirements
from app.model.slot_share import SlotShare, beyond_cap
from app.scheduler.adaptive.events import SlotShareUpdated
from app.scheduler.adaptive.state import JobState
from app.scheduler.slots import Demand
from app.scheduler.step import status_of
from app.worker.job.idempotency import request_hash_of
from app.worker.job.mailbox import RequestDecision
from app.worker.views import RequirementsResult, StaleVersion, StateConflict


@dataclass(frozen=True, slots=True)
class SlotShareUpdate:
    """A PUT of a slot share. Its numbers are within their ranges; ``if_match`` is the version of If-Match."""

    weight: int
    priority: int
    cap: int | None
    if_match: int | None = None
    requested_by: str | None = None
    reason: str | None = None
    idempotency_key: str | None = None


def share_hash(update: SlotShareUpdate) -> str:
    """What makes two requests with one Idempotency-Key the same request. No PUT of requirements has this hash."""
    return request_hash_of(
        ["slot-share", update.weight, update.priority, update.cap, update.if_match, update.reason]
    )


def decide_share(state: JobState, update: SlotShareUpdate, now_ms: int) -> RequestDecision:
    """What a PUT of a slot share does, seeing the state that is current when its turn comes.

    Raises:
        StateConflict: the job has ended, or the cap is below its lower bounds.
        StaleVersion: If-Match names another version than the one in force.
    """
    status = status_of(state)
    if status.is_globally_terminal:
        raise StateConflict(
            f"Job {state.job_id} has reached the terminal state {status.value}: "
            "its slot share cannot be changed."
        )
    known = state.share
    if update.if_match is not None and update.if_match != known.version:
        raise StaleVersion(
            f"If-Match names version {update.if_match}, but the slot share is at version {known.version}: "
            "read it again and decide again."
        )
    if known.asks(update.weight, update.priority, update.cap):
        return RequestDecision(None, RequirementsResult(known.version, changed=False))
    conflict = beyond_cap(Demand.of(state.graph, state.bounds).minimal, update.cap)
    if conflict is not None:
        raise StateConflict(conflict)
    version = known.version + 1
    share = SlotShare(
        version, update.weight, update.priority, update.cap, update.requested_by, update.reason, now_ms
    )
    return RequestDecision(SlotShareUpdated(share), RequirementsResult(version, changed=True))


def refusal_by_cap(state: JobState, requirements: Requirements) -> str | None:
    """Why the cap in force does not allow ``requirements``; None if it does."""
    minimal = Demand.of(state.graph, requirements).minimal
    cap = state.share.cap
    if cap is None or cap >= minimal:
        return None
    return (
        f"The lower bounds need {minimal} slot(s), and the cap of the job is {cap}: ask for lower ones, or have the "
        f"cap raised first (PUT /jobs/{state.job_id}/slot-share)."
    )


def refusal_at_submission(graph: JobGraph, requirements: Requirements, options: JobOptions) -> list[str]:
    """A sentence if the cap of a graph is below its own lower bounds."""
    conflict = beyond_cap(Demand.of(graph, requirements).minimal, options.slots_cap)
    return [] if conflict is None else [f"config: Option slotwise.slots.cap: {conflict}"]

"""Deciding a request to stop a job, seeing the state that is current when its turn comes."""

from __future__ import annotations

from app.scheduler.adaptive.events import StopRequested
from app.scheduler.adaptive.state import Executing, JobState, Rescaling, StopWithSavepoint
from app.scheduler.step import status_of
from app.worker.job.mailbox import RequestDecision
from app.worker.views import StateConflict


def decide_stop(state: JobState, trigger: str, requested_by: str | None) -> RequestDecision:
    """
    Raises:
        StateConflict: the job does not run.
    """
    if state.stop is not None and state.stop.trigger_id == trigger:
        return RequestDecision(None, trigger)
    if not isinstance(state.phase, (Executing, Rescaling, StopWithSavepoint)):
        raise StateConflict(
            f"Job {state.job_id} cannot be stopped now: it is {status_of(state).value} ({state.phase.kind}), so "
            "there is no batch to finish. Stop it once it is RUNNING, or cancel it."
        )
    return RequestDecision(StopRequested(trigger, requested_by), trigger)

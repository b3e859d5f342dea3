"""A request to stop a job: accepted or refused by the state at the moment when it is processed; and Flink's
savepoints.
"""

from __future__ import annotations

from pathlib import Path

from app.model.ids import derive_id
from app.model.jobgraph import JobType
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import StopRequested
from app.scheduler.adaptive.state import Executing, JobState, Rescaling, Stop, StopWithSavepoint
from app.worker.job.mailbox import RequestDecision
from app.worker.refusals import StateConflict


def decide_stop(state: JobState, trigger: str, requested_by: str | None) -> RequestDecision:
    """Raises StateConflict: the job does not run."""
    if state.stop is not None and state.stop.trigger_id == trigger:
        return RequestDecision(None, trigger)
    if not isinstance(state.phase, (Executing, Rescaling, StopWithSavepoint)):
        raise StateConflict(
            f"Job {state.job_id} cannot be stopped now: it is {status_of(state).value} ({state.phase.kind}), so "
            "there is no batch to finish. Stop it once it is RUNNING, or cancel it."
        )
    return RequestDecision(StopRequested(trigger, requested_by), trigger)


def savepoint_id(job_id: str) -> str:
    """The trigger id of every savepoint of a job: nothing is kept of one, so that any server can answer."""
    return derive_id(job_id, "savepoint")


def savepoint_of(state: JobState, checkpoint: Path) -> Stop:
    """The savepoint of a job that runs on: its checkpoint, in which the last committed micro-batch is.

    Raises:
        StateConflict: there is none, or it is not known where it is.
    """
    job = f"Job {state.job_id}"
    if state.graph.type is not JobType.STREAMING:
        raise StateConflict(f"{job} is a BATCH job, which has no checkpoint.")
    if state.graph.program is not None:
        raise StateConflict(
            f"{job} runs a program, which chooses the places of its checkpoints: stop it, and the answer has them."
        )
    if not isinstance(state.phase, (Executing, Rescaling)) or state.trial.unproven:
        raise StateConflict(
            f"{job} has no savepoint now: it is {status_of(state).value} ({state.phase.kind}), and "
            f"{'has committed no micro-batch' if state.trial.unproven else 'no attempt runs'}."
        )
    return Stop(savepoint_id(state.job_id), "COMPLETED", location=str(checkpoint))

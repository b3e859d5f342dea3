"""The failure of the previous attempt, which is shown until the present attempt has processed something."""

from __future__ import annotations

from app.model.batch import RegionStatus
from app.model.job_state.failures import Failure
from app.scheduler.adaptive.state import (
    CreatingExecutionGraph,
    Executing,
    JobState,
    Restarting,
    RetryingExecutionGraphCreation,
    WaitingForResources,
)


def last_failure(state: JobState) -> Failure | None:
    """The failure that a job has not got over; None if there is none, and of a job that ends or has ended.

    A streaming job has got over it with the first batch of the next attempt (or with sources that have nothing), a
    BATCH job once no region has to run again.
    """
    last = next(
        (group[0] for group in reversed(state.recovery.failures) if group and not group[0].local), None
    )
    if last is None:
        return None
    match state.phase:
        case WaitingForResources() | RetryingExecutionGraphCreation() | Restarting():
            holds = last.attempt == state.attempt
        case CreatingExecutionGraph():
            holds = last.attempt >= state.attempt - 1
        case Executing(first_batch=processed):
            if state.batch is None:
                holds = not processed and last.attempt == state.attempt - 1
            else:
                holds = last.attempt >= state.attempt - 1 and _runs_again(state)
        case _:
            holds = False
    return last if holds else None


def _runs_again(state: JobState) -> bool:
    assert state.batch is not None
    return any(
        region.run > (1 if region.status is RegionStatus.RUNNING else 0)
        and region.status is not RegionStatus.FINISHED
        for region in state.batch.regions
    )

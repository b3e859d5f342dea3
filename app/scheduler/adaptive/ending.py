"""Failing, Canceling, Finished: how a job ends."""

from __future__ import annotations

from typing import Final

from app.model.job_state.failures import Failure
from app.model.rescale import TerminatedReason
from app.model.status import JobStatus
from app.model.value import evolve
from app.scheduler.adaptive import timeline
from app.scheduler.adaptive.draft import Draft, take_bounds
from app.scheduler.adaptive.effects import JobTerminated, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStartFailed,
    AttemptStopped,
    BoundsUpdated,
    CancelRequested,
    GlobalFailure,
    TimerFired,
)
from app.scheduler.adaptive.failures import failure_of, record_failure
from app.scheduler.adaptive.state import Canceling, Failing, Finished
from app.scheduler.adaptive.stops import STOP_TIMER, break_off_stop, mark_dead, order_stop

_CLOSING: Final = {
    JobStatus.FINISHED: TerminatedReason.JOB_FINISHED,
    JobStatus.CANCELED: TerminatedReason.JOB_CANCELED,
    JobStatus.FAILED: TerminatedReason.JOB_FAILED,
}


# ---- the ways out


def finish(
    draft: Draft,
    status: JobStatus,
    cause: str | None = None,
    *,
    closing: TerminatedReason | None = None,
) -> None:
    """Enter Finished."""
    exception = cause if status is JobStatus.FAILED else None
    timeline.close_record(draft, closing or _CLOSING[status], message=cause, exception=exception)
    break_off_stop(draft, cause or f"The job ended as {status} before it was stopped.")
    draft.enter(Finished(status, cause))
    mark_dead(draft)
    draft.set(slots=())
    draft.set_part("supply", idle_since_ms=(), declared=0, minimal=0)
    draft.emit(JobTerminated())


def fail(draft: Draft, failure: Failure) -> None:
    """Kill whatever of the job may live; then it is FAILED."""
    timeline.close_failed(draft, TerminatedReason.JOB_FAILED, failure.error)
    break_off_stop(draft, failure.error)
    draft.enter(Failing(failure))
    if not _kill(draft):
        finish(draft, JobStatus.FAILED, failure.error)


def cancel(draft: Draft, event: CancelRequested) -> None:
    """Kill whatever of the job may live; then it is CANCELED."""
    break_off_stop(draft, _close_canceled(draft, event))
    draft.enter(Canceling())
    if not _kill(draft):
        finish(draft, JobStatus.CANCELED)


def _close_canceled(draft: Draft, event: CancelRequested) -> str:
    message = f"The job was canceled{f' by {event.requested_by}' if event.requested_by else ''}."
    timeline.close_record(draft, TerminatedReason.JOB_CANCELED, message=message)
    return message


def _kill(draft: Draft) -> bool:
    """Kill the attempt and the process that waits, if they may live; False if neither can."""
    if not draft.state.driver.alive and not draft.state.driver.waits:
        return False
    order_stop(draft, StopMode.KILL)
    return True


# ---- handlers of phases without a running attempt, and of all phases


def cancel_unstarted(draft: Draft, event: CancelRequested) -> None:
    if draft.state.driver.alive or draft.state.driver.waits:
        cancel(draft, event)
    else:
        _close_canceled(draft, event)
        finish(draft, JobStatus.CANCELED)


def fail_unstarted(draft: Draft, event: GlobalFailure) -> None:
    failure = record_failure(draft, failure_of(draft, event), root=True)
    if draft.state.driver.alive or draft.state.driver.waits:
        fail(draft, failure)
    else:
        finish(draft, JobStatus.FAILED, failure.error)


def attempt_finished(draft: Draft, event: AttemptFinished) -> None:
    """Everything is processed and committed: the job is done, also while it was being stopped or restarted."""
    mark_dead(draft)
    stop = draft.state.stop
    if stop is not None and stop.state == "IN_PROGRESS":
        draft.set(stop=evolve(stop, state="COMPLETED"))
    finish(draft, JobStatus.FINISHED)


# ---- handlers of Failing and Canceling


def ended_attempt_gone(
    draft: Draft, event: AttemptStopped | AttemptStartFailed | AttemptFinished | AttemptFailed
) -> None:
    """The attempt that Failing or Canceling waits for reported; it is the end unless something is still alive."""
    if isinstance(event, AttemptFailed | AttemptStartFailed):
        record_failure(draft, failure_of(draft, event))
    if isinstance(event, AttemptFailed) and not event.stopped:
        return
    mark_dead(draft)
    phase = draft.state.phase
    if isinstance(phase, Failing):
        finish(draft, JobStatus.FAILED, phase.failure.error)
    else:
        finish(draft, JobStatus.CANCELED)


def ended_timer(draft: Draft, event: TimerFired) -> None:
    if event.name == STOP_TIMER:
        order_stop(draft, StopMode.KILL)


def ended_bounds(draft: Draft, event: BoundsUpdated) -> None:
    """The bounds are kept for the record; a job that ends makes no use of them, and its history says so."""
    timeline.open_record(draft, take_bounds(draft, event))
    failing = isinstance(draft.state.phase, Failing)
    timeline.close_record(draft, TerminatedReason.JOB_FAILED if failing else TerminatedReason.JOB_CANCELED)

"""Failing, Canceling, Finished, and the exception history: how a job ends and what is remembered of failures."""

from __future__ import annotations

from typing import Final

from app.model.rescale import TerminatedReason
from app.model.status import JobStatus
from app.model.value import evolve
from app.scheduler.adaptive import resources, timeline, versions
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import JobTerminated, StopAttempt, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStartFailed,
    AttemptStopped,
    BoundsUpdated,
    CancelRequested,
    GlobalFailure,
    QueryFailed,
    RegionFailed,
    TimerFired,
)
from app.scheduler.adaptive.failure_state import Failure
from app.scheduler.adaptive.state import Canceling, Failing, Finished
from app.scheduler.adaptive.trial import ran_as_before

STOP_TIMER: Final = "stop-timeout"

MAX_CONCURRENT_FAILURES: Final = 32
"""Concurrent failures that are kept with one root failure."""

MAX_ERROR_CHARS: Final = 4_000
MAX_STACK_CHARS: Final = 40_000
"""What is kept of an error and of its stack, which are written with each state."""

_CLOSING: Final = {
    JobStatus.FINISHED: TerminatedReason.JOB_FINISHED,
    JobStatus.CANCELED: TerminatedReason.JOB_CANCELED,
    JobStatus.FAILED: TerminatedReason.JOB_FAILED,
}


# ---- shared by all phases


def failure_of(
    draft: Draft, event: AttemptFailed | AttemptStartFailed | GlobalFailure | QueryFailed | RegionFailed
) -> Failure:
    """``event`` as an entry of the exception history."""
    vertex = stack = None
    why, on_trial, by_files = "", False, False
    if isinstance(event, AttemptFailed | QueryFailed | RegionFailed):
        vertex, stack, why = event.vertex, event.stack, event.why
    if isinstance(event, AttemptFailed | QueryFailed):
        on_trial, by_files = not ran_as_before(draft.state, event.plan_version), event.by_files
    return Failure(
        _shortened(event.error, MAX_ERROR_CHARS),
        draft.now_ms,
        draft.state.attempt,
        vertex,
        None if stack is None else _shortened(stack, MAX_STACK_CHARS),
        why=_shortened(why, MAX_ERROR_CHARS),
        on_trial=on_trial,
        by_files=by_files,
    )


def _shortened(text: str, limit: int) -> str:
    """Both ends of ``text``: Java names the cause first, Python last."""
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


def note_failure(draft: Draft, event: GlobalFailure | QueryFailed) -> None:
    """The attempt is being ended already."""
    record_failure(draft, failure_of(draft, event))


def record_failure(draft: Draft, failure: Failure, *, root: bool = False) -> Failure:
    """Add ``failure`` to the history: to the entry of what ended its attempt, or (``root``) as a new one."""
    history = draft.state.failures
    last = history[-1][0] if history else None
    if last is not None and not root and last.attempt == failure.attempt and not last.local:
        if len(history[-1]) > MAX_CONCURRENT_FAILURES:
            return failure
        history = (*history[:-1], (*history[-1], failure))
    else:
        history = (*history, (failure,))
    draft.set(failures=history[-draft.state.options.exception_history_size :])
    return failure


def mark_dead(draft: Draft, *, driver_waiting: bool = False) -> None:
    """Nothing of the attempt writes any more, so no plan is in force."""
    state = draft.state
    if state.attempt_alive or state.plan is not None or state.driver_waiting != driver_waiting:
        draft.set(attempt_alive=False, driver_waiting=driver_waiting, plan=None)


def order_stop(draft: Draft, mode: StopMode) -> None:
    """Tell the attempt to stop, and look again after the stop timeout."""
    draft.emit(StopAttempt(draft.state.attempt, mode))
    draft.arm(STOP_TIMER, draft.now_ms + draft.state.options.stop_timeout_ms)


def break_off_stop(draft: Draft, error: str) -> None:
    """A stop that a client asked for cannot be completed; no effect if none is in progress."""
    stop = draft.state.stop
    if stop is not None and stop.state == "IN_PROGRESS":
        draft.set(stop=evolve(stop, state="COMPLETED", error=error))


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
    versions.drop(draft)
    draft.set(
        slots=(),
        plan=None,
        attempt_alive=False,
        driver_waiting=False,
        idle_since_ms=(),
        declared_slots=0,
        declared_minimal=0,
    )
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
    if not draft.state.attempt_alive and not draft.state.driver_waiting:
        return False
    order_stop(draft, StopMode.KILL)
    return True


# ---- handlers of phases without a running attempt, and of all phases


def cancel_unstarted(draft: Draft, event: CancelRequested) -> None:
    if draft.state.attempt_alive or draft.state.driver_waiting:
        cancel(draft, event)
    else:
        _close_canceled(draft, event)
        finish(draft, JobStatus.CANCELED)


def fail_unstarted(draft: Draft, event: GlobalFailure) -> None:
    failure = record_failure(draft, failure_of(draft, event), root=True)
    if draft.state.attempt_alive or draft.state.driver_waiting:
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
    timeline.open_record(draft, resources.take_bounds(draft, event))
    failing = isinstance(draft.state.phase, Failing)
    timeline.close_record(draft, TerminatedReason.JOB_FAILED if failing else TerminatedReason.JOB_CANCELED)

"""Failover: what a failure of a running attempt leads to.

A version or a rescale on trial is taken back; else the restart strategy is asked, and the job is restarted or fails.
"""

from __future__ import annotations

from app.model.job_state.failures import Failure, UserError
from app.model.jobgraph import JobType
from app.model.rescale import TriggerCause
from app.model.sentences import ended
from app.scheduler.adaptive import repeated_errors, restart_strategy, timeline, trial, versions
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.ending import fail
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptMisplaced,
    AttemptStartFailed,
    AttemptStopped,
    GlobalFailure,
    QueryFailed,
)
from app.scheduler.adaptive.failures import failure_of, record_failure
from app.scheduler.adaptive.state import Rescaling, Restarting
from app.scheduler.adaptive.stops import CLUSTER_RETRY_MS, break_off_stop, mark_dead
from app.scheduler.adaptive.versions import Coming


def handle_failure(
    draft: Draft,
    failure: Failure,
    *,
    stopped: bool,
    recoverable: bool,
    driver_waiting: bool = False,
    cause: AttemptFailed | QueryFailed | None = None,
) -> None:
    """Take a version or a rescale back; or ask the restart strategy, then restart or fail.

    ``stopped``: nothing of the attempt writes any more. ``cause``: what may be blamed on a rescale that is on trial.
    """
    record_failure(draft, failure)
    found = trial.blamed(draft, failure, cause, recoverable=recoverable)
    if stopped:
        mark_dead(draft, driver_waiting=driver_waiting)
    if found is not None and trial.take_back(draft, found, failure, Restarting(0, failures=(failure,))):
        return
    before = draft.state.recovery.strategy
    delay_ms = backoff_or_fail(
        draft, failure, repeated_errors.of_event(draft.state, cause), recoverable=recoverable
    )
    if delay_ms is not None:
        break_off_stop(draft, failure.error)
        is_free = (
            isinstance(cause, AttemptFailed)
            and cause.outside
            and restart_strategy.is_first(before, draft.state)
        )
        _restart_after_failure(draft, failure, 0 if is_free else delay_ms)


def backoff_or_fail(
    draft: Draft, failure: Failure, repeated: UserError | None, *, recoverable: bool
) -> int | None:
    """The backoff after which the job may go on; None if it may not, and is failing now.

    ``repeated``: the error of the user's code that the failure was, if it was one.
    """
    if repeated is not None:
        repeated_errors.note(draft, repeated)
    state = draft.state
    why = repeated_errors.exhausted(state, repeated)
    if not recoverable:
        why = f"The failure is not recoverable. {failure.why}".rstrip()
    if why is None:
        decision = restart_strategy.of_job(state, draft.now_ms)
        draft.set_part("recovery", strategy=decision.state)
        if decision.delay_ms is not None:
            return decision.delay_ms
        why = f"Recovery is suppressed by {restart_strategy.describe(state.options.restart_strategy)}."
    cause = f"{ended(failure.error)} {why}"
    fail(draft, Failure(cause, failure.at_ms, failure.attempt, failure.vertex, failure.stack))
    return None


def _restart_uncounted(draft: Draft, event: AttemptFailed, backoff_ms: int, *, give_up: bool = False) -> None:
    """The job goes on, whatever it was: no restart strategy is asked."""
    failure = record_failure(draft, failure_of(draft, event))
    if event.stopped:
        mark_dead(draft)
    break_off_stop(draft, failure.error)
    _restart_after_failure(draft, failure, backoff_ms, give_up=give_up)


def _restart_after_failure(draft: Draft, failure: Failure, backoff_ms: int, *, give_up: bool = False) -> None:
    """Open a record for a failover. A lost slot and the loss of the driver after it are one failover."""
    record = draft.state.timeline.open
    goes_on = record is not None and record.is_of_lost_slot
    if goes_on:
        timeline.note(draft, failure.error)
    else:
        timeline.close_for_failover(draft, failure.error, failure.error)
    draft.enter(Restarting(backoff_ms=backoff_ms, failures=(failure,), give_up=give_up), failure.error)
    if not goes_on:
        timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=failure.error)
    draft.begin()


# ---- failures of a running attempt, for Executing, Rescaling and StopWithSavepoint


def running_failed(draft: Draft, event: AttemptFailed) -> None:
    state = draft.state
    if event.repartition:
        # It is as it was, also if it was passed over since: the driver had its order.
        _restart_uncounted(draft, event, 0, give_up=True)
    elif event.recoverable and state.is_before_query and (event.by_cluster or state.cluster_unreachable):
        # As if it had not started.
        _restart_uncounted(draft, event, CLUSTER_RETRY_MS)
    else:
        failure = failure_of(draft, event)
        handle_failure(draft, failure, stopped=event.stopped, recoverable=event.recoverable, cause=event)


def running_failed_as_a_whole(draft: Draft, event: AttemptStartFailed | GlobalFailure) -> None:
    stopped = isinstance(event, AttemptStartFailed)
    handle_failure(draft, failure_of(draft, event), stopped=stopped, recoverable=event.recoverable)


def running_stopped(draft: Draft, event: AttemptStopped) -> None:
    error = event.error or "The attempt stopped without having been asked to."
    failure = Failure(error, draft.now_ms, draft.state.attempt)
    handle_failure(draft, failure, stopped=True, recoverable=True, driver_waiting=event.driver_alive)


def running_misplaced(draft: Draft, event: AttemptMisplaced) -> None:
    """The attempt ends at a batch boundary, and the next one starts on another cluster at the same parallelism, if the
    slots are there. No failure, so no restart strategy and no backoff. The runs of a BATCH job have no such boundary.
    """
    trial.end_watch_if_over(draft)
    state, phase = draft.state, draft.state.phase
    plan = phase.target if isinstance(phase, Rescaling) else state.plan
    assert plan is not None
    timeline.leave_wait(draft)
    if draft.state.timeline.open is None:
        timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=event.why)
    else:
        timeline.note(draft, event.why)
    streaming = state.graph.type is JobType.STREAMING
    draft.enter(Restarting(backoff_ms=0, target=plan.parallelism if streaming else None), event.why)
    draft.begin()


# ---- another version of the job


def running_requested(draft: Draft, event: Coming) -> None:
    """The attempt ends at a batch boundary, and its process too: the new version gets a process of its own."""
    if not versions.take_up(draft, event):
        return
    trial.end_watch_if_over(draft)
    draft.enter(Restarting(backoff_ms=0, drain=True))
    draft.begin()

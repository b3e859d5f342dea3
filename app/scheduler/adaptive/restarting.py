"""Restarting: the attempt is stopped, then the backoff runs; and the decision whether a restart is allowed."""

from __future__ import annotations

from app.model.jobgraph import JobType
from app.model.plan import Rung
from app.model.rescale import RescaleRecord, TriggerCause
from app.model.sentences import ended
from app.scheduler.adaptive import (
    repartition,
    repeated_errors,
    restart_strategy,
    rollback,
    timeline,
    versions,
)
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import StopMode
from app.scheduler.adaptive.ending import (
    STOP_TIMER,
    attempt_finished,
    break_off_stop,
    fail,
    failure_of,
    mark_dead,
    order_stop,
    record_failure,
)
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptMisplaced,
    AttemptStartFailed,
    AttemptStopped,
    BatchCompleted,
    GlobalFailure,
    PlanApplied,
    QueryFailed,
    TimerFired,
)
from app.scheduler.adaptive.failure_state import Failure, UserError
from app.scheduler.adaptive.goal import goal_of
from app.scheduler.adaptive.starting import (
    BACKOFF_TIMER,
    CLUSTER_RETRY_MS,
    create_execution_graph,
    enter_waiting,
)
from app.scheduler.adaptive.state import Rescaling, Restarting


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
    found = rollback.blamed(draft, failure, cause)
    if stopped:
        mark_dead(draft, driver_waiting=driver_waiting)
    if versions.is_to_blame(draft, by_job=not recoverable or (cause is not None and not cause.outside)):
        take_version_back(draft, failure)
        return
    if found is not None and rollback.take_back(draft, found, failure, Restarting(0, failures=(failure,))):
        break_off_stop(draft, failure.error)
        begin_stop(draft, StopMode.KILL)
        return
    before = draft.state.restart
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
        draft.set(restart=decision.state)
        if decision.delay_ms is not None:
            return decision.delay_ms
        why = f"Recovery is suppressed by {restart_strategy.describe(state.options.restart_strategy)}."
    cause = f"{ended(failure.error)} {why}"
    fail(draft, Failure(cause, failure.at_ms, failure.attempt, failure.vertex, failure.stack))
    return None


def take_version_back(draft: Draft, failure: Failure) -> None:
    """Restart at the version before."""
    break_off_stop(draft, failure.error)
    versions.take_back(draft, failure, Restarting(0, failures=(failure,)))
    begin_stop(draft, StopMode.KILL)


def _restart_uncounted(draft: Draft, event: AttemptFailed, backoff_ms: int, *, give_up: bool = False) -> None:
    """The job goes on, whatever it was: no restart strategy is asked."""
    failure = record_failure(draft, failure_of(draft, event))
    if event.stopped:
        mark_dead(draft)
    break_off_stop(draft, failure.error)
    _restart_after_failure(draft, failure, backoff_ms, give_up=give_up)


def _restart_after_failure(draft: Draft, failure: Failure, backoff_ms: int, *, give_up: bool = False) -> None:
    """Open a record for a failover. A lost slot and the loss of the driver after it are one failover."""
    goes_on = lost_slot_record(draft.state.timeline.open)
    if goes_on:
        timeline.note(draft, failure.error)
    else:
        timeline.fail_over(draft, failure.error, failure.error)
    draft.enter(Restarting(backoff_ms=backoff_ms, failures=(failure,), give_up=give_up), failure.error)
    if not goes_on:
        timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=failure.error)
    begin_stop(draft, StopMode.KILL)


def lost_slot_record(record: RescaleRecord | None) -> bool:
    """Whether ``record`` is a failover that a lost slot began, while its attempt kept running."""
    if record is None or record.cause is not TriggerCause.RECOVERABLE_FAILOVER:
        return False
    return not any(span.state == Restarting.__name__ for span in record.spans) and record.rung in (
        None,
        Rung.IN_PLACE,
    )


def restart_for_rescale(draft: Draft, target: dict[str, int]) -> None:
    """Stop at a batch boundary and start again at ``target``. No failure, so no restart strategy and no backoff."""
    rollback.prove(draft)
    draft.enter(Restarting(backoff_ms=0, target=tuple(target.items())))
    draft.set(num_rescales=draft.state.num_rescales + 1)
    begin_stop(draft, StopMode.BOUNDARY)


def begin_stop(draft: Draft, mode: StopMode) -> None:
    """Restarting was entered: count it, and stop the attempt if there is any."""
    draft.set(num_restarts=draft.state.num_restarts + 1)
    if draft.state.attempt_alive:
        order_stop(draft, mode)
    else:
        _stopped(draft)


def _stopped(draft: Draft) -> None:
    """Nothing of the attempt writes any more: only now does the backoff start."""
    phase = draft.phase_as(Restarting)
    if phase.failures and (phase.give_up or not draft.state.is_before_query):
        repartition.failed_try(draft, phase.failures[0].error, final=phase.give_up)
    draft.set_phase(stopped=True)
    draft.disarm(STOP_TIMER)
    if phase.backoff_ms > 0:
        draft.arm(BACKOFF_TIMER, draft.now_ms + phase.backoff_ms)
    else:
        _go_on(draft)


def _go_on(draft: Draft) -> None:
    """Start at once if the target of the restart is still the attainable parallelism, else wait for slots.

    While the cluster is unreachable only a driver that waits can be trusted: it has its executors.
    """
    state = draft.state
    target = draft.phase_as(Restarting).target
    if state.cluster_unreachable and not state.driver_waiting:
        enter_waiting(draft)
    elif target is not None and dict(target) == goal_of(draft).whole.parallelism(state.usable_slots):
        create_execution_graph(draft)
    else:
        enter_waiting(draft)


# ---- handlers


def restarting_stopped(draft: Draft, event: AttemptStopped) -> None:
    if not draft.phase_as(Restarting).stopped:
        mark_dead(draft, driver_waiting=event.driver_alive)
        _stopped(draft)


def restarting_batch(draft: Draft, event: BatchCompleted | PlanApplied) -> None:
    """The last batch of the attempt, or its queries are idle. `rollback.note_batch` has noted it."""


def restarting_failed(draft: Draft, event: AttemptFailed | AttemptStartFailed) -> None:
    """The attempt may be dead by what the event says."""
    restarting_global_failure(draft, event)
    if event.stopped and not draft.phase_as(Restarting).stopped:
        mark_dead(draft)
        _stopped(draft)


def restarting_finished(draft: Draft, event: AttemptFinished) -> None:
    """It had processed everything when it was told to stop. If it is known to be dead, this was said before."""
    if not draft.phase_as(Restarting).stopped:
        attempt_finished(draft, event)


def restarting_global_failure(
    draft: Draft, event: AttemptFailed | AttemptStartFailed | GlobalFailure
) -> None:
    """Record it; the job restarts already."""
    failure = record_failure(draft, failure_of(draft, event))
    draft.set_phase(failures=(*draft.phase_as(Restarting).failures, failure)[:16])


def restarting_timer(draft: Draft, event: TimerFired) -> None:
    if event.name == STOP_TIMER:
        timeline.note(draft, "The attempt did not stop in time and is killed.")
        draft.set_phase(kill=True)
        order_stop(draft, StopMode.KILL)
    elif event.name == BACKOFF_TIMER:
        _go_on(draft)


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
    rollback.prove(draft)
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
    begin_stop(draft, StopMode.BOUNDARY if streaming else StopMode.KILL)

"""Restarting: the attempt is stopped first, then the backoff runs; and the decision whether to restart at all."""

from __future__ import annotations

from app.model.plan import Rung
from app.model.rescale import RescaleRecord, TerminatedReason, TriggerCause
from app.model.sentences import ended
from app.scheduler.adaptive import budget, repartition, restart_strategy, rollback, timeline, versions
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
    AttemptStartFailed,
    AttemptStopped,
    BatchCompleted,
    GlobalFailure,
    PlanApplied,
    QueryFailed,
    TimerFired,
)
from app.scheduler.adaptive.starting import BACKOFF_TIMER, create_execution_graph, enter_waiting
from app.scheduler.adaptive.state import Failure, Restarting
from app.scheduler.adaptive.trial import Trial


def handle_failure(
    draft: Draft,
    failure: Failure,
    *,
    stopped: bool,
    recoverable: bool,
    driver_waiting: bool,
    cause: AttemptFailed | QueryFailed | None = None,
) -> None:
    """Take a rescale back; or ask the restart strategy, then restart or fail.

    ``stopped``: nothing of the attempt writes any more. ``cause``: what may be blamed on a rescale that is on trial.
    """
    record_failure(draft, failure)
    found = rollback.blamed(draft, failure, cause)
    if stopped:
        mark_dead(draft, driver_waiting=driver_waiting)
    if versions.is_to_blame(draft, own=not recoverable or (cause is not None and not cause.outside)):
        take_version_back(draft, failure)
        return
    if found is not None and _take_back(draft, failure, found):
        return
    repeated = budget.of_event(draft.state, cause)
    if repeated is not None:
        budget.note(draft, repeated)
    state = draft.state
    if not recoverable:
        _fail(
            draft, failure, f"{ended(failure.error)} The failure is not recoverable. {failure.why}".rstrip()
        )
        return
    if (hopeless := budget.exhausted(state, repeated)) is not None:
        _fail(draft, failure, f"{ended(failure.error)} {hopeless}")
        return
    decision = restart_strategy.on_failure(
        state.options.restart_strategy, state.restart, draft.now_ms, state.job_id
    )
    draft.set(restart=decision.state)
    if decision.delay_ms is None:
        strategy = restart_strategy.describe(state.options.restart_strategy)
        _fail(draft, failure, f"{ended(failure.error)} Recovery is suppressed by {strategy}.")
        return
    break_off_stop(draft, failure.error)
    _restart_after_failure(draft, failure, decision.delay_ms)


def _take_back(draft: Draft, failure: Failure, found: Trial) -> bool:
    """Restart at the parallelism before. It is the rescale that failed: no restart strategy is asked, no backoff runs.

    So a failure that is final for an attempt is none for the job, which was well before.
    """
    taken = rollback.condemn(draft, found, failure.error)
    if taken is None:
        return False
    break_off_stop(draft, failure.error)
    rollback.close_failed(draft, taken, failure)
    draft.enter(Restarting(backoff_ms=0, failures=(failure,)), failure.error)
    rollback.open_rollback(draft, taken)
    draft.set(num_restarts=draft.state.num_restarts + 1, rung=Rung.NEW_DRIVER)
    stop_or_go_on(draft, StopMode.KILL)
    return True


def take_version_back(draft: Draft, failure: Failure) -> None:
    """Restart at the version before. It is the new version that failed: no restart strategy is asked."""
    break_off_stop(draft, failure.error)
    timeline.close_record(
        draft, TerminatedReason.EXCEPTION_OCCURRED, message=failure.error, exception=failure.error
    )
    message = versions.send_back(draft, failure.error)
    draft.enter(Restarting(backoff_ms=0, failures=(failure,)), failure.error)
    timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=message)
    draft.set(num_restarts=draft.state.num_restarts + 1, rung=Rung.NEW_DRIVER)
    stop_or_go_on(draft, StopMode.KILL)


def _redistribution_failed(draft: Draft, event: AttemptFailed) -> None:
    """The state is as it was, so the job goes on, whatever it was: no restart strategy is asked, no backoff runs."""
    failure = failure_of(draft, event)
    record_failure(draft, failure)
    if event.stopped:
        mark_dead(draft)
    break_off_stop(draft, failure.error)
    _restart_after_failure(draft, failure, 0, give_up=True)


def _fail(draft: Draft, failure: Failure, cause: str) -> None:
    fail(draft, Failure(cause, failure.at_ms, failure.attempt, failure.vertex, failure.stack))


def _restart_after_failure(draft: Draft, failure: Failure, backoff_ms: int, *, give_up: bool = False) -> None:
    """Open a record for a failover. A lost slot and the loss of the driver after it are one failover."""
    goes_on = lost_slot_record(draft.state.timeline.open)
    if goes_on:
        timeline.note(draft, failure.error)
    else:
        timeline.close_record(
            draft, TerminatedReason.JOB_FAILOVER_RESTARTING, message=failure.error, exception=failure.error
        )
    draft.enter(Restarting(backoff_ms=backoff_ms, failures=(failure,), give_up=give_up), failure.error)
    if not goes_on:
        timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=failure.error)
    draft.set(num_restarts=draft.state.num_restarts + 1, rung=Rung.NEW_DRIVER)
    stop_or_go_on(draft, StopMode.KILL)


def lost_slot_record(record: RescaleRecord | None) -> bool:
    """Whether ``record`` is a failover that a lost slot began, while its attempt kept running."""
    if record is None or record.cause is not TriggerCause.RECOVERABLE_FAILOVER:
        return False
    return not any(span.state == Restarting.__name__ for span in record.spans) and record.rung in (
        None,
        Rung.IN_PLACE,
    )


def restart_for_rescale(draft: Draft, target: dict[str, int], rung: Rung = Rung.QUERY_RESTART) -> None:
    """Stop at a batch boundary and start again at ``target``. No failure, so no restart strategy and no backoff."""
    rollback.prove(draft)
    draft.enter(Restarting(backoff_ms=0, target=tuple(target.items())))
    state = draft.state
    draft.set(num_restarts=state.num_restarts + 1, num_rescales=state.num_rescales + 1, rung=rung)
    stop_or_go_on(draft, StopMode.BOUNDARY)


def stop_or_go_on(draft: Draft, mode: StopMode) -> None:
    if draft.state.attempt_alive:
        order_stop(draft, mode)
    else:
        _stopped(draft)


def _restarting(draft: Draft) -> Restarting:
    phase = draft.state.phase
    assert isinstance(phase, Restarting)
    return phase


def _stopped(draft: Draft) -> None:
    """Nothing of the attempt writes any more: only now does the backoff start."""
    phase = _restarting(draft)
    if phase.failures:
        repartition.failed_try(draft, phase.failures[0].error, final=phase.give_up)
    draft.set_phase(stopped=True, reuse_driver=draft.state.driver_waiting)
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
    target = _restarting(draft).target
    if state.cluster_unreachable and not state.driver_waiting:
        enter_waiting(draft)
    elif target is not None and dict(target) == draft.goal.parallelism(state.usable_slots):
        create_execution_graph(draft)
    else:
        enter_waiting(draft)


# ---- handlers


def restarting_stopped(draft: Draft, event: AttemptStopped) -> None:
    if not _restarting(draft).stopped:
        mark_dead(draft, driver_waiting=event.driver_alive)
        _stopped(draft)


def restarting_batch(draft: Draft, event: BatchCompleted | PlanApplied) -> None:
    """The last batch of the attempt, or its queries are idle. `rollback.note_batch` has noted it."""


def restarting_failed(draft: Draft, event: AttemptFailed | AttemptStartFailed) -> None:
    """Record it; the job restarts already. The event may say that the attempt is dead."""
    failure = failure_of(draft, event)
    record_failure(draft, failure)
    draft.set_phase(failures=(*_restarting(draft).failures, failure)[:16])
    dead = isinstance(event, AttemptStartFailed) or event.stopped
    if dead and not _restarting(draft).stopped:
        mark_dead(draft)
        _stopped(draft)


def restarting_finished(draft: Draft, event: AttemptFinished) -> None:
    """It had processed everything when it was told to stop. If it is known to be dead, this was said before."""
    if not _restarting(draft).stopped:
        attempt_finished(draft, event)


def restarting_global_failure(draft: Draft, event: GlobalFailure) -> None:
    failure = failure_of(draft, event)
    record_failure(draft, failure)
    draft.set_phase(failures=(*_restarting(draft).failures, failure)[:16])


def restarting_timer(draft: Draft, event: TimerFired) -> None:
    if event.name == STOP_TIMER:
        timeline.note(draft, "The attempt did not stop in time and is killed.")
        draft.set_phase(kill=True)
        order_stop(draft, StopMode.KILL)
    elif event.name == BACKOFF_TIMER:
        _go_on(draft)


# ---- failures of a running attempt, for Executing, Rescaling and StopWithSavepoint


def running_failed(draft: Draft, event: AttemptFailed) -> None:
    if event.repartition and draft.state.repartition is not None:
        _redistribution_failed(draft, event)
        return
    handle_failure(
        draft,
        failure_of(draft, event),
        stopped=event.stopped,
        recoverable=event.recoverable,
        driver_waiting=False,
        cause=event,
    )


def running_start_failed(draft: Draft, event: AttemptStartFailed) -> None:
    handle_failure(
        draft, failure_of(draft, event), stopped=True, recoverable=event.recoverable, driver_waiting=False
    )


def running_stopped(draft: Draft, event: AttemptStopped) -> None:
    error = event.error or "The attempt stopped without having been asked to."
    failure = Failure(error, draft.now_ms, draft.state.attempt)
    handle_failure(draft, failure, stopped=True, recoverable=True, driver_waiting=event.driver_alive)


def running_global_failure(draft: Draft, event: GlobalFailure) -> None:
    handle_failure(
        draft, failure_of(draft, event), stopped=False, recoverable=event.recoverable, driver_waiting=False
    )

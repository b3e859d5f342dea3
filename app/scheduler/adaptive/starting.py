"""Created, WaitingForResources, CreatingExecutionGraph and RetryingExecutionGraphCreation: until an attempt runs."""

from __future__ import annotations

from app.model.job_state.failures import Failure
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.sentences import ended
from app.model.status import JobStatus
from app.scheduler.adaptive import (
    repartition,
    resources,
    restart_strategy,
    timeline,
    transition_manager,
    trial,
    versions,
)
from app.scheduler.adaptive.attempts import (
    START_TIMER,
    create_execution_graph,
    start_timeout_ms,
    wait_for_slots,
)
from app.scheduler.adaptive.draft import Draft, timer_at
from app.scheduler.adaptive.effects import StopMode
from app.scheduler.adaptive.ending import attempt_finished, fail, finish
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptMisplaced,
    AttemptStartFailed,
    AttemptStopped,
    BoundsUpdated,
    DriverReady,
    GlobalFailure,
    SlotsChanged,
    StartScheduling,
    StateRepartitioned,
    TimerFired,
)
from app.scheduler.adaptive.failures import failure_of, record_failure
from app.scheduler.adaptive.goal import goal_of
from app.scheduler.adaptive.in_place import plan_for_slots
from app.scheduler.adaptive.state import (
    CreatingExecutionGraph,
    Manager,
    RetryingExecutionGraphCreation,
    WaitingForResources,
)
from app.scheduler.adaptive.stops import BACKOFF_TIMER, CLUSTER_RETRY_MS, STOP_TIMER, mark_dead, order_stop
from app.scheduler.adaptive.transition_manager import ManagerOutcome, Outlook
from app.scheduler.adaptive.versions import Coming

# ---- Created


def created_start(draft: Draft, event: StartScheduling) -> None:
    timeline.open_record(draft, TriggerCause.INITIAL_SCHEDULE, start_ms=draft.state.phase_since_ms)
    wait_for_slots(draft)


# ---- WaitingForResources


def waiting_entered(draft: Draft, _: None) -> None:
    resources.arm_wait(draft)
    if draft.state.driver.alive:
        order_stop(draft, StopMode.KILL)
    review_waiting(draft)


def review_waiting(draft: Draft) -> None:
    """Slots or bounds may have changed. No batch comes while the job waits, so a change counts as the trigger too.
    Another version of the job does not wait for more slots than it needs."""
    adopted = not draft.state.driver.alive and versions.adopt(draft)
    outlook = resources.waiting_outlook(draft.state, goal_of(draft))
    if adopted and outlook.sufficient:
        create_execution_graph(draft)
        return
    manager = draft.phase_as(WaitingForResources).manager
    moved, outcome = transition_manager.on_change(manager, outlook, draft.now_ms)
    if outcome is not ManagerOutcome.TRANSITION:
        moved, outcome = transition_manager.on_trigger(moved, outlook, draft.now_ms)
    _settle_waiting(draft, moved, outcome, outlook)


def _settle_waiting(draft: Draft, moved: Manager, outcome: ManagerOutcome, outlook: Outlook) -> None:
    if outcome is ManagerOutcome.TRANSITION:
        create_execution_graph(draft)
        return
    if moved is not draft.phase_as(WaitingForResources).manager:
        draft.set_phase(manager=moved)
    draft.hold(transition_manager.TIMERS, transition_manager.next_due_ms(moved, outlook))


def waiting_slots(draft: Draft, event: SlotsChanged) -> None:
    was_unreachable = draft.state.cluster_unreachable
    resources.replace_slots(draft, event)
    if draft.state.cluster_unreachable != was_unreachable:
        resources.wait_anew(draft)
    review_waiting(draft)


def waiting_bounds(draft: Draft, event: BoundsUpdated) -> None:
    resources.replace_bounds(draft, event)
    review_waiting(draft)


def waiting_attempt_gone(draft: Draft, event: AttemptStopped | AttemptStartFailed | AttemptFailed) -> None:
    """The attempt that was given up has reported. If it is dead, another one may be started."""
    if isinstance(event, AttemptFailed) and not event.stopped:
        return
    if not draft.state.driver.alive:
        return
    mark_dead(draft, driver_waiting=isinstance(event, AttemptStopped) and event.driver_alive)
    draft.disarm(STOP_TIMER)
    review_waiting(draft)


def waiting_finished(draft: Draft, event: AttemptFinished) -> None:
    """The attempt that was given up had nothing left to do. If it was known to be dead, this was said before."""
    if draft.state.driver.alive:
        attempt_finished(draft, event)


def waiting_timer(draft: Draft, event: TimerFired) -> None:
    if event.name == STOP_TIMER:
        order_stop(draft, StopMode.KILL)
    elif event.name == resources.WAIT_TIMER:
        _wait_is_over(draft)
    else:
        manager = draft.phase_as(WaitingForResources).manager
        outlook = resources.waiting_outlook(draft.state, goal_of(draft))
        moved, outcome = transition_manager.on_time(manager, outlook, draft.now_ms)
        _settle_waiting(draft, moved, outcome, outlook)


def _wait_is_over(draft: Draft) -> None:
    state = draft.state
    if state.driver.alive:
        draft.arm(resources.WAIT_TIMER, draft.now_ms + state.options.stop_timeout_ms)
    elif resources.waiting_outlook(draft.state, goal_of(draft)).sufficient:
        create_execution_graph(draft)
    else:
        waited_ms = draft.now_ms - draft.phase_as(WaitingForResources).manager.since_ms
        error = (
            f"Not enough slots: the lower bounds need {state.supply.minimal} and the job holds "
            f"{state.usable_slots} after waiting for {waited_ms} ms."
        )
        failure = record_failure(draft, Failure(error, draft.now_ms, draft.state.attempt), root=True)
        found = trial.version_to_blame(draft, by_job=True)
        back = RetryingExecutionGraphCreation(failure.error)
        if found is None or not trial.take_back(draft, found, failure, back):
            start_failed(draft, failure, recoverable=True)


# ---- CreatingExecutionGraph


def _give_up_start(draft: Draft, error: str, *, give_up: bool = False) -> None:
    """The start has failed: what there is of the attempt is killed. ``give_up``: as in `CreatingExecutionGraph`."""
    failure = record_failure(draft, Failure(error, draft.now_ms, draft.state.attempt))
    draft.set_phase(failure=failure, give_up=give_up)
    draft.disarm(START_TIMER)
    order_stop(draft, StopMode.KILL)


def creating_failed(draft: Draft, event: AttemptStartFailed | AttemptFailed) -> None:
    """The attempt did not start. What may be left of it is killed before anything else happens."""
    failure = record_failure(draft, failure_of(draft, event))
    phase = draft.phase_as(CreatingExecutionGraph)
    if phase.failure is None:
        # The redistribution has changed no state, so the job goes on without it.
        give_up = event.repartition
        draft.set_phase(
            failure=failure,
            recoverable=event.recoverable or give_up,
            give_up=give_up,
            outside=event.outside,
            by_cluster=event.by_cluster and not give_up,
        )
        if not event.stopped:
            draft.disarm(START_TIMER)
            order_stop(draft, StopMode.KILL)
    if event.stopped:
        _creation_over(draft, driver_waiting=False)


def creating_stopped(draft: Draft, event: AttemptStopped) -> None:
    if draft.phase_as(CreatingExecutionGraph).failure is None:
        error = event.error or "The driver stopped before its queries were running."
        draft.set_phase(failure=record_failure(draft, Failure(error, draft.now_ms, draft.state.attempt)))
    _creation_over(draft, driver_waiting=event.driver_alive)


def _creation_over(draft: Draft, *, driver_waiting: bool) -> None:
    phase = draft.phase_as(CreatingExecutionGraph)
    assert phase.failure is not None
    mark_dead(draft, driver_waiting=driver_waiting)
    if phase.recoverable and (phase.blind or phase.by_cluster):
        # Not counted: the job can do nothing about it. Without the cluster the job waits until it is reachable.
        _back_off(draft, phase.failure, 0 if phase.blind else CLUSTER_RETRY_MS)
        return
    failure, outside = phase.failure, phase.outside
    found = trial.blamed_for_start(draft, failure, outside=outside, recoverable=phase.recoverable)
    repartition.failed_try(draft, failure.error, final=phase.give_up)
    # No attempt runs at what is on trial: one is started at what was good, at once.
    back = RetryingExecutionGraphCreation(failure.error)
    if found is None or not trial.take_back(draft, found, failure, back):
        start_failed(draft, failure, recoverable=phase.recoverable)


def _back_off(draft: Draft, failure: Failure, delay_ms: int) -> None:
    draft.enter(RetryingExecutionGraphCreation(failure.error), failure.error)
    if delay_ms > 0:
        draft.arm(BACKOFF_TIMER, draft.now_ms + delay_ms)
    draft.begin()


def creating_global_failure(draft: Draft, event: GlobalFailure) -> None:
    failure = record_failure(draft, failure_of(draft, event))
    if not event.recoverable:
        fail(draft, failure)
        return
    if draft.phase_as(CreatingExecutionGraph).failure is None:
        draft.set_phase(failure=failure)
        draft.disarm(START_TIMER)
        order_stop(draft, StopMode.KILL)


def creating_timer(draft: Draft, event: TimerFired) -> None:
    if event.name == START_TIMER:
        waited_ms = start_timeout_ms(draft.state)
        option = "slotwise.driver.start-timeout"
        if draft.state.options.cluster_start_ms:
            option += f" and {draft.state.options.cluster_start_ms} ms for the cluster to bring executors"
        if draft.state.partitions.repartition is not None:
            option += " and slotwise.state.repartition.timeout"
        error = f"The driver did not start within {waited_ms} ms ({option}); it is killed."
        _give_up_start(draft, error, give_up=draft.state.partitions.repartition is not None)
    elif event.name == STOP_TIMER:
        order_stop(draft, StopMode.KILL)


def creating_repartitioned(draft: Draft, event: StateRepartitioned) -> None:
    """The driver has reported the state partitions. If the plan was made for others, another attempt is started."""
    phase = draft.phase_as(CreatingExecutionGraph)
    if phase.failure is not None:
        return
    as_told = repartition.take_partitions_found(draft, event.partitions)
    if not as_told and not repartition.allows(draft.state.graph, phase.plan):
        wait_for_slots(draft, exception="The state has fewer partitions than the plan was made for.")


def creating_slots(draft: Draft, event: SlotsChanged) -> None:
    """If a planned slot is gone, the start has failed. The next one takes the slots that stayed: what comes and goes is
    added when the job runs, which then only shrinks when it goes. A job that keeps the slots of its start for life is
    not made small by the first loss.
    """
    resources.replace_slots(draft, event)
    state, phase = draft.state, draft.phase_as(CreatingExecutionGraph)
    if state.cluster_unreachable:
        draft.set_phase(blind=True)
    lost = sorted(phase.plan.slot_ids - state.slot_ids)
    if (
        lost
        and not state.supply.stayed
        and (not state.graph.runs_by_regions or state.recovery.creation.attempts)
    ):
        draft.set_part("supply", stayed=tuple([slot.id for slot in state.slots]))
    if lost and phase.failure is None:
        error = f"{len(lost)} planned slot(s) were lost while the driver was started: {', '.join(lost[:5])}."
        timeline.note(draft, error)
        _give_up_start(draft, error)


def creating_ready(draft: Draft, event: DriverReady) -> None:
    """Make the plan again, with the slots of now. Other bounds apply once it runs: their record has no plan yet."""
    phase = draft.phase_as(CreatingExecutionGraph)
    plan = plan_for_slots(draft, phase.plan)
    record = draft.state.timeline.open
    if (
        phase.failure is None
        and plan is not None
        and plan.parallelism != phase.plan.parallelism
        and record is not None
        and record.rung is not None
    ):
        timeline.plan_chosen(draft, plan, record.rung)
        draft.set(plan_version=plan.version)
        draft.set_phase(plan=plan)


def creating_misplaced(draft: Draft, event: AttemptMisplaced) -> None:
    """The attempt runs on another cluster than jobs do now: it is killed, and the next one starts where they run. One
    that is given up is being killed already."""
    if draft.phase_as(CreatingExecutionGraph).failure is None:
        timeline.note(draft, event.why)
        wait_for_slots(draft, exception=event.why)


# ---- RetryingExecutionGraphCreation


def retrying_entered(draft: Draft, _: None) -> None:
    """Without a backoff the next attempt is waited for at once."""
    if timer_at(draft.state, BACKOFF_TIMER) is None:
        wait_for_slots(draft)


def start_failed(draft: Draft, failure: Failure, *, recoverable: bool) -> None:
    """No attempt could be made to run: try again after a backoff, or give the job up. Nothing is alive."""
    state, cause = draft.state, failure.error
    if recoverable:
        options, seed = state.options.creation_retry, f"{state.job_id}/creation"
        decision = restart_strategy.on_failure(options, state.recovery.creation, draft.now_ms, seed)
        draft.set_part("recovery", creation=decision.state)
        if decision.delay_ms is not None:
            _back_off(draft, failure, decision.delay_ms)
            return
        cause = f"{ended(failure.error)} No further start is tried: {restart_strategy.describe(options)}."
    finish(draft, JobStatus.FAILED, cause, closing=TerminatedReason.EXCEPTION_OCCURRED)


def retrying_timer(draft: Draft, event: TimerFired) -> None:
    if event.name == BACKOFF_TIMER:
        wait_for_slots(draft)


# ---- another version of the job


def creating_requested(draft: Draft, event: Coming) -> None:
    """Nothing runs yet: the attempt that is being started is killed."""
    if not versions.take_up(draft, event):
        return
    wait_for_slots(draft, exception="Another version of the job was asked for while the driver was started.")


def waiting_requested(draft: Draft, event: Coming) -> None:
    if not versions.take_up(draft, event):
        return
    review_waiting(draft)


def retrying_requested(draft: Draft, event: Coming) -> None:
    """The version that could not be started is not waited for any longer."""
    if not versions.take_up(draft, event):
        return
    wait_for_slots(draft)

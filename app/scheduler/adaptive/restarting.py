"""Restarting: the attempt is stopped, then the backoff runs."""

from __future__ import annotations

from app.scheduler.adaptive import (
    repartition,
    timeline,
    versions,
)
from app.scheduler.adaptive.attempts import create_execution_graph, wait_for_slots
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import StopMode
from app.scheduler.adaptive.ending import attempt_finished
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStartFailed,
    AttemptStopped,
    BatchCompleted,
    GlobalFailure,
    PlanApplied,
    TimerFired,
)
from app.scheduler.adaptive.failures import failure_of, record_failure
from app.scheduler.adaptive.goal import goal_of
from app.scheduler.adaptive.journal import Restarted
from app.scheduler.adaptive.state import Restarting
from app.scheduler.adaptive.stops import BACKOFF_TIMER, STOP_TIMER, mark_dead, order_stop
from app.scheduler.adaptive.versions import Coming


def restarting_entered(draft: Draft, _: None) -> None:
    """Count it, and stop the attempt if there is any."""
    phase, number = draft.phase_as(Restarting), draft.state.recovery.num_restarts + 1
    draft.tell(Restarted(None, number, phase.backoff_ms))
    draft.set_part("recovery", num_restarts=number)
    if not draft.state.driver.alive:
        _stopped(draft)
        return
    boundary = StopMode.DRAIN if phase.drain else StopMode.BOUNDARY
    is_planned = phase.drain or (phase.target is not None and not phase.failures)
    order_stop(draft, boundary if is_planned else StopMode.KILL)


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
    if state.cluster_unreachable and not state.driver.waits:
        wait_for_slots(draft)
    elif target is not None and dict(target) == goal_of(draft).whole.parallelism(state.usable_slots):
        create_execution_graph(draft)
    else:
        wait_for_slots(draft)


# ---- handlers


def restarting_stopped(draft: Draft, event: AttemptStopped) -> None:
    if not draft.phase_as(Restarting).stopped:
        mark_dead(draft, driver_waiting=event.driver_alive)
        _stopped(draft)


def restarting_batch(draft: Draft, event: BatchCompleted | PlanApplied) -> None:
    """The last batch of the attempt, or its queries are idle. `trial.note_batch` has noted it."""


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


def restarting_requested(draft: Draft, event: Coming) -> None:
    if not versions.take_up(draft, event):
        return
    phase = draft.phase_as(Restarting)
    if phase.stopped:
        draft.disarm(BACKOFF_TIMER)
        wait_for_slots(draft)
    else:
        draft.set_phase(backoff_ms=0, target=None, drain=phase.target is not None)

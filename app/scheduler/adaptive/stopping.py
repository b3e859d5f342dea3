"""StopWithSavepoint: the driver drains, that is, it stops after the batch in flight; then the job is finished."""

from __future__ import annotations

from app.model.jobgraph import JobType
from app.model.plan import Plan
from app.model.status import JobStatus
from app.scheduler.adaptive import timeline
from app.scheduler.adaptive.attempts import run_on
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import StopMode
from app.scheduler.adaptive.ending import finish
from app.scheduler.adaptive.events import (
    AttemptStopped,
    BatchCompleted,
    PlanApplied,
    StopRequested,
    TimerFired,
)
from app.scheduler.adaptive.failover import running_stopped
from app.scheduler.adaptive.in_place import check_version, retarget, send_plan
from app.scheduler.adaptive.state import Rescaling, Stop, StopWithSavepoint
from app.scheduler.adaptive.stops import STOP_TIMER, mark_dead, order_stop


def stop_requested(draft: Draft, event: StopRequested) -> None:
    """Drain: stop after the batch in flight, for good. The open record is left as it is."""
    if draft.state.graph.type is JobType.BATCH:
        raise draft.refuse(
            "A BATCH job has no batch boundary at which it could be stopped; cancel it instead"
        )
    if draft.state.is_query_restarting:
        raise draft.refuse("A query is being restarted after a failure; stop the job once it runs again")
    phase = draft.state.phase
    target = phase.target if isinstance(phase, Rescaling) else None
    draft.set(stop=Stop(event.trigger_id, "IN_PROGRESS"))
    draft.enter(StopWithSavepoint(event.trigger_id, target))
    order_stop(draft, StopMode.DRAIN)


def stopping_requested(draft: Draft, event: StopRequested) -> None:
    trigger_id = draft.phase_as(StopWithSavepoint).trigger_id
    if event.trigger_id != trigger_id:
        raise draft.refuse(f"The job is being stopped already, by operation {trigger_id}")


def stopping_stopped(draft: Draft, event: AttemptStopped) -> None:
    phase = draft.phase_as(StopWithSavepoint)
    if event.drained:
        mark_dead(draft, driver_waiting=event.driver_alive)
        draft.set(stop=Stop(phase.trigger_id, "COMPLETED", location=event.location))
        finish(draft, JobStatus.FINISHED)
    elif event.error is not None and event.driver_alive:
        draft.set(stop=Stop(phase.trigger_id, "COMPLETED", error=event.error))
        _resume(draft, phase.target)
    else:
        running_stopped(draft, event)


def _resume(draft: Draft, target: Plan | None) -> None:
    """The attempt runs on. A plan that was sent and never confirmed is still being applied."""
    if target is None:
        record = draft.state.timeline.open
        run_on(draft, first_batch=record is None or not record.has_plan)
        return
    draft.enter(Rescaling(target))
    send_plan(draft, target)
    retarget(draft)


def stopping_batch(draft: Draft, event: BatchCompleted) -> None:
    plan, target = draft.state.plan, draft.phase_as(StopWithSavepoint).target
    if target is None and plan is not None and event.plan_version >= plan.version:
        timeline.complete_record(draft)


def stopping_plan_applied(draft: Draft, event: PlanApplied) -> None:
    check_version(draft, event)
    target = draft.phase_as(StopWithSavepoint).target
    plan = target or draft.state.plan
    if plan is None or event.plan_version < plan.version:
        return
    if target is not None:
        draft.set(plan=target, last_plan=target)
        draft.set_phase(target=None)
    timeline.complete_record(draft, event.measured)


def stopping_timer(draft: Draft, event: TimerFired) -> None:
    """The batch in flight may be long: the order is repeated, never sharpened."""
    if event.name == STOP_TIMER:
        order_stop(draft, StopMode.DRAIN)

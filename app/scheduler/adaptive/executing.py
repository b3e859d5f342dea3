"""Executing, Rescaling and StopWithSavepoint: an attempt runs.

A change of parallelism that every vertex concerned can make between two micro-batches goes Executing -> Rescaling ->
Executing, without stopping anything. Any other goes through Restarting. When each may happen is the manager's
business, with two exceptions: a slot that the plan uses and that is lost is no choice, so the job shrinks at once if it
can do so in place; and bounds that change while a plan is being applied replace that plan at once.
"""

from __future__ import annotations

from typing import Final

from app.model.plan import Plan, Rung
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.status import JobStatus
from app.scheduler.adaptive import manager, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import SendPlan, StopMode
from app.scheduler.adaptive.ending import STOP_TIMER, finish, mark_dead, order_stop
from app.scheduler.adaptive.events import (
    AttemptRunning,
    AttemptStopped,
    BatchAborted,
    BatchCompleted,
    PlanApplied,
    RequirementsUpdated,
    SlotsChanged,
    StopRequested,
    TimerFired,
)
from app.scheduler.adaptive.manager import Verdict
from app.scheduler.adaptive.prospects import Prospect, longest_cooldown_ms, plan_holds, prospect, rung_between
from app.scheduler.adaptive.restarting import lost_slot_record, restart_for_rescale, running_stopped
from app.scheduler.adaptive.starting import arm_manager, replace_requirements, replace_slots
from app.scheduler.adaptive.state import (
    CreatingExecutionGraph,
    Executing,
    Manager,
    Rescaling,
    RestartState,
    Stop,
    StopWithSavepoint,
)
from app.scheduler.slots import assign

APPLY_TIMER: Final = "apply-timeout"
RESOURCE_TIMER: Final = "resource-wait"


# ---- into Executing


def creating_running(draft: Draft, event: AttemptRunning) -> None:
    """The attempt runs at its plan. The rescale is complete once it has committed a batch."""
    phase = draft.state.phase
    assert isinstance(phase, CreatingExecutionGraph)
    if phase.failure is not None:
        return
    draft.set(plan=phase.plan, last_plan=phase.plan, creation_retry=RestartState())
    _enter_executing(draft, first_batch=False)


def _enter_executing(draft: Draft, *, first_batch: bool) -> None:
    """A new manager, and a look at what changed while another phase was current."""
    options = draft.state.options
    began = manager.start(draft.now_ms, longest_cooldown_ms(options))
    draft.enter(Executing(began, first_batch=first_batch))
    _reseat(draft)
    _review(draft, resources=True, trigger=True)


def _executing(draft: Draft) -> Executing | None:
    phase = draft.state.phase
    return phase if isinstance(phase, Executing) else None


# ---- the manager at work


def _review(draft: Draft, *, resources: bool, trigger: bool = False) -> None:
    """Slots or bounds may be other than before. ``resources``: the slots, so a record is theirs if none is open."""
    phase = _executing(draft)
    assert phase is not None
    view = prospect(draft.state)
    if view.outlook.sufficient and resources and draft.state.timeline.open is None:
        timeline.open_record(draft, TriggerCause.NEW_RESOURCE_AVAILABLE)
    moved, verdict = manager.on_change(phase.manager, view.outlook, draft.now_ms)
    if trigger and verdict is not Verdict.TRANSITION:
        moved, verdict = manager.on_trigger(moved, view.outlook, draft.now_ms)
    if view.outlook.sufficient:
        draft.disarm(RESOURCE_TIMER)
    _settle(draft, moved, verdict, view)
    if _executing(draft) is not None and not view.outlook.sufficient:
        _await_resources(draft)


def _settle(draft: Draft, moved: Manager, verdict: Verdict, view: Prospect) -> None:
    if verdict is Verdict.TRANSITION:
        _begin_rescale(draft, view)
        return
    draft.set_phase(manager=moved)
    if verdict is Verdict.IDLE and draft.timer_at(RESOURCE_TIMER) is None:
        _close_idle(draft, None)
    arm_manager(draft, moved, view.outlook)


def _close_idle(draft: Draft, message: str | None) -> None:
    """End a record that came to nothing. One whose plan is in force is left for its first batch to complete."""
    if not timeline.has_plan(draft.state.timeline.open):
        timeline.close_record(draft, TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE, message=message)


def _await_resources(draft: Draft) -> None:
    """Nothing can change now. An update that wants more slots than are held keeps its record open for a while."""
    state = draft.state
    record = state.timeline.open
    if record is None or timeline.has_plan(record):
        return
    if len(state.slots) >= state.declared_slots:
        _close_idle(draft, "The bounds ask for no other parallelism than is in force.")
    elif draft.timer_at(RESOURCE_TIMER) is None:
        draft.arm(RESOURCE_TIMER, draft.now_ms + state.options.executing_stabilization_ms)


def _begin_rescale(draft: Draft, view: Prospect) -> None:
    assert view.attainable is not None
    if draft.state.timeline.open is None:
        timeline.open_record(draft, TriggerCause.NEW_RESOURCE_AVAILABLE)
    if view.rung is Rung.IN_PLACE:
        _rescale_in_place(draft)
    else:
        restart_for_rescale(draft, view.attainable)


def _rescale_in_place(draft: Draft) -> None:
    target = _next_plan(draft, draft.state.plan)
    timeline.plan_chosen(draft, target, Rung.IN_PLACE)
    draft.set(plan_version=target.version, num_rescales=draft.state.num_rescales + 1, rung=Rung.IN_PLACE)
    draft.enter(Rescaling(target))
    _send(draft, target)


def _next_plan(draft: Draft, previous: Plan | None, *, version: int | None = None) -> Plan:
    """The plan for the slots held. The caller knows that they suffice."""
    state = draft.state
    plan = assign(
        state.graph,
        state.requirements,
        state.slots,
        version=state.plan_version + 1 if version is None else version,
        previous=previous,
        prefer_minimal_taskmanagers=state.options.prefer_minimal_taskmanagers,
    )
    assert plan is not None
    return plan


def _send(draft: Draft, plan: Plan) -> None:
    draft.emit(SendPlan(draft.state.attempt, plan))
    draft.arm(APPLY_TIMER, draft.now_ms + draft.state.options.apply_timeout_ms)


def _reseat(draft: Draft) -> None:
    """The plan stays but some of its slots were exchanged: the same parallelism in the slots that are held now.

    The driver is not concerned, so the version stays.
    """
    plan = draft.state.plan
    if plan is None or plan_holds(draft.state, plan):
        return
    view = prospect(draft.state)
    if view.attainable is not None and view.rung is None:
        moved = _next_plan(draft, plan, version=plan.version)
        draft.set(plan=moved, last_plan=moved)


# ---- Executing: handlers


def executing_requirements(draft: Draft, event: RequirementsUpdated) -> None:
    replace_requirements(draft, event)
    draft.disarm(RESOURCE_TIMER)
    _start_count_down(draft)
    _reseat(draft)
    _review(draft, resources=False)


def executing_slots(draft: Draft, event: SlotsChanged) -> None:
    replace_slots(draft, event.slots)
    plan = draft.state.plan
    assert plan is not None
    _start_count_down(draft)
    if not plan_holds(draft.state, plan):
        _reseat(draft)
        view = prospect(draft.state)
        if view.rung is not None:
            _shrink(draft, plan, view)
            return
    _review(draft, resources=True)


def _shrink(draft: Draft, plan: Plan, view: Prospect) -> None:
    """A slot in use is lost. The tasks run on in what is left, so this is a failover only in name."""
    lost = plan.slot_count - sum(slot.id in _slot_ids(plan) for slot in draft.state.slots)
    message = f"{lost} slot(s) in use were lost."
    if lost_slot_record(draft.state.timeline.open):
        timeline.note(draft, message)
    else:
        timeline.close_record(draft, TerminatedReason.JOB_FAILOVER_RESTARTING, message=message)
        timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=message)
    if view.rung is Rung.IN_PLACE:
        _begin_rescale(draft, view)
    else:
        _review(draft, resources=True)


def _slot_ids(plan: Plan) -> set[str]:
    return {slot for _, own in plan.group_slots for slot in own}


def _start_count_down(draft: Draft) -> None:
    phase = _executing(draft)
    assert phase is not None
    counting = manager.count_down(phase.manager, draft.state.options.max_checkpoint_failures)
    if counting is not phase.manager:
        draft.set_phase(manager=counting)


def executing_batch(draft: Draft, event: BatchCompleted) -> None:
    """A committed batch: it completes the rescale that led here, and it is a trigger."""
    phase, plan = _executing(draft), draft.state.plan
    assert phase is not None and plan is not None
    if not phase.first_batch and event.plan_version >= plan.version:
        _confirm(draft, event.output_gap_ms, event.reprocessed_records)
    phase = _executing(draft)
    assert phase is not None
    if phase.manager.stage in ("Cooldown", "Idling"):
        if phase.manager.failed_batches_left is not None:
            draft.set_phase(
                manager=manager.on_trigger(phase.manager, prospect(draft.state).outlook, draft.now_ms)[0]
            )
        return
    view = prospect(draft.state)
    _settle(draft, *manager.on_trigger(phase.manager, view.outlook, draft.now_ms), view)


def executing_batch_aborted(draft: Draft, event: BatchAborted) -> None:
    phase = _executing(draft)
    assert phase is not None
    if phase.manager.failed_batches_left is None:
        return
    view = prospect(draft.state)
    _settle(draft, *manager.on_batch_aborted(phase.manager, view.outlook, draft.now_ms), view)


def executing_plan_applied(draft: Draft, event: PlanApplied) -> None:
    _check_version(draft, event)
    phase, plan = _executing(draft), draft.state.plan
    assert phase is not None and plan is not None
    if not phase.first_batch and event.plan_version >= plan.version:
        _confirm(draft, event.output_gap_ms, event.reprocessed_records)


def _confirm(draft: Draft, output_gap_ms: int | None, reprocessed_records: int | None) -> None:
    """The plan in force has processed a batch, or has nothing to process: the rescale that led here is complete."""
    draft.set_phase(first_batch=True)
    _complete(draft, output_gap_ms, reprocessed_records)
    if draft.state.timeline.open is None and prospect(draft.state).outlook.sufficient:
        timeline.open_record(draft, TriggerCause.NEW_RESOURCE_AVAILABLE)


def _complete(draft: Draft, output_gap_ms: int | None, reprocessed_records: int | None) -> None:
    if timeline.has_plan(draft.state.timeline.open):
        timeline.close_record(
            draft,
            TerminatedReason.SUCCEEDED,
            output_gap_ms=output_gap_ms,
            reprocessed_records=reprocessed_records,
        )


def executing_timer(draft: Draft, event: TimerFired) -> None:
    phase = _executing(draft)
    assert phase is not None
    if event.name == RESOURCE_TIMER:
        draft.disarm(RESOURCE_TIMER)
        state = draft.state
        _close_idle(draft, f"{state.declared_slots} slots are wanted; only {len(state.slots)} came.")
        return
    view = prospect(draft.state)
    _settle(draft, *manager.on_time(phase.manager, view.outlook, draft.now_ms), view)


def running_told_again(draft: Draft, event: AttemptRunning) -> None:
    """Nothing new."""


# ---- Rescaling: handlers


def _rescaling(draft: Draft) -> Rescaling:
    phase = draft.state.phase
    assert isinstance(phase, Rescaling)
    return phase


def rescaling_plan_applied(draft: Draft, event: PlanApplied) -> None:
    """Every query runs at the target: it is in force, and the rescale is complete."""
    _check_version(draft, event)
    target = _rescaling(draft).target
    if event.plan_version < target.version:
        return
    draft.set(plan=target, last_plan=target)
    _complete(draft, event.output_gap_ms, event.reprocessed_records)
    _enter_executing(draft, first_batch=True)


def _check_version(draft: Draft, event: PlanApplied) -> None:
    if event.plan_version > draft.state.plan_version:
        raise draft.refuse(f"Plan {event.plan_version} is newer than any plan of the job")


def rescaling_requirements(draft: Draft, event: RequirementsUpdated) -> None:
    replace_requirements(draft, event)
    _retarget(draft)


def rescaling_slots(draft: Draft, event: SlotsChanged) -> None:
    """New slots wait until the target is in force; a lost one that the target needs does not."""
    replace_slots(draft, event.slots)
    if not plan_holds(draft.state, _rescaling(draft).target):
        timeline.note(draft, "A slot of the plan that was being applied was lost.")
        _retarget(draft)


def _retarget(draft: Draft) -> None:
    """Replace the target if the slots and bounds of now ask for another one that can be reached in place.

    The driver may have applied the old target already, so the new one always has a new version and is sent even if it
    equals the plan in force. What cannot be done in place follows when the target is in force.
    """
    state = draft.state
    target = _rescaling(draft).target
    assert state.plan is not None
    wanted = assign(
        state.graph,
        state.requirements,
        state.slots,
        version=state.plan_version + 1,
        previous=target,
        prefer_minimal_taskmanagers=state.options.prefer_minimal_taskmanagers,
    )
    if wanted is None:
        return
    wish = dict(wanted.parallelism)
    from_target = rung_between(state.graph, dict(target.parallelism), wish)
    from_force = rung_between(state.graph, dict(state.plan.parallelism), wish)
    if from_target is None:
        same = _next_plan(draft, target, version=target.version)
        draft.set_phase(target=same)
        timeline.plan_chosen(draft, same, Rung.IN_PLACE)
    elif from_target is Rung.IN_PLACE and from_force in (None, Rung.IN_PLACE):
        draft.set(plan_version=wanted.version)
        draft.set_phase(target=wanted, sent=1)
        timeline.plan_chosen(draft, wanted, Rung.IN_PLACE)
        _send(draft, wanted)


def rescaling_timer(draft: Draft, event: TimerFired) -> None:
    """No confirmation yet: the plan is sent again, which does no harm."""
    if event.name != APPLY_TIMER:
        return
    phase = _rescaling(draft)
    if phase.sent == 1:
        waited_ms = draft.state.options.apply_timeout_ms
        timeline.note(draft, f"The plan was not confirmed within {waited_ms} ms and is sent again.")
    draft.set_phase(sent=phase.sent + 1)
    _send(draft, phase.target)


# ---- StopWithSavepoint


def stop_requested(draft: Draft, event: StopRequested) -> None:
    """Drain: stop after the batch in flight, for good. The open record is left as it is."""
    phase = draft.state.phase
    target = phase.target if isinstance(phase, Rescaling) else None
    draft.set(stop=Stop(event.trigger_id, "IN_PROGRESS"))
    draft.enter(StopWithSavepoint(event.trigger_id, target))
    order_stop(draft, StopMode.DRAIN, event.trigger_id)


def _stopping(draft: Draft) -> StopWithSavepoint:
    phase = draft.state.phase
    assert isinstance(phase, StopWithSavepoint)
    return phase


def stopping_requested(draft: Draft, event: StopRequested) -> None:
    if event.trigger_id != _stopping(draft).trigger_id:
        raise draft.refuse(f"The job is being stopped already, by operation {_stopping(draft).trigger_id}")


def stopping_stopped(draft: Draft, event: AttemptStopped) -> None:
    phase = _stopping(draft)
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
        _enter_executing(draft, first_batch=not timeline.has_plan(record))
        return
    draft.enter(Rescaling(target))
    _send(draft, target)
    if not plan_holds(draft.state, target):
        _retarget(draft)


def stopping_batch(draft: Draft, event: BatchCompleted) -> None:
    plan = draft.state.plan
    if _stopping(draft).target is None and plan is not None and event.plan_version >= plan.version:
        _complete(draft, event.output_gap_ms, event.reprocessed_records)


def stopping_plan_applied(draft: Draft, event: PlanApplied) -> None:
    _check_version(draft, event)
    target = _stopping(draft).target
    if target is not None and event.plan_version >= target.version:
        draft.set(plan=target, last_plan=target)
        draft.set_phase(target=None)
        _complete(draft, event.output_gap_ms, event.reprocessed_records)
    elif target is None and draft.state.plan is not None and event.plan_version >= draft.state.plan.version:
        _complete(draft, event.output_gap_ms, event.reprocessed_records)


def stopping_timer(draft: Draft, event: TimerFired) -> None:
    """The batch in flight may be long: the order is repeated, never sharpened."""
    if event.name == STOP_TIMER:
        order_stop(draft, StopMode.DRAIN, _stopping(draft).trigger_id)

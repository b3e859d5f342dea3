"""Executing: an attempt runs at the plan in force; `transition_manager` decides when a rescale may begin.

A change of parallelism that every vertex concerned can make between two micro-batches goes Executing -> Rescaling ->
Executing, without stopping anything. Any other goes through Restarting. When each may happen is the manager's
business, except for what is no choice: slots of the plan that are lost or to be given back, an attempt on another
cluster, another version of the job, and a collapse of the throughput.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.model.jobgraph import JobGraph
from app.model.plan import Plan, Rung
from app.model.rescale import NOTHING_MEASURED, Measured, TerminatedReason, TriggerCause
from app.scheduler.adaptive import (
    growth,
    repartition,
    timeline,
    transition_manager,
    trial,
    unfollowed,
)
from app.scheduler.adaptive.attempts import restart_for_rescale, run_on, take_up_plan
from app.scheduler.adaptive.draft import Draft, timer_at
from app.scheduler.adaptive.events import (
    AttemptRunning,
    BatchCompleted,
    BoundsUpdated,
    PlanApplied,
    QueryEnded,
    QueryStarted,
    SlotsChanged,
    StateRepartitioned,
    TimerFired,
)
from app.scheduler.adaptive.goal import Attainable, attainable_now, goal_of
from app.scheduler.adaptive.in_place import (
    check_version,
    given_back,
    note_interrupted,
    plan_for_slots,
    rescale_in_place,
)
from app.scheduler.adaptive.resources import replace_bounds, replace_slots
from app.scheduler.adaptive.state import Executing, Manager
from app.scheduler.adaptive.transition_manager import ManagerOutcome, Outlook

RESOURCE_TIMER: Final = "resource-wait"

ANSWER_MS: Final = 3_000
"""The shortest wait for slots that an update asks for: another control plane may have to give them back first."""


# ---- into Executing


def creating_running(draft: Draft, event: AttemptRunning) -> None:
    """The attempt runs at its plan, or its program has begun, and takes what time it wants until its queries.

    The rescale is complete once a batch is committed.
    """
    timeline.note_missing(draft, event.missing_executors)
    if not event.begun:
        growth.take_for_started(draft)
    if take_up_plan(draft, event):
        trial.begin_of_version(draft)
        run_on(draft, first_batch=False)


def executing_entered(draft: Draft, _: None) -> None:
    """Review what changed while another phase was current."""
    _reseat(draft)
    if _has_to_give(draft):
        _give_back(draft)
    else:
        _review(draft, resources=True, trigger=True)


# ---- the manager at work


def _review(draft: Draft, *, resources: bool, trigger: bool = False) -> None:
    """Slots or bounds may have changed. ``resources``: the slots have, so they are the cause of a new record."""
    before = draft.phase_as(Executing).manager
    view = attainable_now(draft)
    if view.outlook.sufficient and resources and draft.state.timeline.open is None:
        message = draft.state.supply.reason
        timeline.open_record(draft, TriggerCause.NEW_RESOURCE_AVAILABLE, message=message)
    moved, outcome = transition_manager.on_change(before, view.outlook, draft.now_ms)
    if trigger and outcome is not ManagerOutcome.TRANSITION:
        moved, outcome = transition_manager.on_trigger(moved, view.outlook, draft.now_ms)
    if view.outlook.sufficient:
        draft.disarm(RESOURCE_TIMER)
    _settle(draft, moved, outcome, view)
    if isinstance(draft.state.phase, Executing) and not view.outlook.sufficient:
        _await_resources(draft, view)


def _advance(draft: Draft, move: Callable[[Manager, Outlook, int], tuple[Manager, ManagerOutcome]]) -> None:
    """Let the manager look at the job as it is now."""
    view = attainable_now(draft)
    _settle(draft, *move(draft.phase_as(Executing).manager, view.outlook, draft.now_ms), view)


def _settle(draft: Draft, moved: Manager, outcome: ManagerOutcome, view: Attainable) -> None:
    if outcome is ManagerOutcome.TRANSITION:
        _begin_rescale(draft, view)
        return
    phase = draft.state.phase
    if isinstance(phase, Executing) and moved is not phase.manager:
        draft.set_phase(manager=moved)
    if outcome is ManagerOutcome.IDLE and timer_at(draft.state, RESOURCE_TIMER) is None:
        _close_idle(draft, None)
    draft.hold(transition_manager.TIMERS, transition_manager.next_due_ms(moved, view.outlook))


def _close_idle(draft: Draft, message: str | None) -> None:
    """End a record that came to nothing. One whose plan is in force is left for its first batch to complete, and while
    the cluster is unreachable nothing has come to nothing."""
    state = draft.state
    record = state.timeline.open
    if record and not record.has_plan and not state.open_waits and not state.cluster_unreachable:
        timeline.close_record(draft, TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE, message=message)


def _await_resources(draft: Draft, view: Attainable) -> None:
    """Nothing can change now. An update that wants more slots than are held keeps its record open for a while."""
    state = draft.state
    record = state.timeline.open
    if record is None or record.has_plan:
        return
    if record.cause is TriggerCause.NEW_RESOURCE_AVAILABLE:
        # The slots that it was opened for are gone again. The manager notices, unless it has already.
        if draft.phase_as(Executing).manager.stage == "Idling":
            _close_idle(draft, None)
    elif state.queued and state.open_waits:
        draft.disarm(RESOURCE_TIMER)
    elif view.goal.usable >= view.goal.wanted:
        capped = f", as far as its cap of {state.share.cap} slot(s) allows" * (
            view.goal.wanted < view.goal.whole.desired
        )
        _close_idle(draft, f"The bounds ask for no other parallelism than is in force{capped}.")
    else:
        wait_ms = max(state.options.executing_stabilization_ms, ANSWER_MS)
        draft.arm_new(RESOURCE_TIMER, draft.now_ms + wait_ms)


def _begin_rescale(draft: Draft, view: Attainable) -> None:
    assert view.parallelism is not None
    _record_of_its_own(draft)
    if view.rung is Rung.IN_PLACE:
        rescale_in_place(draft)
    else:
        plan = draft.state.plan
        if plan is not None and view.rung is Rung.QUERY_RESTART:
            now = dict(plan.parallelism)
            if why := unfollowed.why_not_in_place(draft.state.graph, now, view.parallelism):
                timeline.note(draft, why)
        restart_for_rescale(draft, view.parallelism)


def _record_of_its_own(draft: Draft, message: str | None = None) -> None:
    """Make sure that a record without a plan is open. The cause of a new one is new slots."""
    timeline.leave_record_in_force(draft)
    timeline.leave_wait(draft)
    if draft.state.timeline.open is None:
        timeline.open_record(draft, TriggerCause.NEW_RESOURCE_AVAILABLE, message=message)
    elif message is not None:
        timeline.note(draft, message)


def _reseat(draft: Draft) -> None:
    """The plan stays but some of its slots were exchanged: the same parallelism in the slots that are held now.

    The driver is not concerned, so the version stays.
    """
    plan = draft.state.plan
    if plan is None or plan.slot_ids <= draft.state.slot_ids:
        return
    view = attainable_now(draft, repartition=False)
    if view.parallelism is not None and view.rung is None:
        moved = plan_for_slots(draft, plan, version=plan.version)
        assert moved is not None
        draft.set(plan=moved, last_plan=moved)


# ---- Executing: handlers


def executing_bounds(draft: Draft, event: BoundsUpdated) -> None:
    replace_bounds(draft, event)
    draft.disarm(RESOURCE_TIMER)
    _reseat(draft)
    _review(draft, resources=False)


def executing_repartitioned(draft: Draft, event: StateRepartitioned) -> None:
    """Of a query that the program has started. Bounds that had to wait for this query count from now on."""
    repartition.take_partitions_found_late(draft, event)
    _review(draft, resources=True)


def executing_query(draft: Draft, event: QueryStarted | QueryEnded) -> None:
    """The program has started or ended a query: the job may need other slots now."""
    before = draft.state.graph
    growth.take_query_event(draft, event)
    done = "started" if isinstance(event, QueryStarted) else "ended"
    _review_queries(draft, before, f"The program has {done} a query.")


def _review_queries(draft: Draft, before: JobGraph, message: str) -> None:
    graph = draft.state.graph
    if (graph.vertices, graph.resting) == (before.vertices, before.resting):
        return
    if draft.state.timeline.open is None and attainable_now(draft).outlook.sufficient:
        # Nobody has asked for what the slots of other queries are used for.
        came = graph.vertices != before.vertices
        cause = TriggerCause.UPDATE_REQUIREMENT if came else TriggerCause.NEW_RESOURCE_AVAILABLE
        timeline.open_record(draft, cause, message=message)
    _review(draft, resources=True)


def executing_slots(draft: Draft, event: SlotsChanged) -> None:
    replace_slots(draft, event)
    plan = draft.state.plan
    assert plan is not None
    if not plan.slot_ids <= draft.state.slot_ids:
        _reseat(draft)
        view = attainable_now(draft, repartition=False)
        if view.rung is not None:
            _shrink(draft, plan, view)
            return
    elif _has_to_give(draft):
        _give_back(draft)
        return
    _review(draft, resources=True)


def _has_to_give(draft: Draft) -> bool:
    """Whether the plan in force uses slots that other jobs are to have. Not while the cluster is unreachable."""
    plan, usable = draft.state.plan, draft.state.usable_slots
    return (
        plan is not None
        and not draft.state.cluster_unreachable
        and goal_of(draft).now.minimal <= usable < plan.slot_count
    )


def _give_back(draft: Draft) -> None:
    """Another job waits for the slots, so they are given back at once."""
    plan = draft.state.plan
    assert plan is not None
    count = plan.slot_count - draft.state.usable_slots
    view = attainable_now(draft, repartition=False)
    _record_of_its_own(draft, given_back(draft.state, f"{count} slot(s)", plan))
    _begin_rescale(draft, view)


def _shrink(draft: Draft, plan: Plan, view: Attainable) -> None:
    """A slot in use is lost. The tasks run on in the slots that are left, so it is a failover in the history only."""
    message = f"{len(plan.slot_ids - draft.state.slot_ids)} slot(s) in use were lost."
    record = draft.state.timeline.open
    if record is not None and record.is_of_lost_slot:
        timeline.note(draft, message)
    else:
        timeline.close_for_failover(draft, message)
        timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=message)
    if view.rung is Rung.IN_PLACE:
        _begin_rescale(draft, view)
    else:
        _review(draft, resources=True)


def executing_batch(draft: Draft, event: BatchCompleted) -> None:
    """A committed batch: it completes the rescale that led here, and it is a trigger."""
    phase, plan = draft.phase_as(Executing), draft.state.plan
    assert plan is not None
    unfollowed.remember(draft, event.not_followed)
    if not phase.first_batch and event.plan_version >= plan.version:
        _confirm(draft, event.measured)
    phase = draft.phase_as(Executing)
    if draft.state.trial.watch is not None and phase.first_batch and _take_back_slow(draft, event):
        return
    if transition_manager.waits_for_change(phase.manager):
        return
    _advance(draft, transition_manager.on_trigger)


def _take_back_slow(draft: Draft, event: BatchCompleted) -> bool:
    """Whether the throughput has collapsed since the rescale on trial, and the way back has begun.

    Not while another change is in the making: that one is tried first; nor while the cluster is unreachable, and
    executors that are lost are not replaced.
    """
    if draft.state.cluster_unreachable:
        return False
    why = trial.weigh(draft, event)
    watch = draft.state.trial.watch
    if why is None or watch is None or draft.state.timeline.open is not None:
        return False
    taken = trial.condemn(draft, watch, why)
    view = attainable_now(draft)
    if taken is None or view.rung is None:
        return False
    trial.open_rollback(draft, taken)
    _begin_rescale(draft, view)
    return True


def executing_plan_applied(draft: Draft, event: PlanApplied) -> None:
    check_version(draft, event)
    phase, plan = draft.phase_as(Executing), draft.state.plan
    assert plan is not None
    if not phase.first_batch and event.plan_version >= plan.version:
        timeline.note_missing(draft, event.missing_executors)
        timeline.note_not_followed(draft, event.not_followed)
        unfollowed.remember(draft, event.not_followed)
        if event.interrupted:
            note_interrupted(draft, event)
        _confirm(draft, event.measured)


def _confirm(draft: Draft, measured: Measured = NOTHING_MEASURED) -> None:
    """The plan in force has processed a batch, or has nothing to process: the rescale that led here is complete."""
    draft.set_phase(first_batch=not draft.state.is_before_query)
    timeline.complete_record(draft, measured)
    if draft.state.timeline.open is None and attainable_now(draft).outlook.sufficient:
        timeline.open_record(draft, TriggerCause.NEW_RESOURCE_AVAILABLE)


def executing_timer(draft: Draft, event: TimerFired) -> None:
    if event.name == RESOURCE_TIMER:
        draft.disarm(RESOURCE_TIMER)
        state = draft.state
        _close_idle(draft, f"{goal_of(draft).wanted} slots are wanted; only {state.usable_slots} came.")
    elif event.name == growth.LATE_TIMER:
        before = draft.state.graph
        growth.leave_out(draft)
        _review_queries(draft, before, "The program has not started all queries that it had.")
    else:
        _advance(draft, transition_manager.on_time)

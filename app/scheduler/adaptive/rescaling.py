"""Rescaling: a plan was sent to the running driver and is not in force yet.

Bounds that change meanwhile, and slots that are lost, replace the plan at once. What can only be done by a restart
follows when the plan is in force. A plan that is not confirmed is sent again, for ever if the batch in flight takes
for ever; but a driver that keeps committing batches at an older plan is restarted, or the rescale would never end. So
is one whose Spark does not run as many tasks as the plan says although the plan is in force.
"""

from __future__ import annotations

from app.scheduler.adaptive import growth, timeline, trial, unfollowed
from app.scheduler.adaptive.attempts import restart_for_rescale, run_on
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import (
    BatchCompleted,
    BoundsUpdated,
    PlanApplied,
    QueryEnded,
    QueryStarted,
    SlotsChanged,
    TimerFired,
)
from app.scheduler.adaptive.goal import attainable_now
from app.scheduler.adaptive.in_place import (
    APPLY_TIMER,
    check_version,
    given_back,
    note_interrupted,
    retarget,
    send_plan,
)
from app.scheduler.adaptive.resources import replace_bounds, replace_slots
from app.scheduler.adaptive.state import Rescaling


def rescaling_plan_applied(draft: Draft, event: PlanApplied) -> None:
    """Every query runs at the target: it is in force, and the rescale is complete.

    If Spark does not run some vertices at it, the queries are restarted, which plans them anew, and so are they at once
    when one of those is rescaled again; while the cluster is unreachable the job runs on as it does.
    """
    check_version(draft, event)
    target = draft.phase_as(Rescaling).target
    if event.plan_version < target.version:
        return
    if event.interrupted:
        note_interrupted(draft, event)
    if why := unfollowed.why_restart(draft, event):
        _restart(draft, f"{why} So its queries are restarted.")
        return
    before = draft.state.plan
    trial.end_watch_if_over(draft)
    draft.set(plan=target, last_plan=target)
    trial.put_on_trial(draft, target, before, event.before, ran=not draft.state.is_before_query)
    timeline.redraw_for_plan_in_force(draft, target)
    timeline.note_missing(draft, event.missing_executors)
    timeline.note_not_followed(draft, event.not_followed)
    timeline.complete_record(draft, event.measured)
    run_on(draft, first_batch=True)


def rescaling_bounds(draft: Draft, event: BoundsUpdated) -> None:
    replace_bounds(draft, event)
    retarget(draft)


def rescaling_slots(draft: Draft, event: SlotsChanged) -> None:
    """New slots wait until the target is in force; a lost one that the target needs does not."""
    replace_slots(draft, event)
    target = draft.phase_as(Rescaling).target
    if not target.slot_ids <= draft.state.slot_ids:
        timeline.note(draft, "A slot of the plan that was being applied was lost.")
        retarget(draft)
    elif target.slot_count > draft.state.usable_slots:
        what = "Slots of the plan that was being applied"
        timeline.note(draft, given_back(draft.state, what, target))
        retarget(draft)


def rescaling_query(draft: Draft, event: QueryStarted | QueryEnded) -> None:
    growth.take_query_event(draft, event)
    retarget(draft)


def rescaling_batch(draft: Draft, event: BatchCompleted) -> None:
    """Note the queries that still commit at an older plan although it was sent again.

    The first such batch of a query may have been in flight when the plan was sent; the second one was not.
    """
    unfollowed.remember(draft, event.not_followed)
    phase = draft.phase_as(Rescaling)
    if phase.sent == 1 or phase.ignored or event.plan_version >= phase.target.version:
        return
    if event.query_id in phase.behind:
        draft.set_phase(ignored=True)
    else:
        draft.set_phase(behind=(*phase.behind, event.query_id))


def rescaling_timer(draft: Draft, event: TimerFired) -> None:
    """No confirmation yet: the plan is sent again, which does no harm, or given to a restarted query."""
    if event.name != APPLY_TIMER:
        return
    phase = draft.phase_as(Rescaling)
    if phase.sent > 1 and phase.ignored and not draft.state.cluster_unreachable:
        _restart(draft, "The driver commits batches at an older plan, so its queries are restarted.")
        return
    if phase.sent == 1:
        waited_ms = draft.state.options.apply_timeout_ms
        timeline.note(draft, f"The plan was not confirmed within {waited_ms} ms and is sent again.")
    draft.set_phase(sent=phase.sent + 1, behind=(), ignored=False)
    send_plan(draft, phase.target)


def _restart(draft: Draft, why: str) -> None:
    """The target cannot be reached in place: the next rung."""
    attainable = attainable_now(draft).parallelism
    timeline.note(draft, why)
    restart_for_rescale(draft, attainable or dict(draft.phase_as(Rescaling).target.parallelism))

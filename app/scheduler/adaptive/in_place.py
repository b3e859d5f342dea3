"""A plan on its way into force between two micro-batches: made for the slots held, sent, confirmed by its version."""

from __future__ import annotations

from typing import Final

from app.model.plan import Plan, Rung, rung_between
from app.model.value import evolve
from app.scheduler.adaptive import timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import SendPlan
from app.scheduler.adaptive.events import PlanApplied
from app.scheduler.adaptive.goal import goal_of
from app.scheduler.adaptive.state import JobState, Rescaling
from app.scheduler.slots import assign

APPLY_TIMER: Final = "apply-timeout"


def plan_for_slots(draft: Draft, previous: Plan | None, *, version: int | None = None) -> Plan | None:
    """The plan for the slots held, of the next version unless told otherwise; None if the slots do not suffice.

    After a start that was spoiled, for those that stayed, if they do.
    """
    state = draft.state
    slots = [slot for slot in state.slots if slot.id in state.supply.stayed]
    if len(slots) < goal_of(draft).now.minimal:
        slots = list(state.slots)
    return assign(
        goal_of(draft).now,
        slots,
        count=min(state.usable_slots, len(slots)),
        version=state.plan_version + 1 if version is None else version,
        previous=previous,
        prefer_minimal_taskmanagers=state.options.prefer_minimal_taskmanagers,
    )


def send_plan(draft: Draft, plan: Plan) -> None:
    """Send ``plan``, and look again after the apply timeout."""
    draft.emit(SendPlan(draft.state.attempt, plan))
    draft.arm(APPLY_TIMER, draft.now_ms + draft.state.options.apply_timeout_ms)


def rescale_in_place(draft: Draft) -> None:
    """Enter Rescaling for the parallelism that the slots allow. The caller knows that they suffice."""
    target = plan_for_slots(draft, draft.state.plan)
    assert target is not None
    timeline.plan_chosen(draft, target, Rung.IN_PLACE)
    draft.set(plan_version=target.version, num_rescales=draft.state.num_rescales + 1)
    draft.enter(Rescaling(target))
    send_plan(draft, target)


def retarget(draft: Draft) -> None:
    """Replace the target if the slots and bounds of now ask for another one that can be reached in place.

    The driver may have applied the old target already, so the new one always has a new version and is sent even if it
    equals the plan in force. What cannot be done in place follows when the target is in force.
    """
    state = draft.state
    target = draft.phase_as(Rescaling).target
    assert state.plan is not None
    wanted = plan_for_slots(draft, target)
    if wanted is None:
        return
    wish = dict(wanted.parallelism)
    from_target = rung_between(state.graph, dict(target.parallelism), wish)
    from_force = rung_between(state.graph, dict(state.plan.parallelism), wish)
    if from_target is None:
        same = plan_for_slots(draft, target, version=target.version)
        assert same is not None
        draft.set_phase(target=same)
        timeline.plan_chosen(draft, same, Rung.IN_PLACE)
    elif from_target is Rung.IN_PLACE and from_force in (None, Rung.IN_PLACE):
        draft.set(plan_version=wanted.version)
        draft.set_phase(target=wanted, sent=1, behind=(), ignored=False)
        timeline.plan_chosen(draft, wanted, Rung.IN_PLACE)
        send_plan(draft, wanted)


def given_back(state: JobState, what: str, plan: Plan) -> str:
    """The sentence that ``what`` of ``plan`` is given back: for other jobs, or because of the job's own cap."""
    cap = state.share.cap
    whom = "" if cap is not None and plan.slot_count > cap else ", for other jobs"
    return f"{what} are given back{whom}. {state.supply.reason or ''}".rstrip()


def note_interrupted(draft: Draft, event: PlanApplied) -> None:
    """Say in the open record that batches were interrupted for the plan, which is dearer than a change between two."""
    timeline.note(draft, event.interrupted)
    record = draft.state.timeline.open
    if record is not None and record.rung is Rung.IN_PLACE:
        draft.set_record(evolve(record, rung=Rung.BATCH_INTERRUPTED))


def check_version(draft: Draft, event: PlanApplied) -> None:
    """Refuse the confirmation of a plan that was never made."""
    if event.plan_version > draft.state.plan_version:
        raise draft.refuse(f"Plan {event.plan_version} is newer than any plan of the job")

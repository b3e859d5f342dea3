"""The slots that a job declares and gives back: declared slots, held slots, surplus slots.

Slots are raised before parallelism and lowered after it: a slot is surplus only when no plan uses it and the job
holds more than its requirement. It is given back exactly ``slot.idle.timeout`` after it became surplus. What else a
job could give while it runs, for other jobs, is told to the arbiter (`Releasable`).
"""

from __future__ import annotations

from collections.abc import Callable

from app.model.plan import Plan, Rung, Slot
from app.model.requirements import Requirements
from app.model.scaling_policy import within
from app.model.slot_share import SlotShare
from app.model.value import value
from app.scheduler.adaptive.attainable import rung_between
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import DeclareResources, ReleaseSlots
from app.scheduler.adaptive.events import SlotShareUpdated
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.goal import demand_of
from app.scheduler.adaptive.queued_slots import QueuedSlots
from app.scheduler.adaptive.rollback_state import Parallelism
from app.scheduler.adaptive.state import (
    CapRaise,
    CreatingExecutionGraph,
    Executing,
    JobState,
    Rescaling,
    Restarting,
    StopWithSavepoint,
)
from app.scheduler.adaptive.trial import coming_plan
from app.scheduler.slots import Demand

IDLE_TIMER = "slot-idle"


def declare(draft: Draft) -> None:
    """Declare the slots that the bounds need which hold and which wait, unless exactly these are declared."""
    state, goal = draft.state, draft.goal
    desired, minimal = goal.desired, goal.minimal
    if goal.graph is not state.graph and state.open_change is not None:
        # Without the partitions that bounds ask for which are not in force yet, it can start with less.
        minimal = min(minimal, draft.demand.minimal)
    if state.queued:
        desired, minimal = QueuedSlots.of(state).declared(desired, minimal)
    if state.graph.runs_by_regions and isinstance(state.phase, Executing) and state.plan is not None:
        # Its driver has as many cores as it was started with. More slots would be kept from other jobs for nothing.
        usable = state.plan.slot_count
        desired, minimal = min(desired, usable), min(minimal, usable)
    if (desired, minimal) != (state.declared_slots, state.declared_minimal):
        draft.set(declared_slots=desired, declared_minimal=minimal)
        draft.emit(DeclareResources(desired, minimal))


def take_share(draft: Draft, event: SlotShareUpdated) -> None:
    """Note another weight, priority or cap, and declare the slots again: the arbiter decides what follows."""
    share, known = event.share, draft.state.cap_raise
    if share.cap != draft.state.share.cap:
        before = known.before if known else draft.state.share.cap
        if before is None or (share.cap is not None and share.cap <= before):
            known = None
        else:
            known = CapRaise(before, share.requested_by, share.reason)
    draft.set(share=share, cap_raise=known)
    state = draft.state
    if state.declared_slots:
        draft.emit(DeclareResources(state.declared_slots, state.declared_minimal))


def cap_change_of(state: JobState) -> SlotShare | CapRaise | None:
    """The change of the cap because of which the job has fewer slots than its plan uses, or more; None if it is not."""
    plan, cap, raised = state.plan, state.share.cap, state.cap_raise
    if plan is None:
        return None
    if state.usable_slots < plan.slot_count:
        return state.share if cap is not None and cap < plan.slot_count else None
    more = raised is not None and state.usable_slots > max(raised.before, plan.slot_count)
    return raised if more else None


def needed_beyond_cap(state: JobState, requirements: Requirements) -> int | None:
    """The slots that the lower bounds of ``requirements`` need, if the cap of the job does not allow them."""
    cap = state.share.cap
    if cap is None:
        return None
    minimal = Demand.of(state.graph, within(state.policy, state.graph, requirements)).minimal
    return minimal if minimal > cap else None


def plans_of(state: JobState) -> list[Plan]:
    """The plans that use slots now: the one in force and one that is being brought into force."""
    return [plan for plan in (state.plan, coming_plan(state)) if plan is not None]


def change_plans(draft: Draft, changed: Callable[[Parallelism, int | None], Parallelism]) -> None:
    """Give each plan that is in force, on its way, or to be gone back to what ``changed`` makes of its parallelism and
    of the number of its slots, which is None for a plan on its way."""

    def plan_of(plan: Plan | None, *, in_force: bool = False) -> Plan | None:
        if plan is None:
            return None
        return evolve(plan, parallelism=changed(plan.parallelism, plan.slot_count if in_force else None))

    state, phase = draft.state, draft.state.phase
    draft.set(plan=plan_of(state.plan, in_force=True), last_plan=plan_of(state.last_plan, in_force=True))
    if isinstance(phase, CreatingExecutionGraph):
        draft.set_phase(plan=plan_of(phase.plan))
    elif isinstance(phase, Rescaling | StopWithSavepoint):
        draft.set_phase(target=plan_of(phase.target))
    elif isinstance(phase, Restarting) and phase.target is not None:
        draft.set_phase(target=changed(phase.target, None))


def settle_surplus(draft: Draft) -> None:
    """Bring the surplus slots and their timer in line with the slots, bounds and plans of the draft."""
    _give_back(draft)
    state = draft.state
    idle = _surplus(state, draft.now_ms)
    if idle != state.idle_since_ms:
        draft.set(idle_since_ms=idle)
    oldest_ms = min((since for _, since in idle), default=None)
    draft.keep(IDLE_TIMER, None if oldest_ms is None else oldest_ms + state.options.slot_idle_timeout_ms)


def release_idle(draft: Draft) -> None:
    """Give back the slots whose idle timeout is over."""
    state = draft.state
    limit_ms = draft.now_ms - state.options.slot_idle_timeout_ms
    over = tuple(slot for slot, since in state.idle_since_ms if since <= limit_ms)
    draft.disarm(IDLE_TIMER)
    if over:
        draft.set(
            slots=tuple(slot for slot in state.slots if slot.id not in over),
            idle_since_ms=tuple(one for one in state.idle_since_ms if one[0] not in over),
        )
        draft.emit(ReleaseSlots(over))


def _give_back(draft: Draft) -> None:
    """Release slots for other jobs as soon as neither a plan nor an attempt that is being killed uses them."""
    state = draft.state
    excess = len(state.slots) - state.usable_slots
    if excess <= 0 or (state.attempt_alive and not plans_of(state)):
        return
    over = {slot.id for slot in _least_needed(state, excess)}
    if over:
        draft.set(slots=tuple([slot for slot in state.slots if slot.id not in over]))
        draft.emit(ReleaseSlots(tuple(sorted(over))))


def _surplus(state: JobState, now_ms: int) -> tuple[tuple[str, int], ...]:
    excess = len(state.slots) - state.declared_slots
    if excess <= 0 or state.declared_slots == 0:
        return ()
    known = dict(state.idle_since_ms)
    return tuple([(slot.id, known.get(slot.id, now_ms)) for slot in _least_needed(state, excess)])


def _least_needed(state: JobState, count: int) -> list[Slot]:
    """At most ``count`` of the slots that no plan uses: those that the job misses least."""
    used = set[str]().union(*[plan.slot_ids for plan in plans_of(state)])
    unused = [slot for slot in state.slots if slot.id not in used]
    if len(unused) <= count:
        return unused
    known = dict(state.idle_since_ms)
    before = state.last_plan.slot_ids if state.last_plan else set()
    load: dict[str, int] = {}
    for slot in state.slots:
        load[slot.task_manager_id] = load.get(slot.task_manager_id, 0) + (slot.id in used)
    candidates = list(enumerate(unused))
    # Slots that are surplus already first; then those that were not in use last, on the emptiest TaskManager, latest.
    candidates.sort(
        key=lambda one: (one[1].id not in known, one[1].id in before, load[one[1].task_manager_id], -one[0])
    )
    return [slot for _, slot in candidates[:count]]


@value
class Releasable:
    """``running``: something of the job runs in its slots. ``can_give``: it can give some back meanwhile.
    ``in_place_floor``: so many it has to keep to do so in place; with fewer its queries would restart."""

    running: bool = False
    can_give: bool = True
    in_place_floor: int = 0


def may_release_otherwise(before: JobState, after: JobState) -> bool:
    """Whether the releasable slots of the job may be others than before."""
    if after.plan is not before.plan or after.requirements is not before.requirements:
        return True
    numbers = (before.attempt_alive, before.phase_version, before.plan_version)
    return numbers != (after.attempt_alive, after.phase_version, after.plan_version)


def releasable_of(state: JobState) -> Releasable:
    """What the job can give now, by the plan in force or on its way.

    The driver of a BATCH job has its cores for life. A vertex whose parallelism stands in Spark's plan changes by a
    restart only; but it may be at its upper bound with fewer slots as well, and then they are free to go.
    """
    if not state.attempt_alive:
        return Releasable()
    if state.graph.runs_by_regions:
        return Releasable(running=True, can_give=False)
    plans = plans_of(state)
    if not plans or isinstance(state.phase, Restarting):
        # It does not run on with these slots for sure.
        return Releasable(running=True)
    return Releasable(running=True, in_place_floor=_in_place_floor(state, plans[-1]))


def _in_place_floor(state: JobState, plan: Plan) -> int:
    """With fewer slots no vertex is more parallel, so what holds of a number holds of all between it and the plan's."""
    now = dict(plan.parallelism)
    goal = demand_of(state)

    def is_in_place(count: int) -> bool:
        then = goal.parallelism(count)
        return then is not None and rung_between(state.graph, now, then) in (None, Rung.IN_PLACE)

    # From `enough` slots on it is so, or that is the plan's own number; with `too_few` it is not.
    enough, too_few = plan.slot_count, goal.minimal - 1
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if is_in_place(middle):
            enough = middle
        else:
            too_few = middle
    return enough

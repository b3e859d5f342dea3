"""The slots that a job declares and gives back: declared slots, held slots, surplus slots.

Slots are raised before parallelism and lowered after it: a slot is surplus only when no plan uses it and the job
holds more than its requirement. It is given back exactly ``slot.idle.timeout`` after it became surplus. What else a
job could give while it runs, for other jobs, is told to the arbiter (`Releasable`).
"""

from __future__ import annotations

from app.model.job_state.supply import CapRaise
from app.model.plan import Plan, Rung, Slot, rung_between
from app.model.value import value
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import DeclareResources, ReleaseSlots
from app.scheduler.adaptive.events import Event, SlotShareUpdated
from app.scheduler.adaptive.goal import Goal, goal_of
from app.scheduler.adaptive.queued_slots import QueuedSlots
from app.scheduler.adaptive.state import Canceling, Created, Failing, Finished, JobState, Restarting

IDLE_TIMER = "slot-idle"


def asked_for(state: JobState, goal: Goal) -> tuple[int, int]:
    """The slots that are worth having, and those that the job cannot do without, by the bounds that hold and those that
    wait."""
    desired, minimal = goal.whole.desired, goal.whole.minimal
    if goal.whole is not goal.now and (state.open_change is not None or state.plan is not None):
        # Without the partitions that bounds ask for which are not in force yet, it can start, or run on, with less.
        minimal = min(minimal, goal.now.minimal)
    if state.queued:
        desired, minimal = QueuedSlots.of(state).declared(desired, minimal)
    if state.graph.runs_by_regions and state.plan is not None:
        # Its driver has as many cores as it was started with. More slots would be kept from other jobs for nothing.
        usable = state.plan.slot_count
        desired, minimal = min(desired, usable), min(minimal, usable)
    return desired, minimal


def declare_slots(draft: Draft, before: JobState, _: Event) -> None:
    """At the end of a step: declare the slots that the bounds need, unless exactly these are declared, and give back
    those that are surplus. A job that is not scheduled yet declares none, and one that ends no others."""
    state = draft.state
    if not isinstance(state.phase, Created | Failing | Canceling | Finished):
        asked = asked_for(state, goal_of(draft))
        if asked != (state.supply.declared, state.supply.minimal):
            draft.set_part("supply", declared=asked[0], minimal=asked[1])
            draft.emit(DeclareResources(*asked))
    after = draft.state
    if not isinstance(after.phase, Finished) and (
        after.slots is not before.slots
        or after.phase is not before.phase
        or after.plan is not before.plan
        or after.supply.declared != before.supply.declared
        or after.supply.allowed != before.supply.allowed
        or after.driver.alive != before.driver.alive
        or after.timers is not before.timers
    ):
        _settle_surplus(draft)
    _note_change(draft, before)


def _note_change(draft: Draft, before: JobState) -> None:
    after = draft.state
    if after.slots is before.slots or set(after.slots) == set(before.slots):
        return
    draft.set_part("supply", changed_ms=draft.now_ms)
    if before.supply.stayed:
        # What left and comes again has not stayed.
        held = after.slot_ids
        draft.set_part("supply", stayed=tuple(one for one in after.supply.stayed if one in held))


def take_share(draft: Draft, event: SlotShareUpdated) -> None:
    """Note another weight, priority or cap, and declare the slots again: the arbiter decides what follows."""
    share, known = event.share, draft.state.supply.cap_raise
    if share.cap != draft.state.share.cap:
        before = known.before if known else draft.state.share.cap
        if before is None or (share.cap is not None and share.cap <= before):
            known = None
        else:
            known = CapRaise(before, share.requested_by, share.reason)
    draft.tell(share)
    draft.set(share=share)
    draft.set_part("supply", cap_raise=known)
    state = draft.state
    if state.supply.declared:
        draft.emit(DeclareResources(state.supply.declared, state.supply.minimal))


def _settle_surplus(draft: Draft) -> None:
    """Bring the surplus slots and their timer in line with the slots, bounds and plans of the draft."""
    _give_back(draft)
    state = draft.state
    idle = _surplus(state, draft.now_ms)
    if idle != state.supply.idle_since_ms:
        draft.set_part("supply", idle_since_ms=idle)
    oldest_ms = min((since for _, since in idle), default=None)
    draft.keep(IDLE_TIMER, None if oldest_ms is None else oldest_ms + state.options.slot_idle_timeout_ms)


def release_idle(draft: Draft) -> None:
    """Give back the slots whose idle timeout is over."""
    state = draft.state
    limit_ms = draft.now_ms - state.options.slot_idle_timeout_ms
    over = tuple(slot for slot, since in state.supply.idle_since_ms if since <= limit_ms)
    draft.disarm(IDLE_TIMER)
    if over:
        draft.set(slots=tuple(slot for slot in state.slots if slot.id not in over))
        draft.set_part(
            "supply", idle_since_ms=tuple(one for one in state.supply.idle_since_ms if one[0] not in over)
        )
        draft.emit(ReleaseSlots(over))


def _give_back(draft: Draft) -> None:
    """Release slots for other jobs as soon as neither a plan nor an attempt that is being killed uses them."""
    state = draft.state
    excess = len(state.slots) - state.usable_slots
    if excess <= 0 or (state.driver.alive and not state.plans):
        return
    over = {slot.id for slot in _least_needed(state, excess)}
    if over:
        draft.set(slots=tuple([slot for slot in state.slots if slot.id not in over]))
        draft.emit(ReleaseSlots(tuple(sorted(over))))


def _surplus(state: JobState, now_ms: int) -> tuple[tuple[str, int], ...]:
    excess = len(state.slots) - state.supply.declared
    if excess <= 0 or state.supply.declared == 0:
        return ()
    known = dict(state.supply.idle_since_ms)
    return tuple([(slot.id, known.get(slot.id, now_ms)) for slot in _least_needed(state, excess)])


def _least_needed(state: JobState, count: int) -> list[Slot]:
    """At most ``count`` of the slots that no plan uses: those that the job misses least."""
    used = set[str]().union(*[plan.slot_ids for plan in state.plans])
    unused = [slot for slot in state.slots if slot.id not in used]
    if len(unused) <= count:
        return unused
    known = dict(state.supply.idle_since_ms)
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
    numbers = (before.driver.alive, before.phase_version, before.plan_version)
    return numbers != (after.driver.alive, after.phase_version, after.plan_version)


def releasable_of(state: JobState) -> Releasable:
    """What the job can give now, by the plan in force or on its way.

    The driver of a BATCH job has its cores for life. A vertex whose parallelism stands in Spark's plan changes by a
    restart only; but it may be at its upper bound with fewer slots as well, and then they are free to go.
    """
    if not state.driver.alive:
        return Releasable()
    if state.graph.runs_by_regions:
        return Releasable(running=True, can_give=False)
    plans = state.plans
    if not plans or isinstance(state.phase, Restarting):
        # It does not run on with these slots for sure.
        return Releasable(running=True)
    return Releasable(running=True, in_place_floor=_in_place_floor(state, plans[-1]))


def _in_place_floor(state: JobState, plan: Plan) -> int:
    """With fewer slots no vertex is more parallel, so what holds of a number holds of all between it and the plan's."""
    now = dict(plan.parallelism)
    goal = Goal.of(state).now

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

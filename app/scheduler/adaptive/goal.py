"""What a job goes for, and what of that it can attain with its slots.

It goes for its requirements within the scaling policy, but for what was taken back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.model.options import JobOptions
from app.model.plan import Rung, rung_between
from app.model.requirements import Bounds, Requirements
from app.model.scaling_policy import ScalingPolicy, within
from app.model.value import evolve
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.transition_manager import Outlook, Timing
from app.scheduler.slots import Demand

BASIS: Final[Callable[[JobState], tuple[object, ...]]] = operator.attrgetter(
    *("graph", "options", "requirements", "policy", "plan", "last_plan", "attempt", "slots"),
    *("supply.allowed", "share", "trial.taken_back", "trial.unproven", "driver.fixed"),
    *("partitions.repartition", "partitions.refused"),
)
"""What a `Goal` depends on."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a job goes for, in four views.

    ``now`` is with the state partitions that the job has, ``whole`` with those that are asked for. ``declared`` and
    ``declared_whole`` are what its bounds ask for, whatever was taken back: records show these.
    ``usable``: the slots that it may use. ``wanted``: those that are worth waiting for, which are those of the upper
    bounds, as far as the cap allows them.
    """

    now: Demand
    whole: Demand
    declared: Demand
    declared_whole: Demand
    usable: int
    wanted: int

    @classmethod
    def of(cls, state: JobState) -> Goal:
        """A job that ran below its lower bounds comes back with what slots there are."""
        graph, bounds = state.goal_graph, state.bounds
        wanted = bounds if state.trial.taken_back is None else bounds_after_rollback(state)
        if state.plan is None and comes_back(state):
            wanted = evolve(wanted, bounds=tuple((vertex, Bounds(1, own.upper)) for vertex, own in wanted))
        now = Demand.of(state.graph, wanted)
        is_plain, has_partitions = wanted is bounds, graph is state.graph
        declared = now if is_plain else Demand.of(state.graph, bounds)
        whole = now if has_partitions else Demand.of(graph, wanted)
        declared_whole = declared if has_partitions else whole if is_plain else Demand.of(graph, bounds)
        wanted_slots = state.share.within_cap(whole.desired, whole.minimal)
        return cls(now, whole, declared, declared_whole, state.usable_slots, wanted_slots)


def goal_of(draft: Draft) -> Goal:
    """The goal of the job of ``draft``: it is worked out again when something that it depends on has changed."""
    basis, last = BASIS(draft.state), draft.goal
    if last is None or not all(map(operator.is_, last[1], basis)):
        last = draft.goal = (Goal.of(draft.state), basis)
    goal: Goal = last[0]
    return goal


def bounds_after_rollback(state: JobState) -> Requirements:
    """The bounds that a plan is made with: the parallelism that is back in force is the most there may be."""
    bounds, taken = state.bounds, state.trial.taken_back
    return bounds if taken is None else at_most(state.policy, bounds, dict(taken.good))


def at_most(policy: ScalingPolicy, bounds: Requirements, good: Mapping[str, int]) -> Requirements:
    """``bounds`` of a job that goes back to ``good``, as far as that names a vertex.

    A vertex whose upper bound was lowered goes back above it, and one whose lower bound was raised below it; but not
    above a ceiling.
    """
    found = []
    for vertex, own in bounds:
        if vertex in good:
            ceiling = policy[vertex].ceiling
            most = good[vertex] if ceiling is None else min(good[vertex], ceiling)
            own = Bounds(min(own.lower, most), most)
        found.append((vertex, own))
    return evolve(bounds, bounds=tuple(found))


def comes_back(state: JobState) -> bool:
    """Whether the job is down, and its lower bounds need more slots than there are and than it ran with last: that it
    was left to run so must not be its end. A new job, or a new version, waits for its lower bounds."""
    if state.plan is not None or state.last_plan is None:
        return False
    return comes_back_below(state, Demand.of(state.goal_graph, bounds_after_rollback(state)).minimal)


def comes_back_below(state: JobState, minimal: int) -> bool:
    """Whether the job, started again with the slots of now, would come back although its lower bounds need ``minimal``
    slots: it has neither so many nor ran with so many last."""
    last = state.plan or state.last_plan
    return (
        last is not None and not state.trial.unproven and max(last.slot_count, state.usable_slots) < minimal
    )


def needed_beyond_cap(state: JobState, requirements: Requirements) -> int | None:
    """The slots that the lower bounds of ``requirements`` need, if the cap of the job does not allow them."""
    cap = state.share.cap
    if cap is None:
        return None
    minimal = Demand.of(state.graph, within(state.policy, state.graph, requirements)).minimal
    return minimal if minimal > cap else None


# ---- what a running job can attain


@dataclass(frozen=True, slots=True)
class Attainable:
    """What a running job can attain of its ``goal``. ``parallelism`` is None if the slots do not suffice for the lower
    bounds; ``rung`` if nothing would change."""

    parallelism: dict[str, int] | None
    rung: Rung | None
    outlook: Outlook
    goal: Goal


def attainable_now(draft: Draft, *, repartition: bool = True) -> Attainable:
    """What the running job of ``draft`` could become now, and the timing that holds for it.

    Not ``repartition``: with the state partitions that it has, whatever is asked for. While the cluster cannot be
    seen nothing suffices for a restart: what is stopped then might find no slots to start in.
    """
    goal = goal_of(draft)
    basis, last = (repartition, goal, draft.state.supply.away_since_ms), draft.view
    if last is None or not all(map(operator.is_, last[1], basis)):
        last = draft.view = (_attainable(draft.state, goal, repartition=repartition), basis)
    view: Attainable = last[0]
    return view


def _attainable(state: JobState, goal: Goal, *, repartition: bool) -> Attainable:
    plan = state.plan
    assert plan is not None
    attainable, rung = None, None
    if repartition and goal.whole is not goal.now:
        attainable = goal.whole.parallelism(goal.usable)
        rung = None if attainable is None else Rung.STATE_REPARTITION
    if attainable is None:
        attainable = goal.now.parallelism(goal.usable)
        rung = None if attainable is None else rung_between(state.graph, dict(plan.parallelism), attainable)
        if rung is None and attainable is not None and goal.now.desired < plan.slot_count:
            # The first query of a program may need fewer slots than the program had.
            rung = Rung.IN_PLACE
    possible = rung is not None and (rung is Rung.IN_PLACE or not state.cluster_unreachable)
    return Attainable(
        attainable,
        rung,
        Outlook(
            sufficient=possible,
            desired=possible and goal.usable >= goal.wanted,
            timing=timing(state.options, rung),
            longest_cooldown_ms=longest_cooldown_ms(state.options),
        ),
        goal,
    )


def timing(options: JobOptions, rung: Rung | None) -> Timing:
    """A change in place has options of its own; everything else takes those of a restart."""
    if rung is Rung.IN_PLACE:
        return Timing(
            options.in_place_cooldown_ms, options.in_place_stabilization_ms, options.in_place_max_delay_ms
        )
    return Timing(options.executing_cooldown_ms, options.executing_stabilization_ms, options.max_delay_ms)


def longest_cooldown_ms(options: JobOptions) -> int:
    """When Cooldown ends at the latest."""
    return max(options.executing_cooldown_ms, options.in_place_cooldown_ms)

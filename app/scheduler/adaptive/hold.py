"""The bounds with which a job decides while other bounds wait for their deadline (ADR 46).

A change of bounds with a deadline comes into force when the job may use enough slots for it: each vertex can have the
tasks of the upper bound that the change raises, or of the lower bound if it raises only that. A bound that it lowers
needs no slots, and other vertices may be short of slots. The oldest change is checked first, and a later one comes
into force only if the changes before it keep their slots.

Until then, and until the deadline, the former bounds of its vertices are in force, and so is what had been taken back
before. But a job that cannot run with the former bounds, and can run with the new ones, does not wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping

from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds, Requirements
from app.model.scaling_policy import within
from app.model.state_partitions import wanted_graph
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.trial import at_most, effective
from app.scheduler.slots import Demand


def held(state: JobState) -> tuple[Pending, ...]:
    """The changes that wait for their slots, and do not count until then."""
    kept = short_of_slots(state)
    if kept and asked(state).minimal <= state.usable_slots < _demand(state, kept).minimal:
        return ()
    return kept


def short_of_slots(state: JobState) -> tuple[Pending, ...]:
    """The changes whose slots are not there yet."""
    # What was taken back is below all bounds.
    if not state.pending or state.taken_back is not None:
        return ()
    kept = waiting = state.with_deadline
    for one in waiting:
        tried = _without(kept, one)
        if _have_come(state, waiting, tried):
            kept = tried
    return kept


def demand(state: JobState) -> Demand:
    """What the job goes for, with the state partitions that it has: what its bounds ask for, but for what was taken
    back or waits for a deadline. A job that ran below its lower bounds comes back with what slots there are."""
    found = _demand(state, held(state))
    if not comes_back(state):
        return found
    bounds = tuple((vertex, Bounds(1, own.upper)) for vertex, own in found.requirements)
    return Demand.of(state.graph, evolve(found.requirements, bounds=bounds))


def comes_back(state: JobState) -> bool:
    """Whether the job is down, and its lower bounds need more slots than there are and than it ran with last: that it
    was left to run so must not be its end. A new job, or a new version, waits for its lower bounds."""
    if state.plan is not None or state.last_plan is None:
        return False
    return comes_back_below(state, _goal(state, held(state)).minimal)


def comes_back_below(state: JobState, minimal: int) -> bool:
    """Whether the job, started again with the slots of now, would come back although its lower bounds need ``minimal``
    slots: it has neither so many nor ran with so many last."""
    last = state.plan or state.last_plan
    return last is not None and not state.unproven and max(last.slot_count, state.usable_slots) < minimal


def goal_graph(state: JobState) -> JobGraph:
    """``state.graph`` with the state partitions that decisions are made for. Bounds that wait for their deadline are no
    reason to redistribute anything."""
    return _graph(state, held(state))


def asked_graph(state: JobState) -> JobGraph:
    """``state.graph`` with the state partitions that the requirements ask for.

    ``state.graph`` itself if it has them, if a redistribution has been begun (one after the other), and if one was
    given up under these requirements.
    """
    return _graph(state, ())


def asked(state: JobState) -> Demand:
    """What the job asks for, whatever holds until a deadline: its requirements but for what was taken back."""
    return _goal(state, ())


def least_slots(state: JobState, wish: Demand) -> int:
    """The slots without which the job can run by neither bounds. ``wish``: what is `asked`."""
    least = wish.minimal
    if not state.with_deadline or state.taken_back is not None:
        return least
    return min(least, _demand(state, state.with_deadline).minimal)


def in_effect(state: JobState) -> Requirements:
    """The requirements that decisions are made with."""
    return _bounds(state, held(state))


def without(requirements: Requirements, changes: Iterable[Pending]) -> Requirements:
    """``requirements`` with the bounds and the numbers of state partitions before ``changes``."""
    former = {vertex: bounds for change in changes for vertex, bounds in change.former}
    bounds = tuple((vertex, former.get(vertex, own)) for vertex, own in requirements.bounds)
    others = [pair for pair in requirements.state_partitions if pair[0] not in former]
    before = [pair for change in changes for pair in change.former_partitions]
    return evolve(requirements, bounds=bounds, state_partitions=(*others, *before))


def is_met(state: JobState, change: Pending, parallelism: Mapping[str, int]) -> bool:
    """Whether a job that runs at ``parallelism`` has what ``change`` asks for."""
    goal, least = _asked_by(state, change)
    return all(
        least.get(vertex, 0) <= parallelism[vertex] <= goal.bounds[vertex].upper for vertex in change.vertices
    )


def asks_for_more(state: JobState, change: Pending, parallelism: Mapping[str, int]) -> bool:
    """Whether ``change`` raises anything above ``parallelism``."""
    _, least = _asked_by(state, change)
    return any(count > parallelism[vertex] for vertex, count in least.items())


def slots_needed(state: JobState, change: Pending) -> int:
    """With how many slots ``change`` has what it asks for, if whatever else waits goes on waiting."""
    goal, least = _asked_by(state, change)
    counts = range(goal.minimal, _most_slots(state, goal))
    return counts.start + bisect_left(counts, True, key=lambda count: _suffices(goal, count, least))


def _have_come(state: JobState, waiting: Collection[Pending], kept: Collection[Pending]) -> bool:
    """Whether the slots are enough for each of ``waiting`` but for those of ``kept``."""
    goal = _goal(state, kept)
    return all(
        _suffices(goal, state.usable_slots, _targets(state, one, goal)) for one in waiting if one not in kept
    )


def _suffices(goal: Demand, slots: int, least: Mapping[str, int]) -> bool:
    now = goal.parallelism(slots)
    return not least or (now is not None and all(now[vertex] >= count for vertex, count in least.items()))


def _asked_by(state: JobState, change: Pending) -> tuple[Demand, dict[str, int]]:
    """What the job goes for once ``change`` counts, if whatever else waits goes on waiting; and its `_targets`."""
    goal = _goal(state, _without(held(state), change))
    return goal, _targets(state, change, goal)


def _targets(state: JobState, change: Pending, goal: Demand) -> dict[str, int]:
    """The parallelism that ``change`` has to lead to, of each vertex of which it raises a bound. ``goal``: what the job
    goes for once it counts."""
    former = _demand(state, state.with_deadline).bounds
    most = goal.parallelism(_most_slots(state, goal))
    assert most is not None
    found = {}
    for vertex in change.vertices:
        now, before = goal.bounds[vertex], former[vertex]
        if now.upper > before.upper or now.lower > before.lower:
            found[vertex] = min(now.upper if now.upper > before.upper else now.lower, most[vertex])
    return found


def _most_slots(state: JobState, goal: Demand) -> int:
    """The slots of the upper bounds, as far as the cap allows them."""
    cap = state.share.cap
    return goal.desired if cap is None else min(goal.desired, max(cap, goal.minimal))


def _without(kept: Iterable[Pending], change: Pending) -> tuple[Pending, ...]:
    return tuple(one for one in kept if one.version != change.version)


def _bounds(state: JobState, kept: Collection[Pending]) -> Requirements:
    """The requirements that count while ``kept`` wait."""
    if not kept:
        return effective(state)
    bounds = _declared(state, kept)
    taken = next((one.taken_back for one in kept if one.taken_back is not None), None)
    if taken is None:
        return bounds
    count = {vertex for one in state.pending if one not in kept for vertex in one.vertices}
    good = {vertex: own for vertex, own in taken.good if vertex not in count}
    return at_most(state.policy, bounds, good)


def _declared(state: JobState, kept: Collection[Pending]) -> Requirements:
    """What was declared but for ``kept``, within the scaling policy."""
    if not kept:
        return state.bounds
    return within(state.policy, state.graph, without(state.requirements, kept))


def _demand(state: JobState, kept: Collection[Pending]) -> Demand:
    """What the job goes for while ``kept`` wait, with the state partitions that it has."""
    return Demand.of(state.graph, _bounds(state, kept))


def _goal(state: JobState, kept: Collection[Pending]) -> Demand:
    """What the job goes for while ``kept`` wait."""
    return Demand.of(_graph(state, kept), _bounds(state, kept))


def _graph(state: JobState, kept: Collection[Pending]) -> JobGraph:
    refused = state.repartition_refused
    if state.repartition is not None or (
        refused is not None and refused.requirements_uuid == state.requirements.uuid
    ):
        return state.graph
    if kept and len(kept) == len(state.with_deadline):
        return state.graph
    return wanted_graph(state.graph, _declared(state, kept))

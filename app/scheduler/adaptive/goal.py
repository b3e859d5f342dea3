"""What a job goes for: its requirements within the scaling policy, but for what was taken back."""

from __future__ import annotations

from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.trial import effective
from app.scheduler.slots import Demand


def demand_of(state: JobState) -> Demand:
    """What the job goes for with the state partitions that it has. A job that ran below its lower bounds comes back
    with what slots there are."""
    found = Demand.of(state.graph, state.bounds if state.taken_back is None else effective(state))
    if state.plan is not None or not comes_back(state):
        return found
    bounds = tuple((vertex, Bounds(1, own.upper)) for vertex, own in found.requirements)
    return Demand.of(state.graph, evolve(found.requirements, bounds=bounds))


def goal_graph(state: JobState) -> JobGraph:
    """``state.graph`` with the state partitions that the requirements ask for.

    ``state.graph`` itself if it has them, if a redistribution has been begun (one after the other), and if one was
    given up under these requirements.
    """
    if state.repartition is not None or state.is_repartition_given_up:
        return state.graph
    return state.with_wanted_partitions()


def comes_back(state: JobState) -> bool:
    """Whether the job is down, and its lower bounds need more slots than there are and than it ran with last: that it
    was left to run so must not be its end. A new job, or a new version, waits for its lower bounds."""
    if state.plan is not None or state.last_plan is None:
        return False
    return comes_back_below(state, Demand.of(goal_graph(state), effective(state)).minimal)


def comes_back_below(state: JobState, minimal: int) -> bool:
    """Whether the job, started again with the slots of now, would come back although its lower bounds need ``minimal``
    slots: it has neither so many nor ran with so many last."""
    last = state.plan or state.last_plan
    return last is not None and not state.unproven and max(last.slot_count, state.usable_slots) < minimal

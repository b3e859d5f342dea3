"""What a job goes for, and the slots of it, worked out by docs/rescale.md."""

from __future__ import annotations

from dataclasses import replace

from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds, Requirements
from app.scheduler.adaptive.state import JobState
from tests.simulation.rules import bounds_now, declared_within, least_slots, most_slots, parallelism

Holds = dict[str, Bounds]


def declared_least(state: JobState) -> int:
    """The slots that the job cannot do without: those of the bounds that hold, of those that held before what was
    applied and is not in force, or of all that wait."""
    former = state.requirements
    for one in state.queued:
        if one.begun is not None:
            former = with_bounds(former, dict(one.begun.former))
    whole = with_bounds(former, {vertex: own for one in state.queued for vertex, own in one.bounds})
    declared = (bounds_now(state.graph, each, None, state.policy) for each in (former, whole))
    return min(least_slots(state.graph, each) for each in (goal_of(state), *declared))


def counting_slots(state: JobState) -> int:
    """The slots that the bounds need which hold now, with the state partitions that they ask for."""
    graph, _ = asks_for(state, state.requirements)
    return least_slots(graph, goal_of(state, graph))


def goal_of(state: JobState, graph: JobGraph | None = None) -> Holds:
    """What the job goes for: what holds, within its policy, but for what was taken back. ``graph``: with other state
    partitions."""
    back = None if state.trial.taken_back is None else dict(state.trial.taken_back.good)
    return bounds_now(graph or state.graph, state.requirements, back, state.policy)


def asks_for(state: JobState, wanted: Requirements) -> tuple[JobGraph, Holds]:
    """What ``wanted`` asks for, whatever was taken back, with its state partitions: for each vertex with state at least
    as many as its upper bound. Not while a redistribution is under way, or was given up under these requirements."""
    graph, refused = state.graph, state.partitions.refused
    same = (wanted.bounds, wanted.state_partitions) == (
        state.requirements.bounds,
        state.requirements.state_partitions,
    )
    given_up = refused is not None and same and refused.requirements_uuid == state.requirements.uuid
    if state.partitions.repartition is None and not given_up:
        upper = {one: own.upper for one, own in declared_within(graph, wanted, state.policy).items()}
        number = dict(wanted.state_partitions)
        vertices = [
            replace(one, max_parallelism=max(number.get(one.id, one.max_parallelism), upper[one.id]))
            # Of what nobody has analysed yet it is not known whether there is any state.
            if one.stateful and not one.is_assumed
            else one
            for one in graph.vertices
        ]
        graph = replace(graph, vertices=tuple(vertices))
    return graph, bounds_now(graph, wanted, None, state.policy)


def needs_of(state: JobState, graph: JobGraph, goal: Holds, former: Holds, bounds: Holds) -> dict[str, int]:
    """The least parallelism of each vertex of ``bounds`` that has what is asked of it: the bound that was raised, the
    upper one before the lower one, as far as the cap allows it."""
    most, cap = most_slots(graph, goal), state.share.cap
    full = parallelism(graph, goal, most if cap is None else min(most, max(cap, least_slots(graph, goal))))
    assert full is not None
    found = {}
    for vertex in bounds:
        now, was = goal[vertex], former[vertex]
        raised = [high for high, low in ((now.upper, was.upper), (now.lower, was.lower)) if high > low]
        if raised:
            found[vertex] = min(raised[0], full[vertex])
    return found


def with_bounds(requirements: Requirements, bounds: Holds) -> Requirements:
    return replace(requirements, bounds=tuple((one, bounds.get(one, own)) for one, own in requirements))

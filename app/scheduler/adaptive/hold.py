"""By which bounds a job decides while other ones wait for their deadline (ADR 46).

Bounds that were declared with a deadline are brought into force when all the slots are there that they ask for. Until
then, and until the deadline, the former bounds of their vertices hold. But a job that could not run by the former
bounds, and can by the new ones, does not wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.model.jobgraph import JobGraph
from app.model.requirements import Requirements
from app.model.scaling_policy import within
from app.model.state_partitions import wanted_graph
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.trial import effective
from app.scheduler.slots import Demand


def asked_graph(state: JobState) -> JobGraph:
    """``state.graph`` with the state partitions that the requirements ask for.

    ``state.graph`` itself if it has them, if a redistribution has been begun (one after the other), and if one was
    given up under these requirements.
    """
    refused = state.repartition_refused
    if state.repartition is not None or (
        refused is not None and refused.requirements_uuid == state.requirements.uuid
    ):
        return state.graph
    return wanted_graph(state.graph, state.bounds)


def asked(state: JobState) -> Demand:
    """What the job asks for, whatever holds until a deadline: its requirements but for what was taken back."""
    return Demand.of(asked_graph(state), effective(state))


def held_back(state: JobState) -> Demand | None:
    """What the job goes for because other bounds wait for their deadline; None if none does, or waits no longer."""
    waiting = [one for one in state.pending if one.deadline is not None]
    # What was taken back is below all bounds.
    if not waiting or state.taken_back is not None:
        return None
    wish, cap, usable = asked(state), state.share.cap, state.usable_slots
    wanted = wish.desired if cap is None else min(wish.desired, max(cap, wish.minimal))
    if usable >= wanted:
        return None
    former = _of_former(state, waiting)
    return None if wish.minimal <= usable < former.minimal else former


def least_slots(state: JobState) -> int:
    """The slots without which the job can run by neither bounds."""
    least = asked(state).minimal
    waiting = [one for one in state.pending if one.deadline is not None]
    if not waiting or state.taken_back is not None:
        return least
    return min(least, _of_former(state, waiting).minimal)


def in_effect(state: JobState) -> Requirements:
    """The requirements that decisions are made with."""
    held = held_back(state)
    return effective(state) if held is None else held.requirements


def _of_former(state: JobState, waiting: Iterable[Pending]) -> Demand:
    former = without(state.requirements, waiting)
    return Demand.of(state.graph, within(state.policy, state.graph, former))


def without(requirements: Requirements, changes: Iterable[Pending]) -> Requirements:
    """``requirements`` with the bounds before ``changes``."""
    former = {vertex: bounds for change in changes for vertex, bounds in change.former}
    bounds = tuple((vertex, former.get(vertex, own)) for vertex, own in requirements.bounds)
    return evolve(requirements, bounds=bounds)

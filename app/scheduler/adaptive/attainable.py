"""The parallelism that a running job can attain with its slots and bounds, and the rung of the rescale to it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.model.jobgraph import InPlace, JobGraph
from app.model.options import JobOptions
from app.model.plan import Rung
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.rollback_state import Parallelism
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.transition_manager import Outlook, Timing

_BASIS: Final[Callable[[JobState], tuple[object, ...]]] = operator.attrgetter(
    *("graph", "options", "requirements", "policy", "taken_back", "plan", "last_plan", "unproven", "slots"),
    *(
        "allowed",
        "share",
        "declared_slots",
        "declared_minimal",
        "repartition",
        "repartition_refused",
        "fixed",
    ),
    *("attempt", "away_since_ms"),
)
"""What `attainable_now` depends on."""


@dataclass(frozen=True, slots=True)
class Attainable:
    """``parallelism`` is None if the slots do not suffice for the lower bounds; ``rung`` if nothing would change.
    ``usable``, ``wanted``: the slots that may be used, and those that are worth waiting for."""

    parallelism: dict[str, int] | None
    rung: Rung | None
    outlook: Outlook
    usable: int
    wanted: int


def rung_between(graph: JobGraph, now: Mapping[str, int], then: Mapping[str, int]) -> Rung | None:
    """The cheapest rung from one parallelism to another, None if they are equal.

    In place if every vertex whose parallelism differs can change between two micro-batches. A change of both kinds
    of vertices is made by one restart.
    """
    differing = [vertex for vertex in graph.vertices if now[vertex.id] != then[vertex.id]]
    if not differing:
        return None
    if all(vertex.in_place is InPlace.YES for vertex in differing):
        return Rung.IN_PLACE
    return Rung.QUERY_RESTART


def attainable_now(draft: Draft, *, repartition: bool = True) -> Attainable:
    """What the running job of ``draft`` could become now, and the timing that holds for it.

    Not ``repartition``: with the state partitions that it has, whatever is asked for. While the cluster cannot be
    seen nothing suffices for a restart: what is stopped then might find no slots to start in.
    """
    basis, last = (repartition, *_BASIS(draft.state)), draft.view
    if last is None or not all(map(operator.is_, last[1], basis)):
        last = draft.view = (_worked_out(draft, repartition=repartition), basis)
    return last[0]


def _worked_out(draft: Draft, *, repartition: bool) -> Attainable:
    state = draft.state
    plan = state.plan
    assert plan is not None
    demand, goal = draft.demands if repartition else (draft.demand, draft.demand)
    usable, wanted = state.slots_to_use
    attainable = None if goal is demand else goal.parallelism(usable)
    rung = None if attainable is None else Rung.STATE_REPARTITION
    if attainable is None:
        attainable = demand.parallelism(usable)
        rung = None if attainable is None else rung_between(state.graph, dict(plan.parallelism), attainable)
        if rung is None and attainable is not None and demand.desired < plan.slot_count:
            # The first query of a program may need fewer slots than the program had.
            rung = Rung.IN_PLACE
    possible = rung is not None and (rung is Rung.IN_PLACE or not state.cluster_unreachable)
    return Attainable(
        attainable,
        rung,
        Outlook(
            sufficient=possible,
            desired=possible and usable >= wanted,
            timing=timing(state.options, rung),
            longest_cooldown_ms=longest_cooldown_ms(state.options),
        ),
        usable,
        wanted,
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


def in_words(graph: JobGraph, parallelism: Iterable[tuple[str, int]]) -> str:
    """'source 2, sink 4'"""
    return ", ".join(f"{graph.by_id[vertex].name} {count}" for vertex, count in parallelism)


def change_in_words(graph: JobGraph, before: Parallelism, after: Parallelism) -> str:
    """'sink 2 to 4': the vertices that differ."""
    old = dict(before)
    return ", ".join(
        f"{graph.by_id[vertex].name} {old[vertex]} to {count}"
        for vertex, count in after
        if count != old[vertex]
    )

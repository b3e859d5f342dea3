"""A plan: the parallelism decided for every vertex, and the slots that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from app.model.jobgraph import InPlace, JobGraph
from app.model.value import value


class Rung(StrEnum):
    """How a plan is brought into force, cheapest first."""

    IN_PLACE = "in-place"
    BATCH_INTERRUPTED = "batch-interrupted"
    QUERY_RESTART = "query-restart"
    STATE_REPARTITION = "state-repartition"
    NEW_DRIVER = "new-driver"


@value
class Slot:
    """One task's worth of a TaskManager."""

    id: str
    task_manager_id: str


@value
class Plan:
    """Parallelism per vertex and slots per slot sharing group (both in declared order).

    ``version`` counts the plans of a job from 1 and never goes back: a driver ignores a plan older than its own.
    """

    version: int
    parallelism: tuple[tuple[str, int], ...]
    group_slots: tuple[tuple[str, tuple[str, ...]], ...]

    def parallelism_of(self, vertex_id: str) -> int:
        for candidate, count in self.parallelism:
            if candidate == vertex_id:
                return count
        raise KeyError(vertex_id)

    @property
    def slot_count(self) -> int:
        return sum(len(slots) for _, slots in self.group_slots)

    @property
    def slot_ids(self) -> set[str]:
        return set().union(*[slots for _, slots in self.group_slots])


def parallelism_in_words(graph: JobGraph, parallelism: Iterable[tuple[str, int]]) -> str:
    """'source 2, sink 4'"""
    return ", ".join(f"{graph.by_id[vertex].name} {count}" for vertex, count in parallelism)


def change_in_words(
    graph: JobGraph, before: Iterable[tuple[str, int]], after: Iterable[tuple[str, int]]
) -> str:
    """'sink 2 to 4': the vertices that differ."""
    old = dict(before)
    return ", ".join(
        f"{graph.by_id[vertex].name} {old[vertex]} to {count}"
        for vertex, count in after
        if count != old[vertex]
    )


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

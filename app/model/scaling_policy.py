"""The floor and ceiling of parallelism that an operator sets for the vertices of a job (ADR 47).

The requirements stay as declared. The scheduler decides with the bounds that `within` computes from both.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds, Requirements


@dataclass(frozen=True, slots=True)
class FloorCeiling:
    """The least and the most parallelism of a vertex; None for no such limit. ``floor`` is at most ``ceiling``."""

    floor: int | None = None
    ceiling: int | None = None

    def __bool__(self) -> bool:
        return self.floor is not None or self.ceiling is not None

    def over(self, other: FloorCeiling) -> FloorCeiling:
        """Each of its own limits, and that of ``other`` where it has none."""
        floor = other.floor if self.floor is None else self.floor
        return FloorCeiling(floor, other.ceiling if self.ceiling is None else self.ceiling)

    def within(self, declared: Bounds, max_parallelism: int) -> Bounds:
        """The bounds that count for a vertex: ``declared``, raised to the floor and then lowered to the ceiling.

        A floor alone never asks for a redistribution of state: it counts up to ``max_parallelism``.
        """
        lower, upper = declared.lower, declared.upper
        if self.floor is not None:
            floor = min(self.floor, max(max_parallelism, upper))
            lower, upper = max(lower, floor), max(upper, floor)
        if self.ceiling is not None:
            lower, upper = min(lower, self.ceiling), min(upper, self.ceiling)
        return Bounds(lower, upper)


NO_LIMITS: Final = FloorCeiling()


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """What was set last for a job: for all of its vertices, and for single ones by id, whose own limits go first.

    ``version`` counts the changes from 1, a job without a policy (it is the ETag). ``requested_by`` and ``reason`` say
    who asked for the last change and why, ``changed_ms`` when.
    """

    version: int = 1
    all_vertices: FloorCeiling = NO_LIMITS
    vertices: tuple[tuple[str, FloorCeiling], ...] = ()
    requested_by: str | None = None
    reason: str | None = None
    changed_ms: int = 0

    def __bool__(self) -> bool:
        """Whether it limits anything."""
        return self.version > 1 and bool(self.all_vertices or self.vertices)

    def __getitem__(self, vertex_id: str) -> FloorCeiling:
        """What it says of a vertex."""
        own = next((limits for candidate, limits in self.vertices if candidate == vertex_id), NO_LIMITS)
        return own.over(self.all_vertices)

    def same_as(self, other: ScalingPolicy) -> bool:
        """Whether ``other`` sets exactly the same limits."""
        return (self.all_vertices, self.vertices) == (other.all_vertices, other.vertices)

    def gone_from(self, graph: JobGraph) -> tuple[str, ...]:
        """The ids of vertices of its own limits that ``graph`` does not have."""
        return tuple(vertex for vertex, _ in self.vertices if vertex not in graph.by_id)


def within(policy: ScalingPolicy, graph: JobGraph, requirements: Requirements) -> Requirements:
    """``requirements`` with the bounds that decisions are made with: the limits win over what was declared."""
    if not policy:
        return requirements
    limits = {vertex: own.over(policy.all_vertices) for vertex, own in policy.vertices}
    bounds = tuple(
        (vertex, limits.get(vertex, policy.all_vertices).within(own, graph.by_id[vertex].max_parallelism))
        for vertex, own in requirements
    )
    return replace(requirements, bounds=bounds)


def faults(
    graph: JobGraph,
    all_vertices: FloorCeiling,
    vertices: Mapping[str, FloorCeiling],
    gone: Container[str] = (),
) -> list[str]:
    """What is wrong with the limits of a policy for ``graph``, in sentences. Keys of ``vertices`` are ids. ``gone``:
    vertices of a version before that may come back, of which limits are kept."""
    errors = []
    for key, limits in vertices.items():
        if key in graph.by_id:
            continue
        every = limits.over(all_vertices)
        if key not in gone:
            errors.append(f"Job vertex {key} was not found in the job graph.")
        elif every.floor is not None and every.ceiling is not None and every.floor > every.ceiling:
            errors.append(
                f"For job vertex {key}, the floor {every.floor} is above the ceiling {every.ceiling}."
            )
    for vertex in graph.vertices:
        own = vertices.get(vertex.id, NO_LIMITS)
        limits = own.over(all_vertices)
        floor, ceiling, label = limits.floor, limits.ceiling, f"job vertex {vertex.id} ({vertex.name})"
        whose = ["for all vertices" if one is None else "of its own" for one in (own.floor, own.ceiling)]
        if floor is not None and ceiling is not None and floor > ceiling:
            errors.append(
                f"For {label}, the floor {floor} ({whose[0]}) is above the ceiling {ceiling} ({whose[1]})."
            )
        if floor is not None and floor > (most := vertex.highest_bound):
            what = "state partitions" if vertex.stateful and not vertex.max_is_assumed else "max parallelism"
            errors.append(
                f"For {label}, the floor {floor} ({whose[0]}) is above its {what}, {most}: set a floor of {most} at "
                "most for this vertex."
            )
    return errors


def differences(policy: ScalingPolicy, graph: JobGraph, requirements: Requirements) -> Iterator[str]:
    """A sentence for each vertex whose bounds are others than were declared, and which limit has made them so."""
    if not policy:
        return
    clamped = within(policy, graph, requirements).as_dict()
    for vertex, declared in requirements:
        bounds, limits, name = clamped[vertex], policy[vertex], graph.by_id[vertex].name
        if bounds == declared:
            continue
        told = []
        if bounds.lower > declared.lower or bounds.upper > declared.upper:
            told.append(f"the floor {limits.floor}")
        if bounds.lower < declared.lower or bounds.upper < declared.upper:
            told.append(f"the ceiling {limits.ceiling}")
        yield (
            f"{name} may run at {bounds.lower} to {bounds.upper}; {declared.lower} to {declared.upper} was declared. "
            f"That is {' and '.join(told)} of the scaling policy."
        )


def in_graph(
    graph: JobGraph, vertices: Iterable[tuple[str, FloorCeiling]], gone: Iterable[str] = ()
) -> tuple[tuple[str, FloorCeiling], ...]:
    """The limits of single vertices in the graph's order, then those of ``gone``; without those that limit nothing."""
    given = dict(vertices)
    keys = (*[vertex.id for vertex in graph.vertices], *gone)
    return tuple((key, given[key]) for key in keys if given.get(key, NO_LIMITS))

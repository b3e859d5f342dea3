"""Pipelined regions: the parts of a batch job that run as a whole, one after another.

Flink 1.12's pipelined region scheduling as production Flink does it, on whole vertices: producer and consumer of a
PIPELINED edge run together, a BLOCKING edge separates them, and regions that would wait for each other's results are
one region. (Flink looks at single subtasks where an edge is pointwise; a vertex is one stage of a Spark job here.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from app.model.graphwalk import in_order, reached
from app.model.jobgraph import Exchange, JobGraph


@dataclass(frozen=True, slots=True)
class Region:
    """Vertices that run together, in topological order.

    ``inputs``: the vertices of other regions whose blocking results it reads, by id, in the graph's order.
    """

    number: int
    vertices: tuple[str, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Regions:
    """All regions of a job, each after those whose results it reads."""

    all: tuple[Region, ...]

    @cached_property
    def by_vertex(self) -> Mapping[str, Region]:
        """The region of each vertex, by the vertex's id."""
        return {vertex: region for region in self.all for vertex in region.vertices}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Region, ...]]:
        """The regions that read the result of a vertex, by the vertex's id; only vertices whose result is read."""
        found: dict[str, list[Region]] = {}
        for region in self.all:
            for vertex in region.inputs:
                found.setdefault(vertex, []).append(region)
        return {vertex: tuple(regions) for vertex, regions in found.items()}

    def consumers(self, region: Region) -> tuple[Region, ...]:
        """The regions that read results of ``region``."""
        found = {reader for vertex in region.vertices for reader in self.readers.get(vertex, ())}
        return tuple(sorted(found, key=lambda one: one.number))


def regions_of(graph: JobGraph) -> Regions:
    """The pipelined regions of ``graph``."""
    owner = _joined_by_pipelines(graph)
    owner = _joined_by_cycles(graph, owner)
    members: dict[str, list[str]] = {}
    for vertex in graph.vertices:
        members.setdefault(owner[vertex.id], []).append(vertex.id)
    place = {vertex.id: index for index, vertex in enumerate(graph.vertices)}
    inputs = {
        name: {
            one.vertex_id
            for vertex_id in own
            for one in graph.by_id[vertex_id].inputs
            if owner[one.vertex_id] != name
        }
        for name, own in members.items()
    }
    names = list(members)
    order = {name: index for index, name in enumerate(names)}
    needed = {order[name]: {order[owner[one]] for one in own} for name, own in inputs.items()}
    regions = []
    for number, index in enumerate(in_order(needed) or ()):
        own = tuple(sorted(inputs[names[index]], key=place.__getitem__))
        regions.append(Region(number, tuple(members[names[index]]), own))
    return Regions(tuple(regions))


def _joined_by_pipelines(graph: JobGraph) -> dict[str, str]:
    """For each vertex the id that stands for its region: the first vertex of it."""
    owner: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for vertex in graph.vertices:
        own = vertex.id
        owner[own], members[own] = own, [own]
        for one in vertex.inputs:
            other = owner[one.vertex_id]
            if one.exchange is not Exchange.PIPELINED or other == own:
                continue
            # The smaller one moves, so that a long chain does not cost its square.
            small, large = sorted((own, other), key=lambda name: len(members[name]))
            for moved in members.pop(small):
                owner[moved] = large
                members[large].append(moved)
            own = large
    return owner


def _region_edges(graph: JobGraph, owner: Mapping[str, str]) -> dict[str, list[str]]:
    """Who reads whose result, by the ids that stand for regions."""
    edges: dict[str, list[str]] = {owner[vertex.id]: [] for vertex in graph.vertices}
    for vertex in graph.vertices:
        for one in vertex.inputs:
            producer, consumer = owner[one.vertex_id], owner[vertex.id]
            if producer != consumer and consumer not in edges[producer]:
                edges[producer].append(consumer)
    return edges


def _joined_by_cycles(graph: JobGraph, owner: Mapping[str, str]) -> dict[str, str]:
    """Regions that wait for each other would wait for ever: those that reach each other become one region."""
    edges = _region_edges(graph, owner)
    after = {name: reached([name], edges.__getitem__) for name in edges}
    first = {
        name: next(other for other in edges if other in after[name] and name in after[other])
        for name in edges
    }
    return {vertex: first[name] for vertex, name in owner.items()}


# ---- which regions run again after one has failed (Flink's region failover), and which may start next


def regions_to_restart(
    regions: Regions,
    failed: Region,
    is_available: Callable[[str, Region], bool],
    has_started: Callable[[Region], bool] = lambda _region: True,
) -> tuple[Region, ...]:
    """The regions that must run again because ``failed`` failed, in the order in which they run.

    ``is_available(vertex_id, reader)`` tells whether what ``reader`` reads of a vertex is there still; a result that
    was named as the cause of the failure is not. Beside the failed region these are the producers of every lost result
    that one of them reads, and all who read what is made anew: another run may give other rows, in another order. A
    reader that has not started has read nothing, so it is left alone with all that it waits for.
    """
    found: dict[int, Region] = {}
    to_visit = [failed]
    while to_visit:
        region = to_visit.pop()
        if region.number in found:
            continue
        found[region.number] = region
        to_visit += [
            regions.by_vertex[vertex] for vertex in region.inputs if not is_available(vertex, region)
        ]
        to_visit += [reader for reader in regions.consumers(region) if has_started(reader)]
    return tuple(found[number] for number in sorted(found))


def startable(
    regions: Regions, started: Collection[int], is_available: Callable[[str, Region], bool]
) -> tuple[Region, ...]:
    """The regions that are not in ``started`` (by number) and all of whose inputs are there, in topological order.

    ``is_available`` as in `regions_to_restart`.
    """
    return tuple(
        region
        for region in regions.all
        if region.number not in started and all(is_available(vertex, region) for vertex in region.inputs)
    )

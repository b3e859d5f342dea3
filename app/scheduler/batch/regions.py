"""Pipelined regions: the parts of a batch job that run as a whole, one after another.

Flink 1.12's pipelined region scheduling as production Flink does it, on whole vertices: producer and consumer of a
PIPELINED edge run together, a BLOCKING edge separates them, and regions that would wait for each other's results are
one region. (Flink looks at single subtasks where an edge is pointwise; a vertex is one stage of a Spark job here.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from app.model.jobgraph import Exchange, JobGraph


@dataclass(frozen=True, slots=True)
class Region:
    """Vertices that run together, in topological order.

    ``inputs``: the vertices of other regions whose blocking results it reads. ``results``: its own vertices whose
    results regions read. Both by id, in the graph's order.
    """

    number: int
    vertices: tuple[str, ...]
    inputs: tuple[str, ...]
    results: tuple[str, ...]


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

    def producers(self, region: Region) -> tuple[Region, ...]:
        """The regions whose results ``region`` reads."""
        return _in_order(self.by_vertex[vertex] for vertex in region.inputs)

    def consumers(self, region: Region) -> tuple[Region, ...]:
        """The regions that read results of ``region``."""
        return _in_order(reader for vertex in region.results for reader in self.readers[vertex])


def regions_of(graph: JobGraph) -> Regions:
    """The pipelined regions of ``graph``."""
    owner = _joined_by_pipelines(graph)
    owner = _joined_by_cycles(graph, owner)
    members: dict[str, list[str]] = {}
    for vertex in graph.vertices:
        members.setdefault(owner[vertex.id], []).append(vertex.id)
    read = {
        one.vertex_id
        for vertex in graph.vertices
        for one in vertex.inputs
        if owner[one.vertex_id] != owner[vertex.id]
    }
    place = {vertex.id: index for index, vertex in enumerate(graph.vertices)}
    regions = []
    for number, name in enumerate(_topological(members, _region_edges(graph, owner))):
        inputs = {
            one.vertex_id
            for vertex_id in members[name]
            for one in graph.by_id[vertex_id].inputs
            if owner[one.vertex_id] != name
        }
        regions.append(
            Region(
                number=number,
                vertices=tuple(members[name]),
                inputs=tuple(sorted(inputs, key=place.__getitem__)),
                results=tuple(vertex_id for vertex_id in members[name] if vertex_id in read),
            )
        )
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
    """Regions that wait for each other would wait for ever: each strongly connected component becomes one region."""
    component = _strong_components(_region_edges(graph, owner))
    return {vertex: component[name] for vertex, name in owner.items()}


def _strong_components(edges: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Tarjan's algorithm without recursion: for each node the one that stands for its component."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    component: dict[str, str] = {}
    path: list[str] = []
    for root in edges:
        work = [] if root in index else [(root, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                index[node] = low[node] = len(index)
                path.append(node)
            for number, other in enumerate(edges[node][position:], position + 1):
                if other not in index:
                    work += [(node, number), (other, 0)]
                    break
                if other not in component:
                    low[node] = min(low[node], low[other])
            else:
                if low[node] == index[node]:
                    _close_component(node, path, component)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return component


def _close_component(node: str, path: list[str], component: dict[str, str]) -> None:
    while True:
        member = path.pop()
        component[member] = node
        if member == node:
            return


def _topological(members: Mapping[str, list[str]], edges: Mapping[str, Sequence[str]]) -> list[str]:
    """The regions, each after those that it reads from; among equals in the order of the graph."""
    waiting = dict.fromkeys(members, 0)
    for consumers in edges.values():
        for name in consumers:
            waiting[name] += 1
    done: list[str] = []
    ready = [name for name in members if not waiting[name]]
    order = {name: number for number, name in enumerate(members)}
    while ready:
        name = ready.pop(0)
        done.append(name)
        for consumer in edges[name]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
        ready.sort(key=order.__getitem__)
    return done


def _in_order(regions: Iterable[Region]) -> tuple[Region, ...]:
    return tuple(sorted(set(regions), key=lambda region: region.number))


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

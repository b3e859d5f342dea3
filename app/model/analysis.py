"""How a job graph becomes streaming queries: one per sink, split where its parallelism stops being Spark's plan.

A query has a head and a tail. The head is the streaming plan, up to and including the *cut*; the tail is applied to
each micro-batch, where its parallelism can be chosen anew. The cut is the latest vertex after which there is only a
chain of stateless vertices with one streaming input each, so as much as possible is in the tail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.model.jobgraph import InPlace, JobGraph, JobVertex, PlannedSpec, SourceSpec

BUILT_IN_SOURCES = frozenset({"csv", "json", "parquet", "text", "rate", "rate-micro-batch"})
"""Sources that ask for their parallelism in every micro-batch. Spark decides that of all the others."""


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query.

    ``head`` ends with the cut, ``tail`` with the sink; both are in topological order. ``tail`` is empty if the sink
    of a program reads several vertices: then it is the cut. Static vertices (side tables and what is made of them only)
    are in neither: ``static`` names those that the query reads, in topological order.
    """

    head: tuple[JobVertex, ...]
    tail: tuple[JobVertex, ...]
    static: tuple[JobVertex, ...]

    @property
    def cut(self) -> JobVertex:
        return self.head[-1]

    @property
    def sink(self) -> JobVertex:
        return (*self.head, *self.tail)[-1]

    @property
    def key(self) -> str:
        """What tells the query from the others of its job, stable across submissions: its sink's vertex id."""
        return self.sink.id

    @property
    def streams(self) -> tuple[JobVertex, ...]:
        """The streaming sources."""
        return tuple(vertex for vertex in self.head if vertex.is_source)

    @property
    def own_sources(self) -> tuple[str, ...]:
        """Ids of the streaming sources that ask for their parallelism in every micro-batch."""
        return tuple(vertex.id for vertex in self.streams if _is_own(vertex))

    @property
    def vertices(self) -> tuple[JobVertex, ...]:
        return (*self.static, *self.head, *self.tail)

    @property
    def state_partitions(self) -> int | None:
        """The number of state partitions of its checkpoint; None for a query without state.

        Spark has one number for a whole query, so that of its largest stateful vertex holds for all of them.
        """
        stateful = [vertex.max_parallelism for vertex in self.head if vertex.stateful]
        return max(stateful) if stateful else None


def static_vertices(vertices: Sequence[JobVertex]) -> frozenset[str]:
    """Ids of the vertices that do not stream: static sources, and what reads static vertices only.

    ``vertices`` must be in topological order.
    """
    static: set[str] = set()
    for vertex in vertices:
        if isinstance(vertex.operation, SourceSpec):
            if vertex.operation.static:
                static.add(vertex.id)
        elif vertex.inputs and all(edge.vertex_id in static for edge in vertex.inputs):
            static.add(vertex.id)
    return frozenset(static)


def queries(graph: JobGraph) -> tuple[Query, ...]:
    """The queries of a streaming job, in the order of its sinks."""
    return queries_of(graph.vertices)


def queries_of(vertices: Sequence[JobVertex]) -> tuple[Query, ...]:
    """As `queries`, of vertices in topological order."""
    static = static_vertices(vertices)
    by_id = {vertex.id: vertex for vertex in vertices}
    return tuple(_query_of(sink, vertices, by_id, static) for sink in vertices if sink.is_sink)


def in_place_of(vertices: Sequence[JobVertex]) -> dict[str, InPlace]:
    """For each vertex id, whether its parallelism can change between two micro-batches of every query it is in.

    It can for the cut and for the tail; for a source, if it is built in; for a static vertex, because its work is
    done within its consumer's tasks. It cannot for another vertex of the head, which stands in Spark's plan, unless it
    is of a program: there each has a valve.
    """
    answer = {vertex.id: InPlace.YES for vertex in vertices}
    for query in queries_of(vertices):
        for vertex in query.head:
            if isinstance(vertex.operation, PlannedSpec):
                continue
            if not (_is_own(vertex) if vertex.is_source else vertex is query.cut):
                answer[vertex.id] = InPlace.QUERY_RESTART
    return answer


def _is_own(vertex: JobVertex) -> bool:
    return isinstance(vertex.operation, SourceSpec) and vertex.operation.format in BUILT_IN_SOURCES


def _query_of(
    sink: JobVertex, vertices: Sequence[JobVertex], by_id: dict[str, JobVertex], static: frozenset[str]
) -> Query:
    tail = [sink]
    cut = sink
    while True:
        streaming = [edge.vertex_id for edge in cut.inputs if edge.vertex_id not in static]
        if not streaming or (cut.stateful and not cut.is_sink) or len(streaming) > 1:
            break
        cut = by_id[streaming[0]]
        tail.append(cut)
    tail.pop()  # the cut itself
    tail_ids = {vertex.id for vertex in tail}
    reached = upstream(sink.id, by_id)
    inside = [vertex for vertex in vertices if vertex.id in reached]
    head = tuple(v for v in inside if v.id not in static and v.id not in tail_ids)
    # Topological order alone does not put the cut last if the graph has parallel branches.
    ordered = (*(vertex for vertex in head if vertex.id != cut.id), cut)
    return Query(ordered, tuple(reversed(tail)), tuple(v for v in inside if v.id in static))


def upstream(vertex_id: str, by_id: Mapping[str, JobVertex]) -> set[str]:
    """The ids of ``vertex_id`` and of every vertex that it depends on."""
    reached: set[str] = set()
    waiting = [vertex_id]
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            waiting.extend(edge.vertex_id for edge in by_id[current].inputs)
    return reached

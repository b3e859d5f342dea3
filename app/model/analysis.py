"""The streaming queries of a job graph, one per sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.model.graphwalk import reached
from app.model.jobgraph import JobGraph, JobVertex, SourceSpec, VertexInput


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query.

    ``flow``: the vertices that stream, inputs first, the sink last. ``static``: what the query reads besides, which are
    side tables and what is made of them only, inputs first.
    """

    flow: tuple[JobVertex, ...]
    static: tuple[JobVertex, ...]

    @property
    def sink(self) -> JobVertex:
        return self.flow[-1]

    @property
    def key(self) -> str:
        """What tells the query from the others of its job, stable across submissions: its sink's vertex id."""
        return self.sink.id

    @property
    def streams(self) -> tuple[JobVertex, ...]:
        """The streaming sources."""
        return tuple(vertex for vertex in self.flow if vertex.is_source)

    @property
    def stateful(self) -> tuple[JobVertex, ...]:
        return tuple(vertex for vertex in self.flow if vertex.stateful)

    @property
    def state_partitions(self) -> int | None:
        """The number of state partitions of its checkpoint; None for a query without state.

        Spark has one number for a whole query, so that of its largest stateful vertex holds for all of them.
        """
        return max((vertex.max_parallelism for vertex in self.stateful), default=None)

    def streaming_inputs(self, vertex: JobVertex) -> tuple[VertexInput, ...]:
        """The inputs of ``vertex`` that stream."""
        static = {each.id for each in self.static}
        return tuple(edge for edge in vertex.inputs if edge.vertex_id not in static)


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
    static = static_vertices(graph.vertices)
    return tuple(
        _query_of(sink, graph.vertices, graph.by_id, static) for sink in graph.vertices if sink.is_sink
    )


def _query_of(
    sink: JobVertex, vertices: Sequence[JobVertex], by_id: Mapping[str, JobVertex], static: frozenset[str]
) -> Query:
    before = upstream(sink.id, by_id) - {sink.id}
    inside = [vertex for vertex in vertices if vertex.id in before]
    flow = tuple(vertex for vertex in inside if vertex.id not in static)
    return Query((*flow, sink), tuple(vertex for vertex in inside if vertex.id in static))


def upstream(vertex_id: str, by_id: Mapping[str, JobVertex]) -> set[str]:
    """The ids of ``vertex_id`` and of every vertex that it depends on."""
    return reached([vertex_id], lambda current: [edge.vertex_id for edge in by_id[current].inputs])

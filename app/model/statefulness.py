"""Which vertices of a graph document keep state: Spark says it, when it has analysed what they do to their streams.
Until then each that could is assumed to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from app.model.analysis import static_vertices
from app.model.graphdoc_build import max_of
from app.model.jobgraph import JobGraph, JobVertex, Partitioner, PythonSpec, SqlSpec, VertexInput


def analysed(graph: JobGraph, stateful: Collection[str]) -> JobGraph:
    """``graph`` as Spark has analysed it: of the vertices that could keep state, those in ``stateful`` do. ``graph``
    itself if nothing is new."""
    static = static_vertices(graph.vertices)

    def found(vertex: JobVertex) -> JobVertex:
        if vertex.id in static or not isinstance(vertex.operation, SqlSpec | PythonSpec):
            return vertex
        most = vertex.max_parallelism
        known = replace(vertex, stateful=vertex.id in stateful, is_assumed=False, max_is_assumed=False)
        if vertex.max_is_assumed and not (known.stateful and vertex.stateful):
            of_its_own = max_of(vertex.parallelism, stateful=known.stateful)
            most = of_its_own if known.stateful else max(most, of_its_own)
        if known.stateful:
            inputs = tuple(edge if edge.vertex_id in static else _hashed(edge) for edge in vertex.inputs)
            known = replace(known, inputs=inputs)
        return replace(known, max_parallelism=most)

    vertices = tuple(map(found, graph.vertices))
    return graph if vertices == graph.vertices else replace(graph, vertices=vertices)


def _hashed(edge: VertexInput) -> VertexInput:
    """Spark sends the rows to the tasks that have their state."""
    return edge if edge.partitioner is Partitioner.BROADCAST else replace(edge, partitioner=Partitioner.HASH)


def assumed_as(graph: JobGraph, before: JobGraph) -> JobGraph:
    """``graph``, of a new version, with assumptions by ``before``: its vertices do what they did."""

    def found(vertex: JobVertex) -> JobVertex:
        known = before.by_id.get(vertex.id)
        if known is None or not vertex.is_assumed:
            return vertex
        most = known.max_parallelism if vertex.max_is_assumed else vertex.max_parallelism
        return replace(vertex, stateful=known.stateful, max_parallelism=max(most, vertex.parallelism))

    return replace(graph, vertices=tuple(map(found, graph.vertices)))

"""The graph of a program, as it is stored once its queries were started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.documents.program import parse_program
from app.model.graphdoc_program import graph_of, grown
from app.model.jobgraph import JobGraph, Role
from app.model.planned import PlannedVertex


def grown_program(document: Mapping[str, object], vertices: Iterable[PlannedVertex]) -> JobGraph:
    """That of ``document`` with ``vertices``, those of each query up to its sink. Without any it awaits a query."""
    graph, found = graph_of(parse_program(document)), list[PlannedVertex]()
    for vertex in vertices:
        found.append(vertex)
        if vertex.role is Role.SINK:
            graph, found = grown(graph, found), []
    return graph

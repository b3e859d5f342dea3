"""Graphs of programs that grow by the queries that are started, and bounds that wait for their vertices."""

from __future__ import annotations

import pytest

from app.model.graphdoc import GraphErrors, parse_document, to_document
from app.model.graphdoc_program import grown
from app.model.jobgraph import NamedBounds
from tests.unit.model.test_graphdoc_program import planned, sink, source, stateful


def test_bounds_of_vertices_that_are_not_there_yet_are_kept_with_the_graph() -> None:
    bounds = {"later": {"upperBound": 3}, "lowest": {"lowerBound": 2}}
    graph = planned(source("in"), sink("out", "in"), bounds=bounds)
    assert graph.bounds == (NamedBounds("later", None, 3), NamedBounds("lowest", 2, None))
    assert parse_document(to_document(graph), stored=True) == graph


def test_a_graph_grows_by_what_it_does_not_have() -> None:
    known = (source("in"), sink("out", "in"))
    graph = planned(*known, bounds={"later": {"upperBound": 3}})
    assert grown(graph, known) is graph
    more = grown(graph, (source("feed"), sink("later", "feed")))
    assert more.vertices[:2] == graph.vertices
    assert [(one.name, one.lower_bound, one.parallelism) for one in more.vertices[2:]] == [
        ("feed", 1, 12),
        ("later", 1, 3),
    ]
    assert parse_document(to_document(more), stored=True) == more
    with pytest.raises(GraphErrors):
        grown(graph, (sink("odd", "nowhere"),))


@pytest.mark.parametrize(
    ("declared", "lower", "upper"),
    [({"upperBound": 99}, 1, 6), ({"lowerBound": 9}, 6, 6), ({"lowerBound": 2, "upperBound": 4}, 2, 4)],
)
def test_bounds_of_a_vertex_that_comes_are_kept_within_its_state(
    declared: dict[str, int], lower: int, upper: int
) -> None:
    graph = planned(source("in"), sink("out", "in"), bounds={"sums": declared})
    more = grown(graph, (source("feed"), stateful("sums", "feed", partitions=6), sink("later", "sums")))
    found = more.by_name["sums"]
    assert (found.lower_bound, found.parallelism, found.max_parallelism) == (lower, upper, 6)

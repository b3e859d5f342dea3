"""Graphs of programs: before the first query, as they grow by the queries that are started, and bounds that wait for
their vertices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.documents.program import parse_program
from app.model.graphdoc import read_graph, to_document
from app.model.graphdoc_program import graph_of, grown
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobGraph, NamedBounds, PlannedSpec, Role
from app.model.planned import PlannedVertex
from app.model.state_partitions import numbers_of, with_partitions
from tests.unit.model.test_graphdoc_program import PROGRAM, planned, sink, source, stateful

COUNTING = (source("in"), stateful("counts", "in", partitions=6), sink("out", "counts"))
COPYING = (source("raw"), sink("copy", "raw"))


def awaiting(**document: Any) -> JobGraph:
    return graph_of(parse_program({**PROGRAM, **document}))


def filtering(name: str, *inputs: str) -> PlannedVertex:
    return PlannedVertex(name, Role.OPERATOR, "Sample", inputs)


def bounds_of(graph: JobGraph) -> dict[str, tuple[int, int]]:
    return {one.name: (one.lower_bound, one.parallelism) for one in graph.vertices}


# -- before the first query


@pytest.mark.parametrize(
    ("bounds", "upper", "most"),
    [
        ({}, 12, 128),
        ({"counts": {"upperBound": 4}}, 4, 128),
        ({"counts": {"lowerBound": 2, "upperBound": 4}, "out": {"upperBound": 300}}, 300, 512),
        # As the vertex gets it that has no upper bound.
        ({"counts": {}}, 12, 128),
        ({"counts": {"lowerBound": 5}}, 12, 128),
        ({"counts": {"lowerBound": 20}}, 20, 128),
        # It is of a vertex that may come, as all of them are.
        ({"job": {"lowerBound": 3, "upperBound": 3}}, 3, 128),
    ],
)
def test_a_program_that_was_not_run_yet_is_one_vertex_as_parallel_as_its_largest_bounds(
    bounds: dict[str, Any], upper: int, most: int
) -> None:
    graph = awaiting(bounds=bounds)
    (vertex,) = graph.vertices
    assert graph.awaits_query and not graph.is_batch_program
    assert (vertex.name, vertex.operation) == ("job", PlannedSpec(Role.PROGRAM, "streaming"))
    assert (vertex.lower_bound, vertex.parallelism, vertex.max_parallelism) == (1, upper, most)
    assert not (vertex.stateful or vertex.is_source or vertex.is_sink)
    assert [one.vertex for one in graph.bounds] == list(bounds)
    assert read_graph(to_document(graph)) == graph


def test_a_batch_program_and_one_with_queries_await_none() -> None:
    assert not awaiting(type="BATCH").awaits_query
    assert not planned(*COUNTING).awaits_query
    assert not read_graph(to_document(planned(*COUNTING))).awaits_query


# -- queries that come


@pytest.mark.parametrize("script", ["job.py", "in.py", "counts.py", "out.py"])
def test_the_first_query_takes_the_place_of_the_program_whatever_the_name_of_its_script(script: str) -> None:
    before = awaiting(script=script, bounds={"counts": {"upperBound": 4}, "later": {"upperBound": 2}})
    graph = grown(before, COUNTING)
    assert not graph.awaits_query
    assert bounds_of(graph) == {"in": (1, 6), "counts": (1, 4), "out": (1, 6)}
    assert replace(graph, vertices=before.vertices) == before
    assert grown(graph, COUNTING) is graph


def test_bounds_of_vertices_that_are_not_there_yet_are_kept_with_the_graph() -> None:
    bounds = {"later": {"upperBound": 3}, "lowest": {"lowerBound": 2}}
    graph = planned(source("in"), sink("out", "in"), bounds=bounds)
    assert graph.bounds == (NamedBounds("later", None, 3), NamedBounds("lowest", 2, None))
    assert read_graph(to_document(graph)) == graph


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
    assert read_graph(to_document(more)) == more
    with pytest.raises(GraphErrors):
        grown(graph, (sink("odd", "nowhere"),))


@pytest.mark.parametrize(
    ("declared", "lower", "upper"),
    [({"upperBound": 99}, 1, 6), ({"lowerBound": 9}, 6, 6), ({"lowerBound": 2, "upperBound": 4}, 2, 4)],
)
@pytest.mark.parametrize("first", [True, False])
def test_bounds_of_a_vertex_that_comes_are_kept_within_its_state(
    declared: dict[str, int], lower: int, upper: int, first: bool
) -> None:
    graph = awaiting(bounds={"counts": declared})
    found = grown(graph if first else grown(graph, COPYING), COUNTING).by_name["counts"]
    assert (found.lower_bound, found.parallelism, found.max_parallelism) == (lower, upper, 6)


def test_a_query_that_is_as_it_was_leaves_the_graph_as_it_is_also_with_redistributed_state() -> None:
    graph = grown(planned(*COUNTING), COPYING)
    other = with_partitions(graph, tuple((vertex, 24) for vertex, _ in numbers_of(graph)))
    for one in (graph, other):
        assert grown(one, COUNTING) is one
        assert grown(one, COPYING) is one
        assert grown(one, tuple(replace(each, state_partitions=None) for each in COUNTING)) is one


SAMPLED = (source("in"), filtering("some", "in"), replace(COUNTING[1], inputs=("some",)), COUNTING[2])


@pytest.mark.parametrize(
    ("before", "after", "bounds"),
    [
        # With a vertex more, and with one less.
        (COUNTING, SAMPLED, {"in": (2, 3), "some": (1, 5), "counts": (1, 4), "out": (1, 6)}),
        (SAMPLED, COUNTING, {"in": (2, 3), "counts": (1, 4), "out": (1, 6)}),
        # With a vertex of another name, and the sink of another kind.
        (COPYING, (source("in"), sink("copy", "in")), {"in": (2, 3), "copy": (1, 12)}),
        (COPYING, (COPYING[0], replace(COPYING[1], operator="delta")), {"raw": (1, 12), "copy": (1, 12)}),
        (COPYING, (COPYING[0], replace(COPYING[1], path="/o")), {"raw": (1, 12), "copy": (1, 12)}),
    ],
)
def test_other_vertices_of_a_query_take_the_place_of_those_that_it_had(
    before: tuple[PlannedVertex, ...], after: tuple[PlannedVertex, ...], bounds: dict[str, tuple[int, int]]
) -> None:
    document = {
        "in": {"lowerBound": 2, "upperBound": 3},
        "some": {"upperBound": 5},
        "counts": {"upperBound": 4},
    }
    other = (source("feed"), sink("store", "feed"))
    graph = grown(grown(awaiting(bounds=document), before), other)
    found = grown(graph, after)
    assert bounds_of(found) == {"feed": (1, 12), "store": (1, 12), **bounds}
    assert found.bounds == graph.bounds
    assert grown(found, after) is found and grown(found, other) is found
    assert read_graph(to_document(found)) == found


def test_a_vertex_that_stays_in_its_query_keeps_the_bounds_that_it_has() -> None:
    """Not those of the document, which an operator's may have followed in another version."""
    graph = planned(*COUNTING, bounds={"in": {"upperBound": 2}})
    of_version = tuple(replace(one, lower_bound=2, parallelism=5) for one in graph.vertices)
    found = grown(replace(graph, vertices=of_version), SAMPLED)
    assert bounds_of(found) == {"in": (2, 5), "some": (1, 6), "counts": (2, 5), "out": (2, 5)}


@pytest.mark.parametrize(
    "found",
    [
        (source("in"), sink("new", "in")),
        (source("feed"), sink("in", "feed")),
        (source("counts"), sink("copy", "counts")),
        (*COUNTING, *COPYING),
    ],
)
def test_a_vertex_of_another_query_is_refused(found: tuple[PlannedVertex, ...]) -> None:
    graph = grown(planned(*COUNTING), COPYING)
    with pytest.raises(GraphErrors, match=r"the vertex \w+ is that of another query"):
        grown(graph, found)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "found",
    [
        (PlannedVertex("job", Role.PROGRAM, "streaming"),),
        (PlannedVertex("other", Role.PROGRAM, "streaming"), *COPYING),
        (PlannedVertex("other", Role.PROGRAM, "streaming"), sink("copy", "other")),
        (*COPYING, PlannedVertex("other", Role.PROGRAM, "streaming")),
    ],
)
def test_no_query_has_a_vertex_that_stands_for_a_program(
    found: tuple[PlannedVertex, ...], first: bool
) -> None:
    with pytest.raises(GraphErrors):
        grown(awaiting() if first else planned(*COUNTING), found)


def test_a_graph_that_awaits_its_first_query_does_not_grow_by_nothing() -> None:
    with pytest.raises(GraphErrors):
        grown(awaiting(), ())

"""The graph that a new version of a streaming program begins with."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.program import parse_program
from app.model.graphdoc import read_graph, to_document
from app.model.graphdoc_program import graph_of, graph_of_version, grown
from app.model.jobgraph import JobGraph, ProgramSpec
from tests.unit.model.test_graphdoc_program import PROGRAM, planned
from tests.unit.model.test_grown_graphs import COPYING, COUNTING, awaiting, bounds_of


def version(before: JobGraph, **document: Any) -> JobGraph:
    return graph_of_version(parse_program({**PROGRAM, **document}), before)


def named(graph: JobGraph) -> dict[str, tuple[int | None, int | None]]:
    return {one.vertex: (one.lower, one.upper) for one in graph.bounds}


@pytest.mark.parametrize(
    ("said", "bounds"),
    [
        ({}, {"in": (1, 3), "counts": (2, 4), "out": (1, 6)}),
        ({"in": {"upperBound": 5}}, {"in": (1, 5), "counts": (2, 4), "out": (1, 6)}),
        ({"out": {}}, {"in": (1, 3), "counts": (2, 4), "out": (1, 6)}),
        # Those of state within its partitions.
        ({"counts": {"lowerBound": 9, "upperBound": 10}}, {"in": (1, 3), "counts": (6, 6), "out": (1, 6)}),
        ({"counts": {}}, {"in": (1, 3), "counts": (1, 6), "out": (1, 6)}),
        ({"other": {"upperBound": 9}}, {"in": (1, 3), "counts": (2, 4), "out": (1, 6)}),
    ],
)
def test_it_has_the_vertices_of_the_version_before_within_the_bounds_of_its_own_document(
    said: dict[str, Any], bounds: dict[str, tuple[int, int]]
) -> None:
    declared = {"in": {"upperBound": 3}, "counts": {"lowerBound": 2, "upperBound": 4}}
    before = planned(*COUNTING, bounds=declared)
    after = version(before, bounds=said)
    assert bounds_of(after) == bounds
    assert [one.max_parallelism for one in after.vertices] == [128, 6, 128]
    assert grown(after, COUNTING) is after
    assert read_graph(to_document(after)) == after


def test_all_else_is_that_of_its_own_document() -> None:
    before = planned(*COUNTING, args=["a"], artifacts=["old.zip"])
    after = version(before, script="other.py", args=["b"], config={"spark.sql.shuffle.partitions": 3})
    assert after.program == ProgramSpec("other.py", ("b",))
    assert after.artifacts == ("other.py",)
    assert dict(after.config) == {"spark.sql.shuffle.partitions": "3"}
    assert after.vertices == before.vertices


def test_a_vertex_may_be_more_parallel_than_the_version_before_could_be() -> None:
    before = planned(*COUNTING)
    (vertex,) = [one for one in version(before, bounds={"in": {"upperBound": 300}}).vertices if one.is_source]
    assert (vertex.parallelism, vertex.max_parallelism) == (300, 512)
    again = version(version(before, bounds={"in": {"upperBound": 300}}), bounds={"in": {"upperBound": 2}})
    assert (again.by_name["in"].parallelism, again.by_name["in"].max_parallelism) == (2, 512)


def test_bounds_wait_for_vertices_that_neither_version_has() -> None:
    before = planned(*COUNTING, bounds={"old": {"upperBound": 3}, "raw": {"upperBound": 3}})
    after = version(before, bounds={"raw": {"upperBound": 7}, "copy": {"lowerBound": 2}, "in": {}})
    assert named(after) == {"raw": (None, 7), "copy": (2, None), "in": (None, None)}
    assert bounds_of(grown(after, COPYING)) == {**bounds_of(after), "raw": (1, 7), "copy": (2, 12)}


def test_of_a_program_without_a_query_it_is_a_program_without_a_query() -> None:
    before = awaiting(bounds={"counts": {"upperBound": 3}, "in": {"upperBound": 3}})
    after = version(before, script="other.py", bounds={"counts": {"upperBound": 5}})
    assert after.awaits_query
    assert bounds_of(after) == {"other": (1, 5)}
    assert named(after) == {"counts": (None, 5)}
    assert bounds_of(grown(after, COUNTING)) == {"in": (1, 6), "counts": (1, 5), "out": (1, 6)}


def test_a_graph_of_a_program_is_that_of_its_first_version() -> None:
    program = parse_program({**PROGRAM, "bounds": {"in": {"upperBound": 3}}})
    assert graph_of_version(program, graph_of(program)) == graph_of(program)

"""What keeps state in a graph document: what is assumed, what Spark has said, and what a new version takes over."""

from __future__ import annotations

from typing import Any

from app.documents.graph import parse_document
from app.model.analysis import queries
from app.model.graphdoc import read_graph, to_document
from app.model.jobgraph import JobGraph, Partitioner
from app.model.state_partitions import with_partitions
from app.model.statefulness import analysed, assumed_as
from tests.unit.model.documents import COUNTS, FLIGHTS, STORE, changed, document

NAMED = {"name": "named", "inputs": ["counts"], "sql": "SELECT k FROM counts"}
TABLE: dict[str, Any] = {"name": "table", "source": {"format": "csv", "path": "/t.csv", "static": True}}


def graph(**of_counts: Any) -> JobGraph:
    return parse_document(
        document(FLIGHTS, changed(COUNTS, **of_counts), NAMED, changed(STORE, inputs=["named"]))
    )


def known(asked: JobGraph, *names: str) -> JobGraph:
    return analysed(asked, {asked.by_name[name].id for name in names})


def test_what_spark_says_takes_the_place_of_what_was_assumed() -> None:
    asked = graph()
    found = known(asked, "counts")
    counts, named = found.by_name["counts"], found.by_name["named"]
    assert (counts.stateful, counts.max_parallelism, named.stateful, named.max_parallelism) == (
        True,
        12,
        False,
        128,
    )
    assert [edge.partitioner for one in (counts, named) for edge in one.inputs] == ["HASH", "FORWARD"]
    assert not any(one.is_assumed or one.max_is_assumed for one in found.vertices)
    assert [one.id for one in found.vertices] == [one.id for one in asked.vertices]
    assert known(found, "counts") is found, "there is nothing new"
    assert read_graph(to_document(found)) == found
    assert queries(found)[0].state_partitions == 12


def test_what_is_said_of_max_parallelism_stays() -> None:
    for names in ((), ("counts",)):
        assert known(graph(maxParallelism=7), *names).by_name["counts"].max_parallelism == 7


def test_state_partitions_that_bounds_have_asked_for_meanwhile_stay() -> None:
    asked = graph()
    more = with_partitions(asked, ((asked.by_name["counts"].id, 20), (asked.by_name["named"].id, 200)))
    found = known(more, "counts")
    assert (found.by_name["counts"].max_parallelism, found.by_name["named"].max_parallelism) == (20, 200)


def test_a_side_table_and_a_broadcast_are_read_as_they_were() -> None:
    edges = [{"vertex": "flights", "partitioner": "BROADCAST"}, "table"]
    asked = parse_document(document(FLIGHTS, TABLE, changed(COUNTS, inputs=edges), STORE))
    found = known(asked, "counts")
    assert [edge.partitioner for edge in found.by_name["counts"].inputs] == [
        Partitioner.BROADCAST,
        Partitioner.REBALANCE,
    ]


def test_what_is_known_wrongly_is_put_right() -> None:
    """A server of before guessed it from the SQL text."""
    found = known(graph(), "counts", "named")
    right = known(found, "counts")
    assert [one.stateful for one in right.vertices] == [False, True, False, False]


def test_a_new_version_is_assumed_to_do_what_the_one_before_did() -> None:
    before = known(graph(), "counts")
    few = with_partitions(before, ((before.by_name["counts"].id, 8),))
    version = assumed_as(graph(parallelism=2), few)
    counts, named = version.by_name["counts"], version.by_name["named"]
    assert (counts.stateful, counts.max_parallelism, named.stateful, named.max_parallelism) == (
        True,
        8,
        False,
        128,
    )
    assert counts.is_assumed and named.is_assumed, "it may be otherwise"
    found = known(version, "counts", "named")
    assert (found.by_name["counts"].max_parallelism, found.by_name["named"].max_parallelism) == (8, 12)
    assert read_graph(to_document(version)) == version
    more = with_partitions(graph(), ((counts.id, 20),))
    assert read_graph(to_document(more)) == more
    declared = assumed_as(graph(maxParallelism=9), few)
    assert declared.by_name["counts"].max_parallelism == 9
    stateless = assumed_as(graph(maxParallelism=9), known(graph()))
    assert read_graph(to_document(stateless)) == stateless
    assert assumed_as(graph(parallelism=10), few).by_name["counts"].max_parallelism == 10
    other = assumed_as(parse_document(document()), few)
    assert other.by_name["counts"].max_parallelism == 8

"""Edges: what an input may name and say, and the rules of the graph as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.graph import parse_document
from tests.unit.model.documents import COUNTS, FLIGHTS, STORE, changed, document, errors


def with_input(value: object, **fields: Any) -> list[str]:
    """The errors when COUNTS has this one input."""
    return errors(document(FLIGHTS, changed(COUNTS, inputs=[value]), STORE, **fields))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({}, "vertices[1].inputs[0].vertex: is missing: the name of a vertex is expected."),
        ({"vertex": 1}, "vertices[1].inputs[0].vertex: should be the name of a vertex, found the number 1"),
        (
            {"vertex": "flights", "partitioner": "hash"},
            "vertices[1].inputs[0].partitioner: should be one of HASH, REBALANCE, BROADCAST, FORWARD, found the text "
            "'hash'. Did you mean 'HASH'?",
        ),
        (
            {"vertex": "flights", "exchange": "LATER"},
            "vertices[1].inputs[0].exchange: should be one of PIPELINED, BLOCKING, found the text 'LATER'.",
        ),
        (
            {"vertex": "flights", "exchange": "BLOCKING"},
            "vertices[1].inputs[0].exchange: BLOCKING is for BATCH jobs: a STREAMING job takes PIPELINED only.",
        ),
        (
            {"vertex": "flights", "partitioner": "REBALANCE", "keys": ["k"]},
            "vertices[1].inputs[0].keys: are for the partitioner HASH only, found partitioner REBALANCE.",
        ),
        (
            {"vertex": "flights", "keys": []},
            "vertices[1].inputs[0].keys: must not be empty: leave it out, or list column names.",
        ),
        (
            {"vertex": "flights", "keys": ["k", "k"]},
            "vertices[1].inputs[0].keys[1]: 'k' is listed twice.",
        ),
        (
            {"vertex": "flights", "keys": [1]},
            "vertices[1].inputs[0].keys[0]: should be a column name, found the number 1",
        ),
        (
            {"vertex": "flights", "keys": "k"},
            "vertices[1].inputs[0].keys: should be a list of column names, found the text 'k'.",
        ),
        (
            {"vertex": "flights", "partitoner": "HASH"},
            "vertices[1].inputs[0].partitoner: is not a field of an input. Did you mean 'partitioner'? Allowed are "
            "vertex, partitioner, keys, exchange.",
        ),
    ],
)
def test_fields_of_an_input(value: object, error: str) -> None:
    found = with_input(value)
    assert len(found) == 1
    assert found[0].startswith(error)


def test_an_unknown_input_comes_with_the_nearest_name() -> None:
    found = errors(document(FLIGHTS, COUNTS, changed(STORE, inputs=["count"])))
    assert found == ["vertices[2].inputs[0]: there is no vertex named 'count'. Did you mean 'counts'?"]


def test_names_must_be_unique() -> None:
    found = errors(document(FLIGHTS, changed(FLIGHTS), COUNTS, STORE))
    assert found == [
        "vertices[1].name: 'flights' is the name of vertices[0] already: names must be unique.",
    ]


def test_a_vertex_is_not_its_own_input() -> None:
    sql = "SELECT * FROM flights UNION ALL SELECT * FROM counts"
    found = errors(document(FLIGHTS, changed(COUNTS, sql=sql, inputs=["flights", "counts"]), STORE))
    assert found == ["vertices[1].inputs[1]: 'counts' is the vertex itself: it cannot be its own input."]


def test_an_input_is_listed_once() -> None:
    found = errors(document(FLIGHTS, changed(COUNTS, inputs=["flights", "flights"]), STORE))
    assert found == ["vertices[1].inputs[1]: 'flights' is an input already: each input is listed once."]


def test_a_sink_has_no_consumers() -> None:
    again = {"name": "again", "inputs": ["store"], "sink": {"format": "noop"}}
    assert errors(document(FLIGHTS, COUNTS, STORE, again)) == [
        "vertices[3].inputs[0]: 'store' is a sink: a sink has no consumers."
    ]


@pytest.mark.parametrize(("inputs", "found"), [(["flights", "counts"], "2"), ([], "none"), (None, "none")])
def test_a_sink_has_exactly_one_input(inputs: list[str] | None, found: str) -> None:
    every = errors(document(FLIGHTS, COUNTS, changed(STORE, inputs=inputs)))
    assert f"vertices[2].inputs: a sink has exactly one input, found {found}." in every


def test_a_source_has_no_inputs() -> None:
    source = changed(FLIGHTS, name="more", inputs=["flights"])
    counts = changed(COUNTS, inputs=["more"], sql="SELECT * FROM more")
    assert errors(document(FLIGHTS, source, counts, STORE)) == [
        "vertices[1].inputs: a source has no inputs, found 1."
    ]


def test_there_is_a_sink() -> None:
    assert errors(document(FLIGHTS, COUNTS)) == [
        "vertices: there is no sink: at least one vertex with a sink is expected."
    ]


def test_every_result_is_used() -> None:
    left = {"name": "left", "inputs": ["flights"], "sql": "SELECT * FROM flights"}
    after = {"name": "after", "inputs": ["left"], "sql": "SELECT * FROM left"}
    assert errors(document(FLIGHTS, COUNTS, STORE, left, after)) == [
        "vertices[3]: the result of 'left' is not used: it leads to no sink.",
        "vertices[4]: the result of 'after' is not used: no vertex has it as input.",
    ]


def test_an_unknown_input_does_not_make_its_producer_unused() -> None:
    found = errors(document(FLIGHTS, changed(COUNTS, inputs=["fligths"]), STORE))
    assert not any("is not used" in error for error in found)


def select(name: str, *inputs: str) -> dict[str, Any]:
    return {
        "name": name,
        "inputs": list(inputs),
        "sql": " UNION ALL ".join(f"SELECT * FROM {i}" for i in inputs),
    }


def test_a_cycle_is_named() -> None:
    found = errors(
        document(
            FLIGHTS,
            select("a", "flights", "c"),
            select("b", "a"),
            select("c", "b"),
            changed(STORE, inputs=["c"]),
        )
    )
    assert len(found) == 1
    assert found[0].startswith("vertices: the inputs form a cycle: ")
    cycle = found[0].partition("cycle: ")[2].rstrip(".")
    assert cycle in {"a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"}


def test_every_cycle_is_named() -> None:
    found = errors(
        document(
            FLIGHTS,
            select("a", "flights", "b"),
            select("b", "a"),
            select("x", "b", "y"),
            select("y", "x"),
            changed(STORE, inputs=["y"]),
        )
    )
    assert [set(error.partition("cycle: ")[2].rstrip(".").split(" -> ")) for error in found] == [
        {"a", "b"},
        {"x", "y"},
    ]


def test_two_inputs_of_a_sql_text_differ_in_more_than_case() -> None:
    found = errors(
        document(
            FLIGHTS, changed(FLIGHTS, name="Flights"), changed(COUNTS, inputs=["flights", "Flights"]), STORE
        )
    )
    assert found == ["vertices[2].inputs[1]: 'Flights' and 'flights' are the same name in SQL: rename one."]


def test_forward_needs_equal_parallelism() -> None:
    edge = {"vertex": "flights", "partitioner": "FORWARD"}
    counts = changed(COUNTS, inputs=[edge], parallelism=2)
    assert errors(document(FLIGHTS, counts, STORE)) == [
        "vertices[1].inputs[0].partitioner: FORWARD needs equal parallelism: 'flights' has 1, this vertex 2. Take "
        "REBALANCE."
    ]
    assert errors(document(changed(FLIGHTS, parallelism=2), counts, STORE)) == []


def test_vertices_may_come_in_any_order_and_are_kept_inputs_first() -> None:
    names = [v.name for v in parse_document(document(STORE, COUNTS, FLIGHTS)).vertices]
    assert names == ["flights", "counts", "store"]


def test_the_order_of_the_document_is_kept_where_it_is_sound() -> None:
    b = {"name": "b", "source": {"format": "rate"}}
    a = {"name": "a", "source": {"format": "rate"}}
    sinks = [{"name": f"to-{x}", "inputs": [x], "sink": {"format": "noop"}} for x in ("a", "b")]
    names = [v.name for v in parse_document(document(b, a, *sinks)).vertices]
    assert names == ["b", "a", "to-a", "to-b"]


def test_a_blocking_edge_is_for_batch() -> None:
    source = {"name": "flights", "source": {"format": "parquet", "path": "/in"}}
    counts = changed(COUNTS, inputs=[{"vertex": "flights", "exchange": "BLOCKING"}])
    store = changed(STORE, sink={"format": "parquet", "path": "/out"})
    graph = parse_document({**document(source, counts, store), "type": "BATCH"})
    assert graph.by_name["counts"].inputs[0].exchange == "BLOCKING"

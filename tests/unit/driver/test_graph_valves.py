"""Which valves of a graph shuffle, which stay in a stage, and what is told of each vertex of a batch."""

from __future__ import annotations

from typing import Any

from app.driver.valves.graph import GraphValve, behind_state, label_before, label_behind
from app.driver.valves.running import Rows
from app.driver.valves.stages import Stage, vertex_batches
from app.model.analysis import Query, queries
from app.model.graphdoc import parse_document
from app.model.jobgraph import JobVertex


def graph(**edge: Any) -> tuple[Query, dict[str, JobVertex], dict[str, GraphValve]]:
    """Numbers are counted; the counts are named, and go to a sink. ``edge``: how the named ones come."""
    parsed = parse_document(
        {
            "name": "g",
            "type": "STREAMING",
            "vertices": [
                {"name": "numbers", "source": {"format": "rate"}, "parallelism": 8},
                {
                    "name": "counts",
                    "inputs": ["numbers"],
                    "sql": "SELECT value % 9 AS k, count(*) AS n FROM numbers GROUP BY value % 9",
                    "parallelism": 8,
                },
                {
                    "name": "named",
                    "inputs": [{"vertex": "counts", **edge}],
                    "sql": "SELECT k FROM counts",
                    "parallelism": 8,
                },
                {
                    "name": "store",
                    "inputs": ["named"],
                    "sink": {"format": "noop", "outputMode": "update"},
                    "parallelism": 8,
                },
            ],
        }
    )
    (query,) = queries(parsed)
    names = parsed.by_name
    valves = [GraphValve(names["numbers"].id), GraphValve(names["counts"].id)]
    for name in ("named", "store"):
        valves.append(GraphValve(names[name].id, names[name].inputs[0]))
    valves.append(GraphValve(names["named"].id))
    return query, names, {valve.label: valve for valve in valves}


def at(names: dict[str, JobVertex], **numbers: int) -> dict[str, int]:
    return {vertex.id: numbers.get(name, 2) for name, vertex in names.items()}


def test_rows_that_are_forwarded_move_only_between_vertices_of_different_parallelism() -> None:
    _, names, valves = graph()
    front = valves[label_before(names["named"].id)]
    assert not front.shuffles(at(names))
    assert front.shuffles(at(names, named=3))
    assert front.shuffles(at(names, counts=3))
    assert not valves[label_behind(names["named"].id)].shuffles(at(names, named=3))


def test_rows_that_are_to_be_spread_always_move() -> None:
    for edge in ({"partitioner": "REBALANCE"}, {"partitioner": "HASH", "keys": ["k"]}):
        _, names, valves = graph(**edge)
        assert valves[label_before(names["named"].id)].shuffles(at(names))


def test_a_stage_with_state_goes_on_as_far_as_rows_do_not_move() -> None:
    query, names, valves = graph()
    counts, named, store = (names[name].id for name in ("counts", "named", "store"))
    whole = [label_behind(counts), label_before(named), label_behind(named), label_before(store)]
    assert behind_state(query, valves, at(names)) == {counts: whole}
    assert behind_state(query, valves, at(names, store=1)) == {counts: whole[:3]}
    assert behind_state(query, valves, at(names, named=1, store=1)) == {counts: whole[:1]}


def test_a_vertex_is_told_of_the_stages_that_its_valves_are_in() -> None:
    query, names, _ = graph()
    numbers, counts, named, store = (names[name].id for name in ("numbers", "counts", "named", "store"))
    rows = [
        Rows(vertex_id, None, rdd, 2)
        for vertex_id, rdd in ((numbers, 1), (counts, 5), (named, 7), (named, 8), (store, 9))
    ]
    # A stage of a job that ran for something else comes first, and one that Spark has added stands in between.
    stages = [
        Stage(1, 9, 99, frozenset({100}), 99),
        Stage(2, 2, 10, frozenset({0, 1, 2})),
        Stage(3, 2, 20, frozenset({3, 5, 7}), 1_000),
        Stage(4, 4, 30, frozenset({8}), 70),
        Stage(5, 2, 40, frozenset({9, 10}), 60),
    ]
    found = vertex_batches(query, at(names), rows, stages, input_rows=1_000, output_rows=60)
    told = {each.vertex_id: (each.tasks, each.records_in, each.records_out, each.busy_ms) for each in found}
    assert told == {
        numbers: (2, None, 1_000, 10),
        counts: (2, 1_000, None, 20),
        named: (2, None, 60, 50),
        store: (2, 60, None, 40),
    }


def test_what_spark_left_out_of_a_batch_has_no_tasks() -> None:
    query, names, _ = graph()
    found = vertex_batches(query, at(names), [], [], input_rows=0, output_rows=0)
    assert [each.tasks for each in found] == [None] * 4

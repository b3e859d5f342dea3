"""What a document leaves out: max parallelism, partitioners, state; and what in place follows from it."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.graph import parse_document
from app.model.graphdoc_build import DEFAULT_STATE_PARTITIONS, derived_max_parallelism
from app.model.jobgraph import InPlace, Partitioner
from tests.unit.model.documents import COUNTS, FLIGHTS, STORE, changed, document, vertex

AIRLINES: dict[str, Any] = {
    "name": "airlines",
    "source": {"format": "csv", "path": "/airlines.csv", "static": True},
}


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        *((1, 128), (85, 128), (86, 256), (171, 256), (200, 512), (1000, 2048), (10_000, 16_384)),
        *((21_845, 32_768), (21_846, 32_768), (32_768, 32_768)),
    ],
)
def test_max_parallelism_of_a_stateless_vertex_is_flinks(parallelism: int, expected: int) -> None:
    """The vectors of production Flink's formula."""
    assert derived_max_parallelism(parallelism) == expected
    assert (
        vertex("flights", changed(FLIGHTS, parallelism=parallelism), COUNTS, STORE).max_parallelism
        == expected
    )


@pytest.mark.parametrize(("parallelism", "expected"), [(1, 12), (12, 12), (13, 13), (200, 200)])
def test_max_parallelism_of_a_vertex_that_may_keep_state_is_small(parallelism: int, expected: int) -> None:
    assert DEFAULT_STATE_PARTITIONS == 12
    assert (
        vertex("counts", FLIGHTS, changed(COUNTS, parallelism=parallelism), STORE).max_parallelism == expected
    )


def test_max_parallelism_of_a_batch_vertex_is_flinks_even_if_it_aggregates() -> None:
    source = changed(FLIGHTS, source={"format": "parquet", "path": "/in"})
    store = changed(STORE, sink={"format": "noop"})
    counts = parse_document({**document(source, COUNTS, store), "type": "BATCH"}).by_name["counts"]
    assert (counts.stateful, counts.is_assumed, counts.max_parallelism) == (False, False, 128)


def test_what_is_said_is_kept() -> None:
    counts = vertex("counts", FLIGHTS, changed(COUNTS, parallelism=3, lowerBound=2, maxParallelism=5), STORE)
    assert (counts.lower_bound, counts.parallelism, counts.max_parallelism) == (2, 3, 5)
    assert (vertex("flights").lower_bound, vertex("flights").parallelism) == (1, 1)


def partitioner(
    consumer: dict[str, Any], *others: dict[str, Any], source: dict[str, Any] = FLIGHTS
) -> Partitioner:
    """That of the edge from FLIGHTS to ``consumer``."""
    graph = parse_document(document(source, consumer, changed(STORE, sink={"format": "noop"}), *others))
    return graph.by_name["counts"].inputs[0].partitioner


PLAIN = changed(COUNTS, sql="SELECT * FROM flights")


def test_equal_parallelism_and_one_consumer_is_forward() -> None:
    assert partitioner(PLAIN) is Partitioner.FORWARD
    assert (
        partitioner(changed(PLAIN, parallelism=3), source=changed(FLIGHTS, parallelism=3))
        is Partitioner.FORWARD
    )


def test_other_parallelism_or_several_consumers_is_rebalance() -> None:
    assert partitioner(changed(PLAIN, parallelism=2)) is Partitioner.REBALANCE
    copy = {"name": "copy", "inputs": ["flights"], "sink": {"format": "noop"}}
    assert partitioner(PLAIN, copy) is Partitioner.REBALANCE


def test_keys_mean_hash() -> None:
    keyed = changed(PLAIN, inputs=[{"vertex": "flights", "keys": ["value"]}])
    assert partitioner(keyed) is Partitioner.HASH


@pytest.mark.parametrize("chosen", list(Partitioner))
def test_a_partitioner_that_is_said_is_kept(chosen: Partitioner) -> None:
    assert partitioner(changed(COUNTS, inputs=[{"vertex": "flights", "partitioner": chosen.value}])) is chosen


def joined(sql: str, **fields: Any) -> dict[str, Any]:
    return {"name": "counts", "inputs": ["flights", "airlines"], "sql": sql, **fields}


def test_a_table_is_read_where_it_is_joined() -> None:
    sql = "SELECT * FROM flights JOIN airlines USING (carrier)"
    counts = vertex("counts", FLIGHTS, AIRLINES, joined(sql), STORE)
    assert [edge.partitioner for edge in counts.inputs] == [Partitioner.FORWARD, Partitioner.REBALANCE]


def test_what_is_made_of_static_tables_is_static() -> None:
    clean = {
        "name": "clean",
        "inputs": ["airlines"],
        "sql": "SELECT carrier, max(name) FROM airlines GROUP BY carrier",
    }
    named = {
        "name": "counts",
        "inputs": ["flights", "clean"],
        "sql": "SELECT * FROM flights JOIN clean USING (carrier)",
    }
    for said in (None, True):
        graph = parse_document(document(FLIGHTS, AIRLINES, changed(clean, stateful=said), named, STORE))
        assert not graph.by_name["clean"].stateful
        assert not graph.by_name["clean"].is_assumed


@pytest.mark.parametrize("said", [None, True, False])
def test_that_a_vertex_keeps_state_is_assumed_whatever_is_said(said: bool | None) -> None:
    python = {"name": "counts", "inputs": ["flights"], "python": "m:f", "stateful": said}
    for one in (COUNTS, PLAIN, python):
        counts = vertex("counts", FLIGHTS, changed(one, stateful=said), STORE, artifacts=["m.py"])
        assert (counts.stateful, counts.is_assumed, counts.max_is_assumed) == (True, True, True)
        assert (counts.max_parallelism, counts.highest_bound) == (12, 32768)
    declared = vertex("counts", FLIGHTS, changed(PLAIN, maxParallelism=5), STORE)
    assert (declared.is_assumed, declared.max_is_assumed, declared.highest_bound) == (True, False, 5)
    graph = parse_document(document(changed(FLIGHTS, stateful=said), COUNTS, changed(STORE, stateful=said)))
    assert [one.stateful or one.is_assumed for one in graph.vertices] == [False, True, False]


def test_every_vertex_changes_in_place() -> None:
    named = {"name": "named", "inputs": ["counts"], "sql": "SELECT k, count(*) AS n FROM counts GROUP BY k"}
    graph = parse_document(document(FLIGHTS, COUNTS, named, changed(STORE, inputs=["named"])))
    assert {v.in_place for v in graph.vertices} == {InPlace.YES}
    kafka = changed(FLIGHTS, source={"format": "kafka"})
    assert vertex("flights", kafka, COUNTS, STORE).in_place is InPlace.YES

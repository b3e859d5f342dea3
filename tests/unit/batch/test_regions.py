"""Pipelined regions of batch jobs, and which of them a failure makes run again."""

from __future__ import annotations

import random

import pytest

from app.model.batch_regions import regions_of, regions_to_restart, startable
from app.model.jobgraph import Exchange
from tests.unit.batch.graphs import graph, key, names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a; b -a; c -b", ["a b c"]),
        ("a; b =a; c =b", ["a", "b", "c"]),
        ("a; b -a; c =b; d -c", ["a b", "c d"]),
        # Two sources into a join, one of them through a result: customers and orders of Flink's blog.
        ("orders; customers; join =customers -orders; out -join", ["customers", "orders join out"]),
        # Parts of the graph that have nothing to do with each other.
        ("a; b; c -a; d -b", ["a c", "b d"]),
        # A diamond whose sides are both results: four regions.
        ("a; b =a; c =a; d =b =c", ["a", "b", "c", "d"]),
        # Two edges between the same vertices, one of each kind.
        ("a; b -a =a", ["a b"]),
    ],
)
def test_l21_pipelined_edges_join_and_blocking_ones_separate(text: str, expected: list[str]) -> None:
    job = graph(text)
    assert [names(job, region.vertices) for region in regions_of(job).all] == expected


def test_l21_a_blocking_diamond_with_a_pipelined_bypass_is_one_region() -> None:
    """d needs a to run with it and b to be finished, and b needs a to be finished: they cannot be apart."""
    job = graph("a; b =a; c =b; d -a =c")
    assert [names(job, region.vertices) for region in regions_of(job).all] == ["a b c d"]


def test_l21_a_cycle_through_several_regions_is_one_region_and_the_rest_is_not() -> None:
    job = graph("a; b -a; c =a; d -c; e =d -b; f =e")
    assert [names(job, region.vertices) for region in regions_of(job).all] == ["a b c d e", "f"]


def test_a_region_knows_what_it_reads_and_what_of_it_is_read() -> None:
    job = graph("a; b -a; c =a =b; d -b")
    regions = regions_of(job)
    first, second = regions.all
    assert (names(job, first.vertices), first.inputs, regions.consumers(first)) == ("a b d", (), (second,))
    assert (names(job, second.vertices), names(job, second.inputs), regions.consumers(second)) == (
        *("c", "a b"),
        (),
    )


def random_graph(rng: random.Random) -> str:
    count = rng.randint(1, 12)
    parts = []
    for number in range(count):
        inputs = sorted(rng.sample(range(number), rng.randint(0, min(number, 3))))
        parts.append(" ".join([f"v{number}", *(rng.choice("-=") + f"v{one}" for one in inputs)]))
    return "; ".join(parts)


@pytest.mark.parametrize("seed", range(300))
def test_regions_of_random_graphs(seed: int) -> None:
    text = random_graph(random.Random(seed))
    job = graph(text)
    regions = regions_of(job)
    assert sorted(one for region in regions.all for one in region.vertices) == sorted(
        v.id for v in job.vertices
    )
    for vertex in job.vertices:
        for one in vertex.inputs:
            producer, consumer = regions.by_vertex[one.vertex_id], regions.by_vertex[vertex.id]
            if one.exchange is Exchange.PIPELINED:
                assert producer is consumer, text
            # In this order each region finds its inputs finished: nothing waits for ever.
            assert producer.number <= consumer.number, text
            assert producer is consumer or one.vertex_id in consumer.inputs, text
    finished: set[str] = set()
    started: set[int] = set()
    while ready := startable(regions, started, lambda one, _reader: one in finished):
        started.update(region.number for region in ready)
        finished.update(one for region in ready for one in region.vertices)
    assert len(started) == len(regions.all), text
    for region in regions.all:
        own = [job.by_id[one] for one in region.vertices]
        assert len(own) == 1 or all(_touches(one.id, own) for one in own), text


def _touches(vertex_id: str, own: list) -> bool:  # type: ignore[type-arg]
    """Whether an edge joins the vertex to another one of its region: no region is two that could be apart."""
    others = [one for one in own if one.id != vertex_id]
    reads = {one.vertex_id for vertex in own if vertex.id == vertex_id for one in vertex.inputs}
    return any(other.id in reads or vertex_id in {one.vertex_id for one in other.inputs} for other in others)


def restarted(text: str, failed: str, *lost: str) -> str:
    job = graph(text)
    regions = regions_of(job)
    unavailable = {key(one) for one in lost}
    found = regions_to_restart(
        regions, regions.by_vertex[key(failed)], lambda one, _reader: one not in unavailable
    )
    return " | ".join(names(job, region.vertices) for region in found)


def test_l21_a_failed_region_restarts_alone_and_with_it_those_that_read_from_it() -> None:
    chain = "a; b =a; c =b; d =c"
    assert restarted(chain, "d") == "d"
    assert restarted(chain, "b") == "b | c | d"


def test_l21_a_lost_blocking_result_restarts_its_producer_and_so_on() -> None:
    chain = "a; b =a; c =b; d =c"
    assert restarted(chain, "d", "c") == "c | d"
    assert restarted(chain, "d", "c", "b") == "b | c | d"
    # One that nobody needs again is left alone.
    assert restarted(chain, "d", "b") == "d"


def test_a_reader_that_has_not_started_is_left_alone() -> None:
    job = graph("customers; orders; joined =customers =orders")
    regions = regions_of(job)
    failed = regions.by_vertex[key("customers")]
    started = {key("customers"), key("orders")}
    found = regions_to_restart(
        regions, failed, lambda *_: False, lambda region: not started.isdisjoint(region.vertices)
    )
    # Else orders, which runs and has left nothing yet, would have to begin again.
    assert [names(job, region.vertices) for region in found] == ["customers"]


def test_l21_consumers_of_a_producer_that_runs_again_run_again_too() -> None:
    fan = "a; b =a; c =a; d =b =c"
    assert restarted(fan, "b") == "b | d"
    # c has finished, but what a makes anew may be other rows than those that c has read.
    assert restarted(fan, "b", "a") == "a | b | c | d"

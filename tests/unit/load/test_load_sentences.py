"""Why a job is slow, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.load.figures import QueryTrend, VertexRates
from app.load.sentences import (
    VertexLoad,
    bottleneck_sentence,
    load_sentences,
    query_sentences,
    skew_sentence,
)
from app.model.measured import VertexBatch
from app.model.protocol import Report
from tests.unit.load.reporting import Reporting, at_ms
from tests.unit.scheduler.driving import two_sinks

STEADY = QueryTrend(
    rows_per_second=900.0,
    backlog_rows=54_000,
    growth_per_second=300.0,
    rows_per_batch=900.0,
    batch_ms_per_second=990.0,
    longest_batch_ms=1_000,
    quiet_ms=500,
    pause_ms=10,
)


def vertex(name: str, busy: float | None, **fields: Any) -> VertexLoad:
    rates = VertexRates(2, 990.0, busy_ms=None if busy is None else 2 * busy, **fields)
    return VertexLoad(name, 2, rates)


VERTICES = (vertex("flights", 90.0), vertex("delays", 780.0), vertex("store", 40.0))


def test_a_job_that_falls_behind_says_by_how_much_and_what_limits_it() -> None:
    assert query_sentences(STEADY, VERTICES) == [
        "The job falls behind by 300 rows per second: 1,200 come and 900 are processed; 54,000 rows wait at its "
        "sources, which is 45 s of input.",
        "delays limits it: each of its 2 tasks works 780 ms of each second, more than those of any other vertex "
        "(flights is next with 90 ms). It runs at its upper bound.",
    ]


def test_a_job_that_catches_up_says_when_it_will_have() -> None:
    trend = replace(STEADY, growth_per_second=-300.0, batch_ms_per_second=700.0)
    assert query_sentences(trend, VERTICES) == [
        "The job catches up: 54,000 rows wait at its sources, which is 90 s of input, and are worked off in 3 min at "
        "this rate."
    ]


def test_rows_in_files_are_told_as_an_estimate() -> None:
    told, *_ = query_sentences(replace(STEADY, is_estimated=True), VERTICES)
    assert "; about 54,000 rows wait at its sources, which is 45 s of input." in told


def test_a_backlog_that_stays_is_told() -> None:
    (sentence, _) = query_sentences(replace(STEADY, growth_per_second=10.0), VERTICES)
    assert sentence.startswith("The job does not catch up: 54,000 rows wait")


@pytest.mark.parametrize(
    "changes",
    [
        {"backlog_rows": None, "growth_per_second": None, "batch_ms_per_second": 300.0},
        # Its batches follow each other without a pause, and yet nothing waits, or less than what one batch takes.
        {"backlog_rows": 0, "growth_per_second": 0.0},
        {"backlog_rows": 800, "growth_per_second": 80.0},
    ],
)
def test_a_job_with_time_to_spare_has_nothing_to_say(changes: dict[str, Any]) -> None:
    assert query_sentences(replace(STEADY, **changes), VERTICES) == []


def test_without_a_backlog_batches_that_fill_the_time_say_what_limits_the_job() -> None:
    trend = replace(STEADY, backlog_rows=None, growth_per_second=None)
    (sentence,) = query_sentences(trend, VERTICES)
    assert sentence.startswith("delays limits it")


def test_time_that_goes_by_without_tasks_is_no_vertex_that_limits_the_job() -> None:
    idle = [vertex("flights", 20.0), vertex("delays", 200.0, busiest_ms=280.0)]
    (_, sentence) = query_sentences(STEADY, idle)
    assert sentence == (
        "No vertex limits it: batches run for 990 ms of each second, and tasks work in 300 of them. The rest is "
        "Spark's own time for each batch, which no parallelism shortens: fewer batches with more rows each need less "
        "of it."
    )
    # Batches that follow each other at once because they are cheap delay nothing.
    assert query_sentences(replace(STEADY, backlog_rows=0, growth_per_second=0.0), idle) == []


def test_the_upper_bound_is_named_where_there_is_room() -> None:
    wide = replace(VERTICES[1], upper=8)
    assert str(bottleneck_sentence([wide])).endswith("ms of each second. Its upper bound is 8.")
    single = replace(VERTICES[1], rates=replace(VERTICES[1].rates, parallelism=1, busy_ms=400.0))
    assert str(bottleneck_sentence([single])).startswith("delays limits it: its task works 400 ms")
    assert bottleneck_sentence([vertex("flights", None)]) is None
    assert bottleneck_sentence([]) is None


def test_tasks_that_a_batch_has_no_parts_for_are_no_help() -> None:
    """A source of one file: 14 tasks, of which one has all of the work."""
    rates = VertexRates(14, 990.0, busy_ms=950.0)
    told = bottleneck_sentence((VertexLoad("files", 16, rates, tasks=1), vertex("store", 40.0)))
    assert told == (
        "files limits it: its task works 950 ms of each second, more than those of any other vertex (store "
        "is next with 40 ms). Its last batch ran as 1 of 14 tasks: with so few files or partitions more tasks do not "
        "help, unless its rows are spread (slotwise.source.spread)."
    )
    for tasks in (14, None):
        told = bottleneck_sentence((VertexLoad("files", 16, rates, tasks=tasks),)) or ""
        assert told.endswith("Its upper bound is 16.")


def test_skew_is_told_where_it_delays_batches() -> None:
    skewed = vertex("delays", 300.0, skew=4.2, busiest_ms=900.0)
    assert skew_sentence([*VERTICES, skewed]) == (
        "delays is skewed: its longest task takes 4.2 times as long as the median one, so a higher parallelism helps "
        "less than it should."
    )
    assert skew_sentence([vertex("delays", 3.0, skew=40.0, busiest_ms=9.0)]) is None
    assert skew_sentence([vertex("delays", 300.0, skew=1.4, busiest_ms=900.0)]) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"quiet_ms": 9_000}, False),
        ({"quiet_ms": 11_000}, True),
        ({"quiet_ms": 11_000, "longest_batch_ms": 4_000}, False),
        ({"quiet_ms": 11_000, "pause_ms": 5_000}, False),
        ({"quiet_ms": 60_000, "pause_ms": 5_000}, True),
    ],
)
def test_batches_that_do_not_come_are_noticed_by_what_batches_took_before(
    changes: dict[str, Any], told: bool
) -> None:
    (first, *others) = query_sentences(replace(STEADY, **changes), VERTICES)
    assert first.startswith("The job has committed no batch for ") is told
    assert (others == []) is told
    assert not query_sentences(replace(STEADY, **changes), VERTICES, is_idle=True)[0].startswith(
        "The job has"
    )


def test_the_sentence_on_batches_that_do_not_come() -> None:
    assert query_sentences(replace(STEADY, quiet_ms=42_000), ()) == [
        "The job has committed no batch for 42 s, and before that one took 1.0 s at most: a source does not answer, a "
        "batch hangs, or there is nothing to read. 54,000 rows waited at its sources then."
    ]


def test_of_several_queries_each_is_named_by_its_sink() -> None:
    graph = two_sinks()
    told = Reporting(graph)
    by_name = {each.name: each.id for each in graph.vertices}
    for second in range(60):
        for query, sink, growth in (("a", "sink", 50), ("b", "sink-raw", 0)):
            work = tuple(
                VertexBatch(by_name[name], 1, 1, 100, 100, busy_ms=busy_ms)
                for name, busy_ms in (("source", 100), (sink, 700))
            )
            told.batch(second, second + 0.9, 100, backlog=1_000 + growth * second, query=query, vertices=work)
    upper = {each.id: 4 for each in graph.vertices}
    found = load_sentences(told.load, graph, upper, at_ms(60))
    assert [sentence.split(":")[0] for sentence in found] == [
        "The query of sink falls behind by 50 rows per second",
        "sink limits it",
        "The query of sink-raw does not catch up",
        "sink-raw limits it",
    ]


def test_a_job_that_has_said_that_it_is_idle_is_not_said_to_hang() -> None:
    told = Reporting().steady(5, backlog=0)
    upper: dict[str, int] = {}
    (sentence,) = load_sentences(told.load, told.graph, upper, at_ms(65))
    assert sentence.startswith(
        "The job has committed no batch for 60 s, and before that one took 500 ms at most"
    )
    for idle, sentences in (((told.source,), 0), ((), 1)):
        told.load.note(Report(99, at_ms(30), "executors", idle_queries=idle), 1, told.graph, at_ms(30))
        assert len(load_sentences(told.load, told.graph, upper, at_ms(65))) == sentences


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            {"spread_parts": 1},
            "Rows of source are spread over 4 tasks behind it, because it had only 1 part.",
        ),
        (
            {"spread_parts": 2},
            "Rows of source are spread over 4 tasks behind it, because it had only 2 parts.",
        ),
        (
            {"intake_limit": 5_000, "intake_unit": "rows"},
            "source gives at most 5,000 rows to the next batch: more would take longer than slotwise.batch.target.",
        ),
        (
            {"intake_why": "no-admission-control"},
            "Batches take longer than they should, and have all that waits at source: Spark cannot tell this source "
            "how much to give.",
        ),
        (
            {"intake_why": "own-limit"},
            "Batches take longer than they should, and have all that waits at source: its options decide how much it "
            "gives.",
        ),
        (
            {"intake_why": "keeps-time"},
            "Batches take longer than they should, and have all that waits at source: their size decides which rows "
            "are late, so it is limited only if the job sets slotwise.batch.target.",
        ),
    ],
)
def test_a_source_says_how_much_the_next_batch_gets_why_it_is_not_less_and_where_rows_go(
    told: dict[str, Any], expected: str
) -> None:
    job = Reporting()
    job.batch(0, 1, 100, vertices=(VertexBatch(job.source, 4, 1, 100, 100, **told),))
    assert load_sentences(job.load, job.graph, {}, at_ms(2))[-1:] == [expected]
    job.load.note(Report(99, at_ms(2), "executors", idle_queries=(job.source,)), 1, job.graph, at_ms(2))
    assert load_sentences(job.load, job.graph, {}, at_ms(3)) == [], "it has nothing to do"

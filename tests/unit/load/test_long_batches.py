"""Batches that take long: what is kept of them, since when they run, and what ends them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.load.long_batches import TEXT_KEPT, SeenLongBatch
from app.load.reported import Load
from app.load.sentences import load_sentences
from app.model.measured import BATCHES_TOLD, LongBatch
from app.model.protocol import Report
from tests.unit.load.reporting import Reporting, at_ms
from tests.unit.scheduler.driving import T0_MS, two_sinks

GRAPH = two_sinks()
SINK, OTHER = (vertex.id for vertex in GRAPH.vertices if vertex.is_sink)
LONG = LongBatch(SINK, "q", "run", 17, ran_ms=20_000, plan_version=1)


def noted(load: Load, *batches: LongBatch, after_s: float = 0.0, attempt: int = 1) -> Load:
    report = Report(1, T0_MS, "executors", long_batches=batches)
    load.note(report, attempt, GRAPH, at_ms(after_s))
    return load


def kept(load: Load) -> list[tuple[str, int]]:
    return [(seen.told.query, seen.told.batch_id) for seen in load.long_batches]


def only(load: Load) -> SeenLongBatch:
    (seen,) = load.long_batches
    return seen


def test_a_report_says_all_of_them_and_one_without_them_nothing() -> None:
    load = noted(Load(), LONG, replace(LONG, query=OTHER, query_id="r"))
    assert kept(load) == [(SINK, 17), (OTHER, 17)]
    load.note(Report(2, T0_MS, "executors", executors=2), 1, GRAPH, T0_MS)
    assert len(kept(load)) == 2
    assert kept(noted(load, LONG)) == [(SINK, 17)]
    assert kept(noted(load)) == []


@pytest.mark.parametrize(
    ("fields", "is_over"),
    [
        ({"type": "batch", "query_id": "q", "batch_id": 16}, False),
        ({"type": "batch", "query_id": "q", "batch_id": 17}, True),
        ({"type": "batch", "query_id": "q", "batch_id": 18}, True),
        ({"type": "batch", "query_id": "r", "batch_id": 18}, False),
        ({"type": "query-failed", "query": SINK}, True),
        ({"type": "query-ended", "query": SINK}, True),
        ({"type": "query-failed", "query": OTHER}, False),
        ({"type": "plan-applied"}, False),
        ({"type": "failed"}, True),
        ({"type": "stopped"}, True),
        ({"type": "finished"}, True),
    ],
)
def test_it_is_gone_when_it_has_ended(fields: dict[str, Any], is_over: bool) -> None:
    load = noted(Load(), LONG)
    load.note(Report(2, T0_MS + 5, **fields), 1, GRAPH, T0_MS + 5)
    assert (kept(load) == []) is is_over


def test_it_is_gone_with_its_attempt_and_its_job() -> None:
    load = noted(Load(), LONG)
    load.note(Report(1, T0_MS, "running"), 2, GRAPH, T0_MS)
    assert kept(load) == []
    noted(load, LONG, attempt=2).end()
    assert kept(load) == []


def test_it_runs_since_what_the_report_with_the_least_delay_says() -> None:
    load = noted(Load(), LONG, after_s=21)
    assert only(load).since_ms == at_ms(1)
    noted(load, replace(LONG, ran_ms=25_000), after_s=25.5)
    assert (only(load).since_ms, only(load).seen_ms) == (at_ms(0.5), at_ms(25.5))
    noted(load, replace(LONG, ran_ms=30_000), after_s=33)
    assert only(load).since_ms == at_ms(0.5), "it came late"
    # Spark runs it again.
    noted(load, replace(LONG, ran_ms=6_000, run_id="another"), after_s=40)
    assert only(load).since_ms == at_ms(34)


def test_a_plan_waits_since_what_the_driver_says() -> None:
    assert only(noted(Load(), LONG, after_s=20)).waited_since_ms is None
    assert only(noted(Load(), replace(LONG, waited_ms=4_000), after_s=20)).waited_since_ms == at_ms(16)


def test_what_is_kept_is_bounded_whatever_is_told() -> None:
    graph = replace(GRAPH, vertices=tuple(replace(GRAPH.vertices[-1], id=f"{n:032x}") for n in range(500)))
    long = "x" * 10_000
    foreign = LongBatch("f" * 32, "q", "run", 1, 9_000, 1)
    many = tuple(LongBatch(each.id, long, long, 1, 9_000, 1) for each in graph.vertices)
    load = Load()
    load.note(Report(1, T0_MS, "executors", long_batches=(foreign, *many)), 1, graph, T0_MS)
    assert [query for query, _ in kept(load)] == [each.id for each in graph.vertices[:BATCHES_TOLD]]
    assert {(len(each.told.query_id), len(each.told.run_id)) for each in load.long_batches} == {
        (TEXT_KEPT, TEXT_KEPT)
    }
    # A batch of this query ends by the same text.
    batch = Report(2, T0_MS, "batch", query_id=long, batch_id=1)
    load.note(batch, 1, graph, T0_MS)
    assert kept(load) == []


def test_a_query_whose_batch_is_known_to_run_is_not_said_to_hang() -> None:
    told = Reporting(GRAPH).steady(30)
    quiet = load_sentences(told.load, GRAPH, {}, at_ms(90))
    assert "has committed no batch for" in " ".join(quiet)
    noted(told.load, LONG, after_s=90)
    assert load_sentences(told.load, GRAPH, {}, at_ms(90)) == []

"""Whatever a driver reports: what is kept of it, and what it costs to read, is bounded."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from app.load import reported as loads
from app.load import sentences
from app.load.figures import WINDOW_MS
from app.load.long_batches import TEXT_KEPT
from app.load.reported import EXECUTORS_KEPT, PHASES_KEPT, QUERIES_KEPT, TOPIC_KEPT
from app.model.measured import TOPICS_TOLD, ExecutorLoad, VertexBatch
from app.model.protocol import Report
from tests.unit.load.reporting import Reporting, at_ms
from tests.unit.scheduler.driving import T0_MS, two_sinks


def test_more_queries_and_executors_than_the_limits_are_not_kept() -> None:
    told = Reporting()
    foreign = VertexBatch("f" * 32, 1, 1, 5, 5)
    for number in range(QUERIES_KEPT + 20):
        told.batch(number, number + 1, 1, query=f"q{number}", vertices=(foreign,))
    assert len(told.load.queries) == QUERIES_KEPT
    assert f"q{QUERIES_KEPT + 19}" in told.load.queries
    assert told.load.totals(foreign.vertex_id, whole_life=True) is None
    one = ExecutorLoad("1" * 10_000, "host" * 10_000, 10, 100, 7, 0, 1, 5, 0, 50)
    many = tuple(replace(one, cores=number) for number in range(EXECUTORS_KEPT + 5))
    told.load.note(Report(1, T0_MS, "executors", executor_loads=many), 1, told.graph, T0_MS)
    executors = told.load.executors
    assert executors is not None and len(executors.now) == EXECUTORS_KEPT
    assert {(len(each.executor_id), len(each.host)) for each in executors.now} == {(TEXT_KEPT, TEXT_KEPT)}


def test_of_a_report_of_megabytes_that_is_kept_which_is_shown() -> None:
    told = Reporting()
    told.batch(
        0,
        1,
        5,
        query="q" * 10_000,
        vertices=(
            VertexBatch(told.source, 1, 1, 5, 5, backlog_rows_by_topic={f"{n:0300}": n for n in range(100)}),
            VertexBatch("f" * 32, 1, 1),
        )
        * 25_000,
        run_id="r" * 10_000,
        error="e" * 1_000_000,
        stack="s" * 1_000_000,
        not_followed={"v": "why" * 100_000},
        executor_loads=(ExecutorLoad("1", "host", 10, 100, 7, 0, 1, 5, 0, 50),),
        phases_ms={f"{number}" * 1_000: number for number in range(100)},
    )
    ((query_id, query),) = told.load.queries.items()
    kept = query.latest.report
    assert len(query_id) == len(kept.run_id) == TEXT_KEPT
    assert [each.vertex_id for each in kept.vertices] == [told.source]
    (topics,) = [each.backlog_rows_by_topic for each in kept.vertices]
    assert len(topics) <= TOPICS_TOLD and set(map(len, topics)) == {TOPIC_KEPT}
    assert len(kept.phases_ms) <= PHASES_KEPT and max(map(len, kept.phases_ms)) <= TEXT_KEPT
    assert (kept.error, kept.stack, kept.not_followed, kept.executor_loads) == (None, None, {}, ())
    assert (kept.batch_id, kept.input_rows, kept.backlog_rows) == (0, 5, 7)


def test_queries_with_many_vertices_in_common_are_as_few_as_the_limit_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loads, "VERTICES_KEPT", 4)
    told = Reporting()
    both = (VertexBatch(told.source, 1, 1, 5, 5), VertexBatch(told.graph.vertices[1].id, 1, 1, 5, 5))
    for number in range(5):
        told.batch(number, number + 1, 10 - number, query=f"q{number}", vertices=both)
    assert list(told.load.queries) == ["q3", "q4"]
    found = told.load.totals(told.source, whole_life=True)
    assert found is not None and found.work.records_in == 5, "its counters do not fall"


def test_sentences_read_each_vertex_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = two_sinks()
    told = Reporting(graph)
    for number in range(9):
        for query in ("a", "b", "c"):
            work = tuple(VertexBatch(each.id, 1, 1, 5, 5, busy_ms=900) for each in graph.vertices[:2])
            told.batch(number, number + 1, 5, query=query, vertices=work)
    read: list[str] = []

    def counted(load: loads.Load, vertex_id: str, now_ms: int) -> None:
        read.append(vertex_id)

    monkeypatch.setattr(sentences, "vertex_rates", counted)
    sentences.load_sentences(told.load, graph, {}, at_ms(10))
    assert sorted(read) == sorted(each.id for each in graph.vertices[:2])


@pytest.mark.parametrize("takes_s", [0.02, 1.001, 1.1, 1.999, 2.001, 7.0])
def test_the_spans_that_are_kept_are_more_than_a_minute(takes_s: float) -> None:
    told = Reporting().steady(round(200 / takes_s), every_s=takes_s, takes_s=takes_s)
    (query,) = told.load.queries.values()
    assert query.spans[-1].end_ms - query.spans[0].start_ms > WINDOW_MS
    assert all(later.start_ms >= one.end_ms for one, later in pairwise(query.spans))

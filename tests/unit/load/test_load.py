"""What is kept of a job's load: counters that only grow, and no more of anything than the limits say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.load.figures import trend_of, vertex_rates
from app.load.reported import SPANS_KEPT, Load
from app.model.measured import ExecutorLoad, VertexBatch
from app.model.protocol import Report
from tests.unit.load.reporting import Reporting, at_ms
from tests.unit.scheduler.driving import T0_MS, chain, two_sinks


def totals(told: Reporting, *, whole_life: bool = False) -> dict[str, int | None]:
    found = told.load.totals(told.source, whole_life=whole_life)
    assert found is not None
    return found.work._asdict()


def test_counters_begin_anew_with_an_attempt_and_go_on_over_the_life_of_the_job() -> None:
    told = Reporting().steady(10)
    assert totals(told)["records_in"] == totals(told, whole_life=True)["records_in"] == 360
    told.attempt = 2
    told.batch(20, 21, 5)
    assert totals(told)["records_in"] == 5
    assert totals(told, whole_life=True)["records_in"] == 365
    assert totals(told, whole_life=True)["bytes_in"] is None


def test_busy_idle_and_held_time_add_up_to_the_time_of_the_slots() -> None:
    told = Reporting().steady(11, backlog=0)
    found = told.load.totals(told.source, whole_life=False)
    assert found is not None and found.work.busy_ms == 11 * 250
    assert found.work.busy_ms + found.idle_ms + found.held_ms == 2 * 10_500
    assert found.held_ms == 0
    # Rows waited in the half second between two batches.
    told = Reporting().steady(11, backlog=7)
    found = told.load.totals(told.source, whole_life=False)
    assert found is not None and found.held_ms == 2 * 10 * 500


def test_a_batch_begins_when_spark_begins_to_plan_it() -> None:
    """The driver sees a batch after its planning, which is neither a pause nor does it hold the source up."""
    told = Reporting().steady(11, backlog=7, takes_s=0.6, phases_ms={"triggerExecution": 1_000})
    found = told.load.totals(told.source, whole_life=False)
    assert found is not None and (found.held_ms, found.idle_ms) == (0, 11 * 2 * 1_000 - 11 * 300)
    (query,) = told.load.queries.values()
    assert trend_of(query, at_ms(10.6)).batch_ms_per_second == 1_000


def test_a_vertex_of_whose_tasks_nothing_is_told_has_been_busy_while_batches_ran() -> None:
    """As its rates say."""
    told = Reporting().steady(11, backlog=0, vertices=(VertexBatch(chain().vertices[0].id, 2, 2, 3, 3),))
    found = told.load.totals(told.source, whole_life=False)
    assert found is not None and found.work.busy_ms is None
    assert (found.busy_ms, found.idle_ms) == (2 * 11 * 500, 2 * 10 * 500)


def test_only_a_source_at_which_rows_waited_was_held_back() -> None:
    told = Reporting()
    middle = told.graph.vertices[1].id
    work = tuple(VertexBatch(each, 2, 2, 3, 3, busy_ms=100) for each in (told.source, middle, told.sink))
    told.steady(11, backlog=7, vertices=work)
    rates = [vertex_rates(told.load, each, at_ms(10.5)) for each in (told.source, middle, told.sink)]
    assert [round(one.held_ms) for one in rates if one] == [2 * 10 * 500 * 1000 // 10_500, 0, 0]
    # Those that wait are at another source.
    told = Reporting()
    own = VertexBatch(told.source, 2, 2, 3, 3, busy_ms=100, backlog_rows=0)
    told.steady(11, backlog=7, vertices=(own,))
    found, rate = (
        told.load.totals(told.source, whole_life=False),
        vertex_rates(told.load, told.source, at_ms(9)),
    )
    assert found is not None and rate is not None and (found.held_ms, rate.held_ms) == (0, 0)


@pytest.mark.parametrize(("before", "after"), [(8, 2), (2, 8)])
def test_a_rescale_does_not_change_how_busy_a_slot_has_been(before: int, after: int) -> None:
    told = Reporting()
    for second in range(20):
        slots = before if second < 19 else after
        work = VertexBatch(told.source, slots, slots, 3, 3, busy_ms=slots * 250)
        told.batch(second, second + 1, 3, vertices=(work,))
    rates = vertex_rates(told.load, told.source, at_ms(20))
    assert rates is not None and rates.parallelism == after
    assert rates.busy_ms_of_slot == pytest.approx(250)


def test_a_figure_that_a_batch_with_rows_does_not_tell_is_not_complete() -> None:
    told = Reporting()
    known = VertexBatch(told.source, 2, 2, 3, 3, busy_ms=1)
    told.batch(0, 1, 3, vertices=(known,))
    # Without rows no stage runs, of which Spark could tell anything.
    told.batch(1, 2, 0, vertices=(VertexBatch(told.source, 2, None),))
    found = told.load.totals(told.source, whole_life=False)
    assert found is not None and found.is_complete("records_in") and not found.is_complete("bytes_in")
    told.batch(2, 3, 3, vertices=(replace(known, records_in=None, records_out=None),))
    found = told.load.totals(told.source, whole_life=False)
    assert found is not None and found.work.records_in == 3 and not found.is_complete("records_in")


def test_a_source_reads_what_it_hands_on() -> None:
    told = Reporting()
    told.batch(
        0, 1, 9, vertices=(VertexBatch(told.source, 1, 1, None, 9), VertexBatch(told.sink, 1, 1, None, 4))
    )
    assert totals(told)["records_in"] == 9
    sink = told.load.totals(told.sink, whole_life=False)
    assert sink is not None and sink.work.records_in is None


def test_rows_of_a_source_of_two_queries_count_once_and_its_time_twice() -> None:
    told = Reporting()
    for query, rows in (("q", 10), ("r", 12)):
        told.batch(0, 1, rows, query=query)
    assert totals(told)["records_in"] == 12
    assert totals(told)["busy_ms"] == 1000
    rates = vertex_rates(told.load, told.source, at_ms(1))
    assert rates is not None and (rates.records_in, rates.busy_ms) == (12.0, 1000.0)


def test_the_time_of_a_source_of_two_queries_is_a_whole() -> None:
    told = Reporting()
    for second in range(10):
        for query in ("q", "r"):
            told.batch(second, second + 0.5, 36, query=query, backlog=0)
    found = told.load.totals(told.source, whole_life=False)
    rates = vertex_rates(told.load, told.source, at_ms(9.5))
    assert found is not None and rates is not None and rates.busy_ms is not None
    assert (found.busy_ms, found.busy_ms + found.idle_ms + found.held_ms) == (2 * 10 * 250, 2 * 9_500)
    assert rates.busy_ms * 9.5 == pytest.approx(found.busy_ms)
    # Of whose tasks nothing is told, it is busy in the batches of both.
    told = Reporting()
    for query in ("q", "r"):
        told.batch(0, 0.4, 3, query=query, vertices=(VertexBatch(told.source, 2, 2, 3, 3),))
    rates = vertex_rates(told.load, told.source, at_ms(1))
    found = told.load.totals(told.source, whole_life=False)
    assert rates is not None and found is not None
    assert (rates.busy_ms, rates.batch_ms, found.busy_ms) == (None, 800, 800)


def test_a_minute_of_short_batches_is_known() -> None:
    """Not only the latest of them: the rate falls to 0 in a minute, not at once."""
    told = Reporting().steady(8_000, rows=2, every_s=0.02, takes_s=0.01)
    (query,) = told.load.queries.values()
    assert len(query.spans) == SPANS_KEPT
    rates = [vertex_rates(told.load, told.source, at_ms(160 + gone_s)) for gone_s in (0, 30, 59, 61)]
    assert [round(one.records_in or 0) for one in rates if one] == [100, 50, 2, 0]


def executor(executor_id: str, gc_ms: int = 0) -> ExecutorLoad:
    return ExecutorLoad(executor_id, "host", 10, 100, gc_ms, 0, 1, 5, 0, 50)


def test_executors_of_an_attempt_that_is_over_are_forgotten() -> None:
    load, graph = Load(), chain()
    told = Report(1, T0_MS, "executors", executor_loads=(executor("1", 10),))
    load.note(told, 1, graph, T0_MS)
    load.note(replace(told, executor_loads=(executor("1", 30),)), 1, graph, T0_MS + 5_000)
    assert load.executors is not None and load.executors.gc_ms_before == {"1": 10}
    load.note(Report(1, T0_MS, "running"), 2, graph, T0_MS + 6_000)
    assert load.executors is None


def test_of_a_job_that_is_over_the_counters_are_left() -> None:
    told = Reporting().steady(5)
    told.load.end()
    assert totals(told)["records_in"] == 180
    assert told.load.steps.read(5_000, at_ms(6)).starts_ms == []
    assert vertex_rates(told.load, told.source, at_ms(5)).records_in == 0.0  # type: ignore[union-attr]


def test_vertices_of_an_earlier_version_are_forgotten() -> None:
    told = Reporting().steady(3)
    told.attempt = 2
    gone = told.source
    graph = chain()
    told.graph = replace(graph, vertices=graph.vertices[1:])
    told.batch(9, 10, 1, vertices=(VertexBatch(told.sink, 1, 1, 1, 1),))
    assert told.load.totals(gone, whole_life=True) is None


def test_queries_of_a_version_that_was_taken_back_are_forgotten_and_counters_do_not_fall() -> None:
    graph = two_sinks()
    by_name = {each.name: each.id for each in graph.vertices}
    told = Reporting(graph)
    for query, sink, rows in (("old", "sink-raw", 50), ("q", "sink", 10)):
        work = tuple(VertexBatch(by_name[name], 1, 1, rows, rows) for name in ("source", sink))
        told.batch(0, 1, rows, query=query, vertices=work)
    told.attempt = 2
    told.graph = replace(graph, vertices=tuple(each for each in graph.vertices if each.name != "sink-raw"))
    told.load.note(Report(9, at_ms(2), "running"), 2, told.graph, at_ms(2))
    assert list(told.load.queries) == ["q"]
    found = told.load.totals(by_name["source"], whole_life=True)
    assert found is not None and found.work.records_in == 50
    # Its state begins anew: what has the sink now has another id.
    told.batch(3, 4, 5, query="new", vertices=work)
    assert list(told.load.queries) == ["new"]
    found = told.load.totals(by_name["sink"], whole_life=True)
    assert found is not None and found.work.records_in == 20


def test_queries_that_are_idle_are_told_with_whatever_report() -> None:
    graph = two_sinks()
    by_name = {each.name: each.id for each in graph.vertices}
    told = Reporting(graph)

    def batch(second: float, query: str, sink: str, **fields: tuple[str, ...]) -> None:
        work = (VertexBatch(by_name[sink], 1, 1, 3, 3),)
        told.batch(second, second + 0.5, 3, query=query, vertices=work, **fields)

    batch(0, "a", "sink")
    batch(6, "b", "sink-raw", idle_queries=(by_name["sink"],))
    a, b = told.load.queries["a"], told.load.queries["b"]
    assert told.load.is_idle(a) and not told.load.is_idle(b)
    # Of executors that have come: it says nothing of queries.
    told.load.note(Report(9, at_ms(8), "executors", executors=2), 1, graph, at_ms(8))
    assert told.load.is_idle(a)
    told.load.note(Report(9, at_ms(9), "executors", idle_queries=()), 1, graph, at_ms(9))
    assert not told.load.is_idle(a)


def test_batches_that_were_kept_while_no_server_answered_are_shown_when_they_were() -> None:
    told = Reporting()
    for second in range(300):
        told.batch(second, second + 1, 10, late_s=299 - second, newest_ms=at_ms(300))
    steps = told.load.steps.read(60_000, at_ms(300))
    assert steps.rows_per_second[-4:-1] == [10.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("parallelism", "longest_ms", "median_ms", "busiest", "skew"),
    [(4, 800, 100, 800.0, 8.0), (4, None, 100, None, None), (1, 1_500, 1_500, 1000.0, 1.0)],
)
def test_the_longest_task_says_how_busy_its_slot_is(
    parallelism: int, longest_ms: int | None, median_ms: int, busiest: float | None, skew: float | None
) -> None:
    told = Reporting()
    batch = VertexBatch(
        told.source, parallelism, 4, 1, 1, busy_ms=1_100, longest_task_ms=longest_ms, median_task_ms=median_ms
    )
    told.batch(0, 1, 1, vertices=(batch,))
    rates = vertex_rates(told.load, told.source, at_ms(1))
    assert rates is not None and (rates.busiest_ms, rates.skew) == (busiest, skew)


@pytest.mark.parametrize(
    ("step", "growth", "arrival"), [(-20, -20.0, 16.0), (0, 0.0, 36.0), (30, 30.0, 66.0)]
)
def test_what_arrives_is_what_is_processed_and_what_the_backlog_grows_by(
    step: int, growth: float, arrival: float
) -> None:
    told = Reporting()
    for second in range(120):
        told.batch(second, second + 0.5, 36, backlog=5_000 + step * second)
    (query,) = told.load.queries.values()
    trend = trend_of(query, at_ms(119.5))
    assert trend.growth_per_second == pytest.approx(growth, abs=0.01)
    assert trend.arrival_per_second == pytest.approx(arrival, rel=0.05)
    assert trend.backlog_rows == 5_000 + step * 119
    assert trend.batch_ms_per_second == pytest.approx(500, rel=0.05)
    assert (trend.longest_batch_ms, trend.pause_ms) == (500, 500)


def test_a_backlog_that_is_not_known_has_no_trend() -> None:
    told = Reporting().steady(60, backlog=None)
    (query,) = told.load.queries.values()
    trend = trend_of(query, at_ms(60))
    assert (trend.growth_per_second, trend.arrival_per_second, trend.backlog_ms) == (None, None, None)


@pytest.mark.parametrize("takes_s", [0.5, 40])
def test_a_backlog_has_a_time_once_it_is_known_what_arrives(takes_s: float) -> None:
    """100 rows arrive each second, 10 are processed, and 50,000 waited before that."""
    told, second, waits = Reporting(), 0.0, []
    for _ in range(max(2, round(12 / takes_s))):
        second += takes_s
        told.batch(second - takes_s, second, round(10 * takes_s), backlog=round(50_000 + 90 * second))
        (query,) = told.load.queries.values()
        waits.append(trend_of(query, at_ms(second)).backlog_ms)
    assert waits[0] is None
    assert waits[-1] == pytest.approx(10 * (50_000 + 90 * second), rel=0.05)


def test_a_backlog_has_no_time_while_nothing_arrives() -> None:
    told = Reporting().steady(20, rows=40)
    (query,) = told.load.queries.values()
    trend = replace(trend_of(query, at_ms(20)), backlog_rows=5_000, growth_per_second=-50.0)
    assert (trend.arrival_per_second, trend.backlog_ms) == (0.0, None)

"""Whatever drivers report: counters do not fall, time divides into a whole, and the history has all rows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.render.metrics import vertex_metrics
from app.load.figures import trend_of
from app.load.sentences import load_sentences
from app.model.measured import VertexBatch
from app.model.status import JobStatus
from app.worker.views import JobView
from tests.unit.load.reporting import Reporting, at_ms
from tests.unit.scheduler.driving import T0_MS, Job

JOB = Job().run()

figures = st.none() | st.integers(0, 10_000)


@dataclass(frozen=True)
class Told:
    pause_s: float
    took_s: float
    late_s: float
    rows: int
    backlog: int | None
    query: str
    parallelism: int
    busy_ms: int | None
    longest_ms: int | None
    median_ms: int | None
    records_in: int | None
    restarts: bool


told = st.builds(
    Told,
    pause_s=st.floats(-1, 90),
    took_s=st.floats(0, 90),
    late_s=st.floats(0, 30),
    rows=st.integers(0, 10_000),
    backlog=figures,
    query=st.sampled_from(["q", "r"]),
    parallelism=st.integers(0, 5),
    busy_ms=st.none() | st.integers(0, 400_000),
    longest_ms=figures,
    median_ms=figures,
    records_in=figures,
    restarts=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(told, min_size=1, max_size=25), st.floats(0, 300))
def test_any_reports(batches: list[Told], quiet_s: float) -> None:
    driver = Reporting(JOB.graph)
    now_s, rows, most, busy_ms = 0.0, 0, 0, 0
    for one in batches:
        driver.attempt += one.restarts
        start_s = max(0.0, now_s + one.pause_s)
        now_s = max(now_s, start_s) + one.took_s
        work = VertexBatch(
            driver.source,
            one.parallelism,
            one.parallelism,
            one.records_in,
            one.rows,
            one.busy_ms,
            longest_task_ms=one.longest_ms,
            median_task_ms=one.median_ms,
        )
        driver.batch(
            start_s,
            now_s,
            one.rows,
            late_s=one.late_s,
            backlog=one.backlog,
            query=one.query,
            vertices=(work,),
        )
        rows += one.rows
        found = driver.load.totals(driver.source, whole_life=True)
        assert found is not None and found.busy_ms >= busy_ms and min(found.idle_ms, found.held_ms) >= 0
        busy_ms = found.busy_ms
        counted = max(
            sum(each.rows for each in batches[: driver.count] if each.query == query) for query in ("q", "r")
        )
        assert found.work.records_out == counted >= most
        most = counted
    at_s = now_s + quiet_s
    view = JobView(JOB.state, JobStatus.RUNNING, T0_MS, None, None, 1, load=driver.load)
    metrics = vertex_metrics(view, JOB.graph.by_id[driver.source], at_ms(at_s))
    times = [metrics[f"{name}TimeMsPerSecond"] for name in ("busy", "idle", "backPressured")]
    assert sum(each.avg for each in times) == pytest.approx(1000)
    for each in times:
        assert each.min is not None and each.max is not None
        assert -1e-6 <= each.min <= each.avg + 1e-6 <= each.max + 2e-6 <= 1000 + 4e-6
    history = driver.load.steps.read(60_000, at_ms(at_s + 60))
    # Rates are rounded to thousandths.
    assert sum(history.rows_per_second) * 60 == pytest.approx(rows, abs=0.04 * len(history.starts_ms))
    assert all(
        query.spans or trend_of(query, at_ms(at_s)).rows_per_second == 0
        for query in driver.load.queries.values()
    )
    assert all(sentence.endswith(".") for sentence in load_sentences(driver.load, JOB.graph, {}, at_ms(at_s)))

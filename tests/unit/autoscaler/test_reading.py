"""What is made of the answers of the REST API."""

from __future__ import annotations

from typing import Any

import pytest

from app.autoscaler.loop import declared
from app.autoscaler.reading import NotScalable, by_average, look, queries_of
from app.model.requirements import Bounds
from app.model.scaling_policy import FloorCeiling
from tests.unit.autoscaler.model_job import START_MS, VERTEX, ModelJob


def seen(job: ModelJob, **options: Any) -> Any:
    requirements, _ = job.get("/jobs/job/resource-requirements")
    return look(
        lambda path: job.get(path)[0],
        job.get("/jobs/job")[0],
        requirements,
        **{"window_ms": 60_000, **options},
    )


def running(rows_per_second: float = 100, **options: Any) -> ModelJob:
    job = ModelJob(lambda _: rows_per_second, upper=4, parallelism=4, loss=0.0, **options)
    job.run_to(START_MS + 300_000)
    return job


def test_figures_are_those_of_the_job() -> None:
    load = seen(running()).load
    assert load.length_ms == 60_000
    assert load.rows_per_second == pytest.approx(100, rel=0.05)
    assert load.arrival_per_second == pytest.approx(100, rel=0.05)
    assert load.backlog_rows == 0
    vertex = seen(running()).vertices[0]
    # 100 rows of 20 ms by four tasks.
    assert vertex.busy_ms == pytest.approx(500, rel=0.1)
    assert (vertex.name, vertex.lower, vertex.upper, vertex.parallelism, vertex.most) == (VERTEX, 1, 4, 4, 32)


def test_the_operator_s_floor_and_ceiling_are_read() -> None:
    found = seen(running(floor=2, ceiling=3)).vertices[0]
    assert (found.operator, found.upper, found.effective) == (FloorCeiling(2, 3), 4, Bounds(2, 3))


def test_the_time_without_tasks_is_what_planning_takes() -> None:
    load = seen(running()).load
    # Batches of 600 ms: 300 for planning and committing, 300 for 15 rows of 20 ms each.
    assert load.fixed_share == pytest.approx(0.5, abs=0.1)


def test_a_backlog_that_grows_tells_what_arrives() -> None:
    load = seen(running(400, limit_rows=200)).load
    assert load.backlog_rows > 10_000
    assert load.rows_per_second == pytest.approx(150, rel=0.1)
    assert load.arrival_per_second == pytest.approx(400, rel=0.1)


def test_only_what_was_measured_since_the_last_change_counts() -> None:
    job = running()
    job.since_ms = job.now_ms - 22_000
    assert seen(job).load.length_ms in (10_000, 15_000, 20_000)
    job.since_ms = job.now_ms
    assert seen(job).load is None


def test_an_idle_job_has_no_rows_up_to_now() -> None:
    job = running()
    job.arrival = lambda _: 0.0
    job.run_to(job.now_ms + 120_000)
    found = seen(job)
    assert found.is_idle and found.quiet_ms > 100_000
    assert (found.load.length_ms, found.load.rows_per_second) == (60_000, 0.0)


def test_before_the_first_batch_nothing_is_known() -> None:
    assert seen(ModelJob(lambda _: 1)).load is None


def test_batch_jobs_are_refused() -> None:
    with pytest.raises(NotScalable, match="of type BATCH"):
        look(lambda _: None, {"job-type": "BATCH"}, {}, window_ms=1)


def test_each_sink_is_a_query_with_all_before_it() -> None:
    nodes = [
        {"id": "a"},
        {"id": "b"},
        {"id": "join", "inputs": [{"id": "a"}, {"id": "b"}]},
        {"id": "one", "inputs": [{"id": "join"}]},
        {"id": "two", "inputs": [{"id": "b"}]},
    ]
    assert [set(each) for each in queries_of(nodes)] == [{"a", "b", "join", "one"}, {"b", "two"}]


def test_the_longest_task_is_compared_with_the_average_one() -> None:
    # Seven tasks of 100 ms, and one of 1000: the average is 212.5.
    assert by_average(10.0, 8) == pytest.approx(1000 / 212.5)
    assert [by_average(skew, tasks) for skew, tasks in ((1.0, 8), (7.0, 1))] == [1.0, 1.0]
    job = running(hot=0.3)
    average_ms, _, longest_ms = (sum(each[place] for each in job.batches) for place in (2, 3, 4))
    assert seen(job).vertices[0].skew == pytest.approx(longest_ms / average_ms)


def test_lower_bounds_stay_as_they_are() -> None:
    before = {
        "a": {"parallelism": {"lowerBound": 2, "upperBound": 4}},
        "b": {"parallelism": {"lowerBound": 1, "upperBound": 9}},
    }
    assert declared(before, {"b": 3}) == {
        "a": {"parallelism": {"lowerBound": 2, "upperBound": 4}},
        "b": {"parallelism": {"lowerBound": 1, "upperBound": 3}},
    }

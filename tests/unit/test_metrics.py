"""Metrics of vertices, jobs and executors: over a window that ends now, not at the last batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.api.render.jobs import job_details
from app.api.render.metrics import (
    Aggregates,
    aggregated_metrics,
    executor_metrics,
    job_metrics,
    vertex_metrics,
)
from app.load.reported import Load
from app.model.measured import ExecutorLoad, VertexBatch
from app.model.protocol import Report
from app.model.status import JobStatus
from app.worker.views import JobView
from tests.unit.load.reporting import Reporting, at_ms
from tests.unit.scheduler.driving import T0_MS, Job

RATES = ("numRecordsInPerSecond", "numRecordsOutPerSecond", "busyTimeMsPerSecond")


class Batches(Reporting):
    """What a job with one query reports, and what is shown of it."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.job = Job().run()
        super().__init__(self.job.graph, ahead_ms=ahead_ms)
        self.vertex = self.source

    def view(self) -> JobView:
        return JobView(self.job.state, JobStatus.RUNNING, T0_MS, None, None, 1, load=self.load)

    def metrics(self, at_s: float, vertex_id: str | None = None) -> dict[str, Aggregates]:
        return vertex_metrics(self.view(), self.graph.by_id[vertex_id or self.vertex], at_ms(at_s))

    def rates(self, at_s: float) -> list[float]:
        values = self.metrics(at_s)
        return [round(values[name].sum, 1) for name in RATES]


def test_the_rate_of_steady_batches_is_that_of_what_came() -> None:
    records_in, records_out, busy = Batches().steady(200).rates(199.5)
    assert records_in == pytest.approx(36, rel=0.05)
    assert records_out == pytest.approx(72, rel=0.05)
    assert busy == pytest.approx(250, rel=0.05)


def test_the_first_batch_alone_has_its_own_rate() -> None:
    assert Batches().batch(0, 2, 100).rates(2) == [50.0, 100.0, 500.0]


def test_rates_fall_to_0_when_batches_stop() -> None:
    batches = Batches()
    batches.steady(200)
    shown = [batches.rates(199.5 + gone_s)[0] for gone_s in (0, 20, 40, 59, 75)]
    assert shown == sorted(shown, reverse=True) and shown[0] > 30
    assert batches.rates(199.5 + 75) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("ahead_s", [-3_600, 0, 3_600])
def test_the_clock_of_the_driver_does_not_matter(ahead_s: int) -> None:
    batches = Batches(ahead_s * 1000).steady(200)
    assert batches.rates(199.5)[0] == pytest.approx(36, rel=0.05)
    assert batches.rates(275)[0] == 0.0


def test_reports_that_had_to_wait_for_a_server_count_when_they_were() -> None:
    batches = Batches()
    for second in range(100):
        batches.batch(second, second + 0.5, 36, late_s=99.5 - second)
    assert batches.rates(100)[0] == pytest.approx(36, rel=0.05)


def test_a_long_batch_is_spread_over_its_time() -> None:
    batches = Batches().batch(0, 300, 3_000).batch(300, 600, 3_000)
    assert batches.rates(600)[0] == 10.0
    assert batches.rates(900)[0] == 5.0
    assert batches.rates(1_201)[0] == 0.0


def test_the_time_of_the_last_batch_is_told() -> None:
    batches = Batches().steady(3)
    values = batches.metrics(90)
    assert values["lastBatchTimestamp"].sum == T0_MS + 2_500
    assert values["pendingRecords"].sum == 7
    assert job_metrics(batches.view(), T0_MS + 90_000)["lastBatchTimestamp"] == str(T0_MS + 2_500)


def test_before_the_first_batch_there_is_nothing() -> None:
    batches = Batches()
    assert batches.metrics(0) == {}
    assert "lastBatchTimestamp" not in job_metrics(batches.view(), T0_MS)


FULL: dict[str, Any] = {
    "bytes_in": 1_000,
    "bytes_out": 500,
    "longest_task_ms": 400,
    "median_task_ms": 100,
    "state_rows": 70,
    "state_bytes": 7_000,
    "backlog_rows_by_topic": {"words": 20, "more.words": 10},
    "lag_max_rows": 15,
    "backlog_files": 3,
    "backlog_bytes": 900,
}


def told_all() -> Batches:
    """Ten seconds of batches of one second: 10 rows in, 20 out, 500 of 2000 ms busy, an hour behind."""
    batches = Batches()
    work = VertexBatch(batches.vertex, 2, 2, 10, 20, busy_ms=500, backlog_rows=30, **FULL)
    sink = VertexBatch(batches.sink, 1, None, 20)
    for second in range(10):
        batches.batch(
            second,
            second + 1,
            10,
            backlog=30,
            vertices=(work, sink),
            watermark_ms=at_ms(second + 1) - 3_600_000,
            phases_ms={"addBatch": 900, "commitOffsets": 40},
        )
    return batches


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "numRecordsIn": (100, 50, None, None),
        "numRecordsOut": (200, 100, None, None),
        "numBytesIn": (10_000, 5_000, None, None),
        "numBytesOut": (5_000, 2_500, None, None),
        "numRecordsInPerSecond": (10, 5, None, None),
        "numBytesOutPerSecond": (500, 250, None, None),
        # The longest task takes 400 of the 500 ms, and the other one what is left.
        "busyTimeMsPerSecond": (500, 250, 100, 400),
        "backPressuredTimeMsPerSecond": (0, 0, 0, 0),
        "idleTimeMsPerSecond": (1_500, 750, 600, 900),
        "taskTimeSkew": (4, 4, 4, 4),
        "stateRows": (70, 70, 70, 70),
        "stateBytes": (7_000, 7_000, 7_000, 7_000),
        "watermarkLag": (3_600_000, 3_600_000, 3_600_000, 3_600_000),
        "currentInputWatermark": (T0_MS - 3_590_000,) * 4,
        "pendingRecords": (30, 30, 30, 30),
        "pendingRecords.words": (20, 20, 20, 20),
        "pendingRecords.more.words": (10, 10, 10, 10),
        "recordsLagMax": (15, 15, 15, 15),
        "pendingFiles": (3, 3, 3, 3),
        "pendingBytes": (900, 900, 900, 900),
        "Source__source.pendingRecords": (30, 30, 30, 30),
        "Source__source.numRecordsIn": (100, 50, None, None),
        "Source__source.numRecordsInPerSecond": (10, 5, None, None),
        "Source__source.numRecordsOut": (200, 100, None, None),
    }.items(),
)
def test_metrics_of_a_vertex(name: str, expected: tuple[float | None, ...]) -> None:
    found = told_all().metrics(10)[name]
    assert (found.sum, found.avg, found.min, found.max) == pytest.approx(expected)


def test_a_vertex_that_spark_does_not_tell_apart_is_busy_while_batches_run() -> None:
    batches = told_all()
    found = batches.metrics(10, batches.sink)
    busy, idle = found["busyTimeMsPerSecond"], found["idleTimeMsPerSecond"]
    assert (busy.avg, busy.max, idle.avg) == pytest.approx((1000, 1000, 0))
    assert not any(name.startswith("Source__") or name.endswith("pendingRecords") for name in found)
    assert batches.metrics(20, batches.sink)["busyTimeMsPerSecond"].max == pytest.approx(500)


def test_busy_idle_and_back_pressured_time_add_up_to_a_second() -> None:
    batches = Batches()
    batches.steady(100)
    for at_s in (99.5, 110, 150, 200):
        found = batches.metrics(at_s)
        times = [found[f"{name}TimeMsPerSecond"] for name in ("busy", "idle", "backPressured")]
        assert sum(each.avg for each in times) == pytest.approx(1000)
        assert all(0 <= value <= 1000 for each in times for value in (each.min, each.avg, each.max))  # type: ignore
    # Rows waited while no batch ran.
    assert batches.metrics(99.5)["backPressuredTimeMsPerSecond"].avg == pytest.approx(500, rel=0.05)


def test_only_aggregations_that_are_known_are_answered() -> None:
    metrics = {"a": Aggregates(4.0, 2.0), "b": Aggregates.of_one(3.0)}

    def answered(*wanted: str) -> list[dict[str, Any]]:
        return [
            one.model_dump(exclude_unset=True)
            for one in aggregated_metrics(metrics, ["a", "b", "no", "a"], wanted)
        ]

    assert answered("max", "sum") == [{"id": "a", "sum": 4.0}, {"id": "b", "sum": 3.0, "max": 3.0}]
    assert answered("min") == [{"id": "b", "min": 3.0}]
    assert answered("skew") == []
    assert [one.id for one in aggregated_metrics(metrics, None, ())] == ["a", "b"]


def test_metrics_of_a_job() -> None:
    found = job_metrics(told_all().view(), at_ms(10))
    expected = {
        "numRecordsInPerSecond": "10.0",
        "batchTimeMsPerSecond": "1000.0",
        "pendingRecords": "30",
        "watermarkLag": "3600000",
        "lastCheckpointDuration": "1000",
        "lastBatchDuration.addBatch": "900",
        "lastBatchDuration.commitOffsets": "40",
    }
    assert {name: found[name] for name in expected} == expected
    assert "pendingTimeMs" not in found, "a backlog that is known for ten seconds only"


def test_a_job_is_idle_once_all_its_queries_have_said_so_since_their_batches() -> None:
    batches = Batches()
    batches.batch(0, 2, 100)
    assert job_metrics(batches.view(), at_ms(3))["isIdle"] == "0"
    told = Report(1, at_ms(4), "idle", idle_queries=tuple(batches.graph.by_id))
    batches.load.note(told, 1, batches.graph, at_ms(4))
    assert job_metrics(batches.view(), at_ms(5))["isIdle"] == "1"
    batches.batch(5, 6, 100)
    assert job_metrics(batches.view(), at_ms(7))["isIdle"] == "0"


def executor(executor_id: str, used: int, gc_ms: int) -> ExecutorLoad:
    return ExecutorLoad(executor_id, "host", used, 400, gc_ms, 7, 1, 5, 1, 900)


def test_metrics_of_executors_are_over_those_of_all_jobs() -> None:
    views = []
    for used in (100, 300):
        batches = Batches()
        for second, gc_ms in ((0, 1_000), (5, 1_000 + used)):
            told = Report(1, at_ms(second), "executors", executor_loads=(executor("1", used, gc_ms),))
            batches.load.note(told, 1, batches.graph, at_ms(second))
        views.append(batches.view())
    found = executor_metrics(views, at_ms(6))
    assert found["Status.JVM.Memory.Heap.Used"] == Aggregates(400, 200, 100, 300)
    assert found["Status.JVM.Memory.Heap.Max"].max == 400
    assert found["Status.JVM.GarbageCollector.All.TimeMsPerSecond"] == Aggregates(80, 40, 20, 60)
    assert found["Status.JVM.Memory.Metaspace.Used"].max == found["Status.Flink.Memory.Managed.Used"].max == 0
    assert executor_metrics(views, at_ms(90))["Status.JVM.GarbageCollector.All.TimeMsPerSecond"].max == 0


def test_time_in_garbage_collection_is_by_the_clock_of_the_driver() -> None:
    """Reports that were kept while no server answered come at once."""
    batches = Batches()
    for second, gc_ms in ((0, 100), (5, 600), (10, 9_000)):
        told = Report(1, at_ms(second), "executors", executor_loads=(executor("1", 1, gc_ms),))
        batches.load.note(told, 1, batches.graph, at_ms(60) + second)
        shown = executor_metrics([batches.view()], at_ms(61))[
            "Status.JVM.GarbageCollector.All.TimeMsPerSecond"
        ]
        assert shown.max == {0: 0, 5: 100, 10: 1_000}[second]


def running_since(view: JobView) -> int:
    return job_details(view, at_ms(100), "/jobs/1/home").timestamps[JobStatus.RUNNING]


def test_a_window_of_metrics_begins_anew_when_the_job_is_rescaled_and_when_counters_do() -> None:
    batches = Batches()
    began_ms = running_since(batches.view())
    batches.job.wait(5_000).put(1, 1).wait(200).applied().commit()
    last = batches.job.state.timeline.last_completed
    assert last is not None and last.end_ms is not None and last.end_ms > began_ms
    assert running_since(batches.view()) == last.end_ms
    for status, moved in ((JobStatus.RUNNING, True), (JobStatus.RESTARTING, False)):
        taken_up = replace(batches.view(), load=Load(at_ms(90)), status=status)
        assert (running_since(taken_up) == at_ms(90)) is moved


def test_metrics_of_executors_are_never_missing() -> None:
    """Flink's autoscaler does nothing without them."""
    assert executor_metrics([], T0_MS).keys() == executor_metrics([Batches().view()], T0_MS).keys()

"""Rates of vertices: over a window that ends now, not at the last batch."""

from __future__ import annotations

import pytest

from app.api.render.metrics import job_metrics, vertex_metrics
from app.model.protocol import Report, VertexBatch
from app.model.status import JobStatus
from app.worker.job.batches_seen import BatchesSeen, with_batch
from app.worker.views import JobView
from tests.unit.scheduler.driving import T0_MS, Job

RATES = ("numRecordsInPerSecond", "numRecordsOutPerSecond", "busyTimeMsPerSecond")


class Batches:
    """What a job with one query reports; ``ahead_ms``: of the clock of its driver."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.job = Job().run()
        self.vertex = self.job.graph.vertices[0].id
        self.seen: BatchesSeen = {}
        self.count = 0
        self.ahead_ms = ahead_ms

    def batch(self, start_s: float, end_s: float, rows: int, *, late_s: float = 0.0) -> Batches:
        start_ms, end_ms = (T0_MS + round(second * 1000) for second in (start_s, end_s))
        work = VertexBatch(self.vertex, 2, 2, rows, 2 * rows, busy_ms=(end_ms - start_ms) // 2)
        report = Report(
            self.count,
            end_ms + self.ahead_ms,
            "batch",
            query_id="q",
            batch_id=self.count,
            started_ms=start_ms + self.ahead_ms,
            vertices=(work,),
            backlog_rows=7,
        )
        self.count += 1
        self.seen = with_batch(self.seen, report, end_ms + round(late_s * 1000))
        return self

    def steady(self, count: int, rows: int = 36, every_s: float = 1.0, takes_s: float = 0.5) -> Batches:
        for index in range(count):
            self.batch(index * every_s, index * every_s + takes_s, rows)
        return self

    def view(self) -> JobView:
        return JobView(self.job.state, JobStatus.RUNNING, T0_MS, None, None, 1, batches=self.seen)

    def rates(self, at_s: float) -> list[float]:
        values = vertex_metrics(self.view(), self.vertex, T0_MS + round(at_s * 1000))
        return [round(values[name][0], 1) for name in RATES]


def test_the_rate_of_steady_batches_is_that_of_what_came() -> None:
    records_in, records_out, busy = Batches().steady(200).rates(199.5)
    assert records_in == pytest.approx(36, rel=0.05)
    assert records_out == pytest.approx(72, rel=0.05)
    assert busy == pytest.approx(250, rel=0.05)


def test_the_first_batch_alone_has_its_own_rate() -> None:
    assert Batches().batch(0, 2, 100).rates(2) == [50.0, 100.0, 500.0]


def test_rates_fall_to_0_when_batches_stop() -> None:
    batches = Batches().steady(200)
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
    values = vertex_metrics(batches.view(), batches.vertex, T0_MS + 90_000)
    assert values["lastBatchTimestamp"][0] == T0_MS + 2_500
    assert values["pendingRecords"][0] == 7
    assert job_metrics(batches.view(), T0_MS + 90_000)["lastBatchTimestamp"] == str(T0_MS + 2_500)


def test_before_the_first_batch_there_is_nothing() -> None:
    batches = Batches()
    assert vertex_metrics(batches.view(), batches.vertex, T0_MS) == {}
    assert "lastBatchTimestamp" not in job_metrics(batches.view(), T0_MS)

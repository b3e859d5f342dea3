"""Batches as events: sums over all of them, and seldom."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from app.model.protocol import Report
from app.model.public_event import PublicEvent
from app.plugins.batch_samples import EVERY_MS, EVERY_MS_OF_ALL, BatchSamples
from tests.unit.scheduler.driving import T0_MS


class Batches:
    """Batches of one job, each of 100 ms with 5 rows."""

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self.samples = BatchSamples()
        self.told: list[PublicEvent] = []

    def batch(self, at_ms: int, attempt: int = 1, took_ms: int = 100, backlog: int | None = 7) -> None:
        report = Report(1, T0_MS, "batch", started_ms=T0_MS - took_ms, input_rows=5)
        event = self.samples.note(report, attempt, T0_MS + at_ms, backlog_rows=backlog, jobs=self.jobs)
        self.told += [] if event is None else [event]

    @property
    def fields(self) -> list[dict[str, Any]]:
        return [dict(event.fields) for event in self.told]


def test_the_first_batch_is_told_at_once_and_the_others_as_one_sum() -> None:
    batches = Batches()
    for number in range(121):
        batches.batch(1_000 * number, took_ms=900 if number == 30 else 100, backlog=number)
    assert [event.at_ms - T0_MS for event in batches.told] == [0, EVERY_MS, 2 * EVERY_MS]
    first, second, third = batches.fields
    assert first == {
        "attempt": 1,
        "batches": 1,
        "records": 5,
        "longestBatchInMillis": 100,
        "pendingRecords": 0,
        "sinceTimestampInMillis": T0_MS,
    }
    assert second == first | {
        "batches": 60,
        "records": 300,
        "longestBatchInMillis": 900,
        "pendingRecords": 60,
    }
    assert third["longestBatchInMillis"] == 100 and third["sinceTimestampInMillis"] == T0_MS + EVERY_MS


def test_an_attempt_begins_anew() -> None:
    batches = Batches()
    for at_ms, attempt in ((0, 1), (1_000, 1), (2_000, 2), (3_000, 2)):
        batches.batch(at_ms, attempt, backlog=None)
    told = [(one["attempt"], one["batches"], one["pendingRecords"]) for one in batches.fields]
    assert told == [(1, 1, None), (2, 1, None)]


def test_of_many_jobs_there_are_no_more_events() -> None:
    batches = Batches(jobs=500)
    for number in range(4_000):
        batches.batch(1_000 * number)
    apart = {later.at_ms - one.at_ms for one, later in pairwise(batches.told)}
    assert apart == {500 * EVERY_MS_OF_ALL}
    assert sum(one["batches"] for one in batches.fields) == 3_001

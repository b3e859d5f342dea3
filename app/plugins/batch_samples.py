"""Batches as events, sampled: one tells of all batches since the one before, and comes seldom (ADR 43)."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from app.api.plugin import Plugin
from app.load.reported import total_backlog
from app.model.protocol import Report
from app.model.public_event import PublicEvent, PublicEventType
from app.worker.job.job import Job

EVERY_MS: Final = 60_000
"""Between two of a job at least, but for the first one of an attempt."""
EVERY_MS_OF_ALL: Final = 2_000
"""Between two of a server on average, however many jobs it has."""


class BatchSamples:
    """Those of one job. Not durable: what was counted since the last event is lost with the server."""

    def __init__(self) -> None:
        self._attempt = 0
        self._since_ms = 0
        self._batches = self._rows = self._longest_ms = 0

    def note(
        self, report: Report, attempt: int, now_ms: int, *, backlog_rows: int | None, jobs: int
    ) -> PublicEvent | None:
        """Take note of a batch; the event that is due. ``backlog_rows``: of all queries. ``jobs``: of this server."""
        is_first = attempt != self._attempt
        if is_first:
            self._attempt, self._since_ms = attempt, now_ms
            self._batches = self._rows = self._longest_ms = 0
        self._batches += 1
        self._rows += report.input_rows
        self._longest_ms = max(self._longest_ms, report.at_ms - report.started_ms)
        if not is_first and now_ms - self._since_ms < max(EVERY_MS, EVERY_MS_OF_ALL * jobs):
            return None
        fields = {
            "attempt": attempt,
            "batches": self._batches,
            "records": self._rows,
            "longestBatchInMillis": self._longest_ms,
            "pendingRecords": backlog_rows,
            "sinceTimestampInMillis": self._since_ms,
        }
        self._since_ms = now_ms
        self._batches = self._rows = self._longest_ms = 0
        return PublicEvent(PublicEventType.BATCHES, now_ms, fields)


class SampledBatches(Plugin):
    """The samples of all jobs of a server, each for as long as the job is served."""

    def __init__(self) -> None:
        self._of_jobs: WeakKeyDictionary[Job, BatchSamples] = WeakKeyDictionary()

    def batch_reported(self, job: Job, attempt: int, report: Report, jobs: int) -> PublicEvent | None:
        samples = self._of_jobs.setdefault(job, BatchSamples())
        backlog_rows = total_backlog(job.load.queries.values())
        return samples.note(report, attempt, job.clock.now_ms(), backlog_rows=backlog_rows, jobs=jobs)

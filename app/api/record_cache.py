"""Rendered rescale history, kept while it is true.

A closed record never changes, so it is rendered once. A whole answer about the history of a job stays true as long as
the job's timeline is the same value: every record is written in the transaction that makes a new one. Only pruning by
age is not, which is why an answer is kept for a second at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from app.model.jobgraph import JobGraph
from app.model.rescale import Measured, RescaleRecord
from app.scheduler.adaptive.state import JobState, Timeline
from app.worker.views import JobView

_MAX_RECORDS = 4096
_MAX_ENDED_JOBS = 20_000
_MAX_ANSWERS_BYTES = 32 * 1024 * 1024
_LIFE_S = 1.0

_Stamp = tuple[int | None, Measured]


class RecordCache:
    """At most `_MAX_RECORDS` closed records, the least lately used ones dropped first."""

    def __init__(self, render: Callable[[RescaleRecord, JobGraph], bytes]) -> None:
        self._render = render
        self._kept: dict[str, tuple[_Stamp, bytes]] = {}

    def bytes_of(self, job_id: str, record: RescaleRecord, graph: JobGraph) -> bytes:
        """The record of a job as the history shows it."""
        if record.is_open:
            return self._render(record, graph)
        key = job_id + record.uuid
        kept = self._kept.pop(key, None)
        stamp = (record.end_ms, Measured.of(record))
        if kept is None or kept[0] != stamp:
            kept = (stamp, self._render(record, graph))
            if len(self._kept) >= _MAX_RECORDS:
                del self._kept[next(iter(self._kept))]
        self._kept[key] = kept
        return kept[1]


class EndedJobCache:
    """What the list of all jobs says of those that have ended, which never changes again."""

    def __init__(self, render: Callable[[JobView], bytes]) -> None:
        self._render = render
        self._kept: dict[str, tuple[JobState, bytes]] = {}

    def bytes_of(self, view: JobView) -> bytes | None:
        """None while the job has not ended."""
        if view.ended_ms is None or not view.status.is_globally_terminal:
            return None
        kept = self._kept.get(view.state.job_id)
        if kept is None or kept[0] is not view.state:
            kept = (view.state, self._render(view))
            if len(self._kept) >= _MAX_ENDED_JOBS:
                del self._kept[next(iter(self._kept))]
            self._kept[view.state.job_id] = kept
        return kept[1]


@dataclass(frozen=True, slots=True)
class _Answer:
    timeline: Timeline
    until: float
    response: Response


class AnswerCache:
    """At most `_MAX_ANSWERS_BYTES` of answers, the oldest ones dropped first."""

    def __init__(self) -> None:
        self._kept: dict[str, _Answer] = {}
        self._size_bytes = 0

    def find(self, key: str, timeline: Timeline) -> Response | None:
        """The answer under ``key`` if it still holds for ``timeline``."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.timeline is timeline and time.monotonic() < kept.until:
            return kept.response
        self._drop(key)
        return None

    def keep(self, key: str, timeline: Timeline, response: Response) -> Response:
        """Keep an answer. ``timeline`` is that of before the records were read: they may be newer, never older."""
        if key in self._kept:
            self._drop(key)
        size_bytes = len(response.body)
        while self._kept and self._size_bytes + size_bytes > _MAX_ANSWERS_BYTES:
            self._drop(next(iter(self._kept)))
        self._kept[key] = _Answer(timeline, time.monotonic() + _LIFE_S, response)
        self._size_bytes += size_bytes
        return response

    def _drop(self, key: str) -> None:
        self._size_bytes -= len(self._kept.pop(key).response.body)

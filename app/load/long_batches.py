"""Micro-batches that take long, as the driver tells of them while they run. Bounded, and not durable, as all load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from app.model.measured import BATCHES_TOLD, LongBatch
from app.model.protocol import Report

TEXT_KEPT: Final = 100
"""Characters of ids and names."""


@dataclass(frozen=True, slots=True)
class SeenLongBatch:
    """``since_ms``: when the batch began, ``seen_ms``: when the driver told of it last, by the clock of the server."""

    told: LongBatch
    since_ms: int
    seen_ms: int

    @property
    def waited_since_ms(self) -> int | None:
        """Since when a plan waits for its end, as far as the driver has said."""
        return self.seen_ms - self.told.waited_ms if self.told.waited_ms else None


class LongBatches:
    """Those of one attempt, the longest first."""

    def __init__(self) -> None:
        self._seen: dict[str, SeenLongBatch] = {}

    def __iter__(self) -> Iterator[SeenLongBatch]:
        return iter(self._seen.values())

    def has(self, query_id: str) -> bool:
        """Whether a batch of the query with this id of Spark's is known to run."""
        return any(seen.told.query_id == query_id for seen in self)

    def note(self, report: Report, known: Collection[str], now_ms: int) -> None:
        """Take note of what is told of them, and of what ends them. ``known``: the ids of the vertices of the job."""
        if report.long_batches is not None:
            own = (each for each in report.long_batches if each.query in known)
            self._seen = {each.query: self._as_seen(each, now_ms) for each in islice(own, BATCHES_TOLD)}
        match report.type:
            case "batch":
                query_id = report.query_id[:TEXT_KEPT]
                self._keep(lambda told: told.query_id != query_id or told.batch_id > report.batch_id)
            case "query-failed" | "query-ended":
                self._keep(lambda told: told.query != report.query)
            case "failed" | "stopped" | "finished":
                self._seen = {}

    def _keep(self, is_kept: Callable[[LongBatch], bool]) -> None:
        self._seen = {query: seen for query, seen in self._seen.items() if is_kept(seen.told)}

    def _as_seen(self, told: LongBatch, now_ms: int) -> SeenLongBatch:
        """The report that was least late says best when the batch began."""
        told = replace(told, query_id=told.query_id[:TEXT_KEPT], run_id=told.run_id[:TEXT_KEPT])
        since_ms, before = now_ms - told.ran_ms, self._seen.get(told.query)
        if before is not None and (before.told.run_id, before.told.batch_id) == (told.run_id, told.batch_id):
            since_ms = min(since_ms, before.since_ms)
        return SeenLongBatch(told, since_ms, now_ms)

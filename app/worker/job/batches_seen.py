"""The batches that a job has reported lately, from which its rates are made. Not durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.model.protocol import Report

WINDOW_MS: Final = 60_000
"""Rates are those of the last minute, as Flink's are. A longer batch than half of that has twice its time."""

_KEPT: Final = 32


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """``seen_ms``: when the report came, by the clock of the server. The times in it are by that of the driver."""

    report: Report
    seen_ms: int


BatchesSeen = Mapping[str, tuple[SeenBatch, ...]]
"""Per query id, oldest first."""


def with_batch(known: BatchesSeen, report: Report, now_ms: int) -> BatchesSeen:
    kept = (*known.get(report.query_id, ()), SeenBatch(report, now_ms))[-_KEPT:]
    return {**known, report.query_id: kept}


@dataclass(frozen=True, slots=True)
class Window:
    """The time up to now over which a query's rates are made: ``length_ms``, and how much of each batch is in it."""

    length_ms: int
    shares: tuple[tuple[Report, float], ...]


def window(batches: Sequence[SeenBatch], now_ms: int) -> Window:
    """The window over ``batches``, of which there is one at least. It begins with the oldest batch that is known.

    What a batch did is spread evenly over its time. The clock of the driver is set right by the report that came with
    the least delay: others may have waited for a server.
    """
    late_ms = min(one.seen_ms - one.report.at_ms for one in batches)
    spans = [(one.report, one.report.started_ms + late_ms, one.report.at_ms + late_ms) for one in batches]
    _, first_ms, _ = spans[0]
    _, last_start_ms, last_end_ms = spans[-1]
    length_ms = max(WINDOW_MS, 2 * (last_end_ms - last_start_ms))
    begin_ms = max(first_ms, now_ms - length_ms)
    shares = []
    for report, start_ms, end_ms in spans:
        took_ms = max(1, end_ms - start_ms)
        shares.append((report, max(0, min(took_ms, end_ms - begin_ms)) / took_ms))
    return Window(max(1, now_ms - begin_ms), tuple(shares))

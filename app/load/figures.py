"""Figures of a job's load over the last minute, from the batches in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import linear_regression
from typing import Final

from app.load.reported import Load, QueryLoad, Span

WINDOW_MS: Final = 60_000
"""Rates are those of the last minute, as Flink's are. A longer batch than half of that has twice its time."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time up to now over which rates are made: ``length_ms``, and how much of each span of batches is in it."""

    length_ms: int
    shares: tuple[tuple[Span, float], ...]

    def per_second(self, total: float) -> float:
        return total * 1000 / self.length_ms


def window(query: QueryLoad, now_ms: int) -> Window:
    """The window of a query. It begins with the oldest batch that is known, and is empty if none is.

    What batches did is spread evenly over their time.
    """
    if not query.spans:
        return Window(WINDOW_MS, ())
    late_ms = query.late_ms
    spans = [(span, span.start_ms + late_ms, span.end_ms + late_ms) for span in query.spans]
    _, first_ms, _ = spans[0]
    length_ms = max(WINDOW_MS, 2 * query.spans[-1].longest_batch_ms)
    begin_ms = max(first_ms, now_ms - length_ms)
    shares = []
    for span, start_ms, end_ms in spans:
        took_ms = max(1, end_ms - start_ms)
        shares.append((span, max(0, min(took_ms, end_ms - begin_ms)) / took_ms))
    return Window(max(1, now_ms - begin_ms), tuple(shares))


@dataclass(frozen=True, slots=True)
class VertexRates:
    """Of one vertex, per second, over all of its ``parallelism`` slots; None where Spark does not tell it.

    ``busy_ms`` and ``held_ms`` are of all slots, ``busiest_ms`` of the slot with the longest task of each batch.
    ``batch_ms``: while a batch of its query ran. ``skew``: how many times as long as the median task the longest takes.
    """

    parallelism: int
    batch_ms: float
    records_in: float | None = None
    records_out: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    busy_ms: float | None = None
    held_ms: float = 0.0
    busiest_ms: float | None = None
    skew: float | None = None

    @property
    def busy_ms_of_slot(self) -> float | None:
        """Of the average slot."""
        return None if self.busy_ms is None else self.busy_ms / self.parallelism


def vertex_rates(load: Load, vertex_id: str, now_ms: int) -> VertexRates | None:
    """None before the first batch of the vertex.

    One that is part of several queries reads its rows once for each: those of the query with most of them count.
    """
    found = [
        rates for query in load.queries.values() if (rates := _rates_in(query, vertex_id, now_ms)) is not None
    ]
    if len(found) <= 1:
        return found[0] if found else None
    most = max(found, key=lambda rates: (rates.records_out or 0.0, rates.records_in or 0.0))
    # It runs once in each of them, one after the other or not.
    batch_ms = min(1000.0, sum(rates.batch_ms for rates in found))
    if all(rates.busy_ms is None for rates in found):
        return replace(most, batch_ms=batch_ms)
    each_ms = [
        rates.batch_ms * rates.parallelism if rates.busy_ms is None else rates.busy_ms for rates in found
    ]
    busy_ms = min(1000.0 * most.parallelism, sum(each_ms))
    busiest_ms = None
    if any(rates.busiest_ms is not None for rates in found):
        longest_ms = sum(rates.busiest_ms or rates.busy_ms_of_slot or 0.0 for rates in found)
        busiest_ms = min(1000.0, busy_ms, max(longest_ms, busy_ms / most.parallelism))
    return replace(most, batch_ms=batch_ms, busy_ms=busy_ms, busiest_ms=busiest_ms)


def _rates_in(query: QueryLoad, vertex_id: str, now_ms: int) -> VertexRates | None:
    latest = next((each for each in query.latest.report.vertices if each.vertex_id == vertex_id), None)
    if latest is None:
        return None
    over = window(query, now_ms)
    known = query.attempt.get(vertex_id) or query.before.get(vertex_id)
    parallelism = max(1, latest.parallelism)
    done = [(span.work[vertex_id], share) for span, share in over.shares if share and vertex_id in span.work]

    def rate(name: str) -> float | None:
        if known is not None and getattr(known.work, name) is None:
            return None
        return over.per_second(sum(share * (getattr(work, name) or 0) for work, share in done))

    longest_ms, median_ms = rate("longest_task_ms"), rate("median_task_ms")
    # By slot: a rescale in the window changes their number.
    slot_busy_us = rate("slot_busy_us")
    busy_ms = None if slot_busy_us is None else min(1000.0, slot_busy_us / 1000) * parallelism
    held_ms = (rate("slot_held_ms") or 0.0) * parallelism
    busiest_ms = None
    if busy_ms is not None and longest_ms is not None:
        busiest_ms = min(1000.0, busy_ms, max(longest_ms, busy_ms / parallelism))
    return VertexRates(
        parallelism,
        min(1000.0, over.per_second(sum(share * span.batch_ms for span, share in over.shares))),
        rate("records_in"),
        rate("records_out"),
        rate("bytes_in"),
        rate("bytes_out"),
        busy_ms,
        min(held_ms, 1000.0 * parallelism - (busy_ms or 0.0)),
        busiest_ms,
        longest_ms / median_ms if longest_ms and median_ms else None,
    )


@dataclass(frozen=True, slots=True)
class QueryTrend:
    """How a query gets on with its input, over the last minute.

    ``growth_per_second``: by how many rows its backlog grows, below 0 if it falls; None while too little is known.
    ``batch_ms_per_second``: how much of the time a batch ran. ``quiet_ms``: since the last batch was told of.
    ``longest_batch_ms``, ``pause_ms``: of the batches that are known, and between them. ``is_estimated``: a part of the
    backlog is in files, whose rows nobody has counted.
    """

    rows_per_second: float
    backlog_rows: int | None
    growth_per_second: float | None
    rows_per_batch: float
    batch_ms_per_second: float
    longest_batch_ms: int
    quiet_ms: int
    pause_ms: int
    is_estimated: bool = False

    @property
    def arrival_per_second(self) -> float | None:
        """The rows that come to the sources."""
        if self.growth_per_second is None:
            return None
        return max(0.0, self.rows_per_second + self.growth_per_second)

    @property
    def backlog_ms(self) -> int | None:
        """The time in which the waiting rows have arrived at the sources; None if it is not known: so far, or because
        none arrive now."""
        if self.backlog_rows == 0:
            return 0
        arrival = self.arrival_per_second
        return round(1000 * self.backlog_rows / arrival) if self.backlog_rows and arrival else None


LEAST_TREND_MS: Final = 10_000
"""A backlog that was looked at for less long has no trend."""


def trend_of(query: QueryLoad, now_ms: int) -> QueryTrend:
    over = window(query, now_ms)
    inside = [(span, share) for span, share in over.shares if share > 0]
    # Those of before the window too: of a query that commits nothing any more there are no others.
    longest_ms = max((span.longest_batch_ms for span in query.spans), default=0)
    batch_ms = sum(span.batch_ms * share for span, share in inside)
    rows = sum(span.rows * share for span, share in inside)
    pauses = [later.start_ms - one.end_ms for one, later in pairwise(query.spans)]
    return QueryTrend(
        rows_per_second=over.per_second(rows),
        backlog_rows=query.spans[-1].backlog_rows if query.spans else None,
        growth_per_second=_growth([span for span, _ in inside]),
        rows_per_batch=rows * longest_ms / batch_ms if batch_ms else 0.0,
        batch_ms_per_second=min(1000.0, over.per_second(batch_ms)),
        longest_batch_ms=longest_ms,
        quiet_ms=max(0, now_ms - query.latest.seen_ms),
        pause_ms=max((0, *pauses)),
        is_estimated=any(each.backlog_files for each in query.latest.report.vertices),
    )


def _growth(spans: Sequence[Span]) -> float | None:
    """By how many rows per second the backlog grows: the slope of the straight line that fits it best."""
    points = [(span.end_ms, span.backlog_rows) for span in spans if span.backlog_rows is not None]
    if len(points) < 2 or points[-1][0] - points[0][0] < LEAST_TREND_MS:
        return None
    times_ms, rows = zip(*points, strict=True)
    return 1000 * linear_regression(times_ms, rows).slope

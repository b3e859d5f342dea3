"""Sentences on the load of a job: whether it falls behind, which vertex limits it, skew, missing batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from app.load.figures import QueryTrend, VertexRates, trend_of, vertex_rates
from app.load.reported import Load
from app.model.jobgraph import JobGraph
from app.model.measured import IntakeReason, VertexBatch
from app.model.sentences import duration_in_words

LIMITED_MS: Final = 800
"""A query whose batches run for at least this many ms of each second is limited by their duration."""
WORKS: Final = 0.5
"""If tasks work for less than this part of the time of batches, it is not a vertex that limits the query."""
GROWS: Final = 0.05
"""A backlog that grows by less than this part of what arrives counts as one that stays."""
QUIET_LEAST_MS: Final = 10_000
SKEW_LEAST: Final = 2.0
SKEW_BUSIEST_MS: Final = 100
"""Milliseconds per second. In a vertex whose longest tasks take less, skew delays nothing."""


_WHY: Final[dict[IntakeReason, str]] = {
    "no-admission-control": "Spark cannot tell this source how much to give",
    "own-limit": "its options decide how much it gives",
    "keeps-time": "their size decides which rows are late, so it is limited only if the job sets slotwise.batch.target",
}


@dataclass(frozen=True, slots=True)
class VertexLoad:
    """A vertex of a query as sentences need it. ``tasks``: those of its stage in the last batch; None: not known."""

    name: str
    upper: int
    rates: VertexRates
    tasks: int | None = None

    @property
    def working(self) -> int:
        """How many tasks have something to do."""
        parallelism = self.rates.parallelism
        return parallelism if self.tasks is None else max(1, min(self.tasks, parallelism))

    @property
    def works_ms(self) -> float:
        """Per second, of the average of those tasks."""
        return min(1000.0, (self.rates.busy_ms or 0.0) / self.working)


def load_sentences(load: Load, graph: JobGraph, upper: dict[str, int], now_ms: int) -> list[str]:
    """Of a running STREAMING job: what is to be said of each query, if there is anything. ``upper``: upper bounds."""
    found: list[str] = []
    # Once for each vertex, of however many queries it is part.
    rates_of = cache(lambda vertex_id: vertex_rates(load, vertex_id, now_ms))
    for query in load.queries.values():
        if not query.spans:
            continue
        vertices = [
            VertexLoad(vertex.name, upper.get(vertex.id, vertex.parallelism), rates, each.tasks)
            for each in query.latest.report.vertices
            if (vertex := graph.by_id.get(each.vertex_id)) is not None
            if (rates := rates_of(vertex.id)) is not None
        ]
        name = vertices[-1].name if len(load.queries) > 1 and vertices else ""
        trend = trend_of(query, now_ms)
        is_idle = load.is_idle(query)
        if not is_idle and load.long_batches.has(query.latest.report.query_id) and quiet_sentence(trend):
            # That batch is told of, and what the last minute was like says nothing any more.
            continue
        found += query_sentences(trend, vertices, query=name, is_idle=is_idle)
        if not is_idle:
            found += spread_sentences(query.latest.report.vertices, graph)
            found += intake_sentences(query.latest.report.vertices, graph)
    return found


def query_sentences(
    trend: QueryTrend, vertices: Sequence[VertexLoad], *, query: str = "", is_idle: bool = False
) -> list[str]:
    """``query``: its sink, if the job has several queries; ``is_idle``: it has said since that there are no data."""
    quiet = None if is_idle else quiet_sentence(trend, query)
    if quiet is not None:
        # What the last minute was like says nothing any more.
        return [quiet]
    backlog = backlog_sentence(trend, query)
    found = [backlog]
    # Batches follow each other without a pause in a job that keeps up too: then nothing limits it.
    is_limited = backlog is not None or trend.backlog_rows is None
    works_ms = sum(each.rates.busiest_ms or each.rates.busy_ms_of_slot or 0.0 for each in vertices)
    if works_ms < WORKS * trend.batch_ms_per_second:
        found.append(overhead_sentence(trend, works_ms) if is_behind(trend) else None)
    elif is_behind(trend) or (is_limited and trend.batch_ms_per_second >= LIMITED_MS):
        found += [bottleneck_sentence(vertices), skew_sentence(vertices)]
    return [sentence for sentence in found if sentence is not None]


def quiet_sentence(trend: QueryTrend, query: str = "") -> str | None:
    """No batch has come for much longer than batches and the pauses between them have taken."""
    if trend.quiet_ms < max(QUIET_LEAST_MS, 5 * (trend.longest_batch_ms + trend.pause_ms)):
        return None
    waiting = ""
    if trend.backlog_rows:
        waiting = f" {rows_in_words(trend.backlog_rows)} waited at its sources then."
    return (
        f"{_subject(query)} has committed no batch for {duration_in_words(trend.quiet_ms)}, and before that one took "
        f"{duration_in_words(trend.longest_batch_ms)} at most: a source does not answer, a batch hangs, or there is "
        f"nothing to read.{waiting}"
    )


def is_behind(trend: QueryTrend) -> bool:
    """More rows come than are processed, and more rows wait than one batch reads."""
    growth, arrival = trend.growth_per_second, trend.arrival_per_second
    if growth is None or arrival is None or trend.backlog_rows is None:
        return False
    return growth > max(1.0, GROWS * arrival) and trend.backlog_rows > trend.rows_per_batch


def backlog_sentence(trend: QueryTrend, query: str = "") -> str | None:
    growth, arrival, backlog = trend.growth_per_second, trend.arrival_per_second, trend.backlog_rows
    if growth is None or arrival is None or not backlog or backlog <= trend.rows_per_batch:
        return None
    waits = f"{'about ' if trend.is_estimated else ''}{rows_in_words(backlog)} wait at its sources"
    if trend.backlog_ms is not None:
        waits += f", which is {duration_in_words(trend.backlog_ms)} of input"
    if is_behind(trend):
        return (
            f"{_subject(query)} falls behind by {rows_in_words(growth)} per second: {number(arrival)} come and "
            f"{number(trend.rows_per_second)} are processed; {waits}."
        )
    if growth < -max(1.0, GROWS * arrival):
        left_ms = round(1000 * backlog / -growth)
        done = f"and are worked off in {duration_in_words(left_ms)} at this rate"
        return f"{_subject(query)} catches up: {waits}, {done}."
    return f"{_subject(query)} does not catch up: {waits}, and their number stays about the same."


def spread_sentences(batches: Sequence[VertexBatch], graph: JobGraph) -> list[str]:
    """On the sources of a query that had too few parts in its last batch."""
    return [
        f"Rows of {each.vertex_id if vertex is None else vertex.name} are spread over {each.parallelism} tasks behind "
        f"it, because it had only {'1 part' if each.spread_parts == 1 else f'{each.spread_parts} parts'}."
        for each in batches
        if each.spread_parts is not None
        for vertex in [graph.by_id.get(each.vertex_id)]
    ]


def intake_sentences(batches: Sequence[VertexBatch], graph: JobGraph) -> list[str]:
    """On the sources of a query whose batches are kept short, or should be."""
    found = []
    for each in batches:
        vertex = graph.by_id.get(each.vertex_id)
        name = each.vertex_id if vertex is None else vertex.name
        if each.intake_limit is not None:
            found.append(
                f"{name} gives at most {each.intake_limit:,} {each.intake_unit} to the next batch: more would take "
                "longer than slotwise.batch.target."
            )
        elif each.intake_why:
            found.append(
                f"Batches take longer than they should, and have all that waits at {name}: {_WHY[each.intake_why]}."
            )
    return found


def bottleneck_sentence(vertices: Sequence[VertexLoad]) -> str | None:
    """The vertex whose tasks work for most of the time. One after another, they make the time of a batch."""
    busy = sorted(vertices, key=lambda each: each.works_ms)
    if not busy or busy[-1].works_ms < 1:
        return None
    vertex = busy.pop()
    rates, working = vertex.rates, vertex.working
    tasks = "its task works" if working == 1 else f"each of its {working} tasks works"
    sentence = f"{vertex.name} limits it: {tasks} {vertex.works_ms:.0f} ms of each second"
    if busy:
        other = busy.pop()
        sentence += (
            f", more than those of any other vertex ({other.name} is next with {other.works_ms:.0f} ms)"
        )
    if working < rates.parallelism:
        return (
            f"{sentence}. Its last batch ran as {working} of {rates.parallelism} tasks: with so few files or "
            "partitions more tasks do not help, unless its rows are spread (slotwise.source.spread)."
        )
    if rates.parallelism < vertex.upper:
        return f"{sentence}. Its upper bound is {vertex.upper}."
    return f"{sentence}. It runs at its upper bound."


def overhead_sentence(trend: QueryTrend, works_ms: float) -> str:
    """The time of batches goes by without tasks: Spark plans and commits each batch, however few rows it has."""
    return (
        f"No vertex limits it: batches run for {trend.batch_ms_per_second:.0f} ms of each second, and tasks work in "
        f"{works_ms:.0f} of them. The rest is Spark's own time for each batch, which no parallelism shortens: fewer "
        "batches with more rows each need less of it."
    )


def skew_sentence(vertices: Sequence[VertexLoad]) -> str | None:
    """The vertex with the most uneven tasks, if that delays batches."""
    skewed = [
        (each.rates.skew, each.name)
        for each in vertices
        if each.rates.skew is not None
        and each.rates.skew >= SKEW_LEAST
        and (each.rates.busiest_ms or 0.0) >= SKEW_BUSIEST_MS
    ]
    if not skewed:
        return None
    skew, name = max(skewed)
    return (
        f"{name} is skewed: its longest task takes {skew:.1f} times as long as the median one, so a higher parallelism "
        "helps less than it should."
    )


def _subject(query: str) -> str:
    return f"The query of {query}" if query else "The job"


def number(value: float) -> str:
    """With as many digits as matter."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def rows_in_words(value: float) -> str:
    return "1 row" if value == 1 else f"{number(value)} rows"

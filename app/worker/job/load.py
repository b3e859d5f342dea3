"""What the drivers of a job have told of its load: counters, the batches of the last minute, executors.

None of it is durable: a server that starts, or takes the job over, begins at 0. It is bounded whatever drivers report
(docs/metrics.md has the sums): per query the vertices of the graph, and so many spans of batches; so many queries,
executors and phases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.model.jobgraph import JobGraph, JobVertex
from app.model.protocol import ExecutorLoad, Report, VertexBatch
from app.worker.job.load_steps import LoadSteps

SPANS_KEPT: Final = 32
SPAN_MS: Final = 2_000
"""Batches that end within so long of the start of a span are added to it: the spans kept are more than a minute."""
QUERIES_KEPT: Final = 100
EXECUTORS_KEPT: Final = 1_000
PHASES_KEPT: Final = 20


class Work(NamedTuple):
    """What a vertex did in some batches. None: of none of them it is known."""

    records_in: int | None = None
    records_out: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    busy_ms: int | None = None
    longest_task_ms: int | None = None
    median_task_ms: int | None = None

    def plus(self, other: Work) -> Work:
        return Work(*map(_sum, self, other))

    @property
    def unknown(self) -> frozenset[str]:
        if None not in self:
            return _NOTHING
        return frozenset(name for name, value in zip(self._fields, self, strict=True) if value is None)


_NO_WORK: Final = Work()
_NOTHING: Final[frozenset[str]] = frozenset()


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def work_of(batch: VertexBatch, vertex: JobVertex) -> Work:
    """A source reads what it hands on, if nothing else is said. Of task times there is a ratio, or nothing."""
    records_in = batch.records_in
    if records_in is None and vertex.is_source:
        records_in = batch.records_out
    longest_ms, median_ms = batch.longest_task_ms, batch.median_task_ms
    if longest_ms is None or median_ms is None:
        longest_ms = median_ms = None
    return Work(
        records_in, batch.records_out, batch.bytes_in, batch.bytes_out, batch.busy_ms, longest_ms, median_ms
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """Since some moment. ``unknown``: of these figures some batch that had rows told nothing, so they are too small.

    ``idle_ms``, ``held_ms``: of all slots of the vertex, up to the end of the last batch. Held is a source that had
    rows to read while no batch ran.
    """

    work: Work = _NO_WORK
    idle_ms: int = 0
    held_ms: int = 0
    unknown: frozenset[str] = frozenset()
    batches: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.work.plus(other.work),
            self.idle_ms + other.idle_ms,
            self.held_ms + other.held_ms,
            self.unknown | other.unknown,
            self.batches + other.batches,
        )

    def is_complete(self, name: str) -> bool:
        return self.batches > 0 and name not in self.unknown


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """``seen_ms``: when the report came, by the clock of the server. The times in it are by that of the driver."""

    report: Report
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Span:
    """Batches that followed each other closely, by the clock of the driver; ``late_ms`` is how far the server's clock
    was ahead of it at most. ``batch_ms``: while a batch ran; ``held_ms``: while none did, although rows waited.
    ``backlog_rows``: those that waited at the end."""

    start_ms: int
    end_ms: int
    late_ms: int
    rows: int
    batch_ms: int
    held_ms: int
    longest_batch_ms: int
    backlog_rows: int | None
    work: Mapping[str, Work]

    def with_next(self, later: Span) -> Span:
        work = dict(self.work)
        for vertex_id, done in later.work.items():
            before = work.get(vertex_id)
            work[vertex_id] = done if before is None else before.plus(done)
        return Span(
            self.start_ms,
            later.end_ms,
            min(self.late_ms, later.late_ms),
            self.rows + later.rows,
            self.batch_ms + later.batch_ms,
            self.held_ms + later.held_ms,
            max(self.longest_batch_ms, later.longest_batch_ms),
            later.backlog_rows,
            work,
        )


@dataclass(slots=True)
class QueryLoad:
    """One query: its latest batch, the spans of the present attempt, oldest first, and what its vertices did in this
    attempt and in those before."""

    latest: SeenBatch
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=SPANS_KEPT))
    attempt: dict[str, Totals] = field(default_factory=dict)
    before: dict[str, Totals] = field(default_factory=dict)

    @property
    def late_ms(self) -> int:
        """How far the clock of the server is ahead of the driver's: reports may have waited for a server, so the one
        with the least delay says it."""
        seen = self.latest
        return min((span.late_ms for span in self.spans), default=seen.seen_ms - seen.report.at_ms)

    def begin_attempt(self, known: Collection[str]) -> None:
        """Vertices that the job has no more, in its present version, are forgotten."""
        for vertex_id, totals in self.attempt.items():
            self.before[vertex_id] = self.before.get(vertex_id, Totals()) + totals
        self.before = {vertex_id: totals for vertex_id, totals in self.before.items() if vertex_id in known}
        self.attempt = {}
        self.spans.clear()

    def note(self, seen: SeenBatch, known: Mapping[str, JobVertex]) -> Span:
        """Add a batch; the span that it is by itself."""
        report = seen.report
        last = self.spans[-1] if self.spans else None
        gap_ms = 0 if last is None else max(0, report.started_ms - last.end_ms)
        held_ms = gap_ms if last is not None and last.backlog_rows else 0
        told = {
            each.vertex_id: (each, work_of(each, known[each.vertex_id]))
            for each in report.vertices
            if each.vertex_id in known
        }
        took_ms = max(0, report.at_ms - report.started_ms)
        span = Span(
            start_ms=min(report.started_ms, report.at_ms),
            end_ms=report.at_ms,
            late_ms=seen.seen_ms - report.at_ms,
            rows=report.input_rows,
            batch_ms=took_ms,
            held_ms=held_ms,
            longest_batch_ms=took_ms,
            backlog_rows=report.backlog_rows,
            work={vertex_id: work for vertex_id, (_, work) in told.items()},
        )
        for vertex_id, (batch, work) in told.items():
            held_here_ms = held_ms * batch.parallelism if known[vertex_id].is_source else 0
            whole_ms = (gap_ms + took_ms) * batch.parallelism
            totals = Totals(
                work,
                max(0, whole_ms - held_here_ms - (work.busy_ms or 0)),
                held_here_ms,
                work.unknown if report.input_rows > 0 else _NOTHING,
                1,
            )
            before = self.attempt.get(vertex_id)
            self.attempt[vertex_id] = totals if before is None else before + totals
        if last is not None and last.start_ms <= report.at_ms <= last.start_ms + SPAN_MS:
            self.spans[-1] = last.with_next(span)
        else:
            self.spans.append(span)
        self.latest = seen
        return span


@dataclass(frozen=True, slots=True)
class ExecutorsLoad:
    """What was told last of the executors, and before that, by the clock of the server."""

    seen_ms: int
    now: tuple[ExecutorLoad, ...]
    before_ms: int = 0
    before: tuple[ExecutorLoad, ...] = ()


class Load:
    """Of one job. It changes with each report, on the event loop: who is shown it reads it at once.

    ``since_ms``: when this server began to count.
    """

    def __init__(self, since_ms: int = 0) -> None:
        self.since_ms = since_ms
        self.attempt = 0
        self.queries: dict[str, QueryLoad] = {}
        self.executors: ExecutorsLoad | None = None
        self.idle_sinks: frozenset[str] = frozenset()
        self.idle_ms = 0
        self.steps = LoadSteps()

    def is_idle(self, query: QueryLoad) -> bool:
        """Whether it has said since its last batch that there is nothing to do."""
        own = {each.vertex_id for each in query.latest.report.vertices}
        return self.idle_ms >= query.latest.seen_ms and not own.isdisjoint(self.idle_sinks)

    @property
    def latest(self) -> dict[str, SeenBatch]:
        """The latest batch per query id."""
        return {query_id: query.latest for query_id, query in self.queries.items()}

    @property
    def last_batch_ms(self) -> int | None:
        """When the last batch was told of, by the clock of the server."""
        return max((query.latest.seen_ms for query in self.queries.values()), default=None)

    def note(self, report: Report, attempt: int, graph: JobGraph, now_ms: int) -> None:
        """Take note of what ``attempt`` reports."""
        if attempt != self.attempt:
            self.attempt, self.executors, self.idle_sinks = attempt, None, frozenset()
            for query in self.queries.values():
                query.begin_attempt(graph.by_id)
        if report.executor_loads:
            known = self.executors
            self.executors = ExecutorsLoad(
                now_ms,
                report.executor_loads[:EXECUTORS_KEPT],
                known.seen_ms if known else 0,
                known.now if known else (),
            )
        if report.type == "executors":
            self.idle_sinks = frozenset(report.idle_queries).intersection(graph.by_id)
            self.idle_ms = now_ms
        if report.type == "batch":
            self._note_batch(SeenBatch(report, now_ms), graph)

    def end(self) -> None:
        """The job is over: its counters are all that is shown any more."""
        for query in self.queries.values():
            query.spans.clear()
        self.executors, self.steps = None, LoadSteps()

    def _note_batch(self, seen: SeenBatch, graph: JobGraph) -> None:
        report = seen.report
        query = self.queries.pop(report.query_id, None) or QueryLoad(seen)
        # The one that had a batch last stands last.
        self.queries[report.query_id] = query
        while len(self.queries) > QUERIES_KEPT:
            del self.queries[next(iter(self.queries))]
        span = query.note(seen, graph.by_id)
        late_ms = query.late_ms
        parallelism = {each.vertex_id: max(1, each.parallelism) for each in report.vertices}
        self.steps.note(
            span.start_ms + late_ms,
            span.end_ms + late_ms,
            rows=span.rows,
            backlog_rows=total_backlog(self.queries.values()),
            busy_ms={
                vertex_id: work.busy_ms / parallelism[vertex_id]
                for vertex_id, work in span.work.items()
                if work.busy_ms is not None
            },
        )

    def totals(self, vertex_id: str, *, whole_life: bool) -> Totals | None:
        """What a vertex did in the present attempt, or since this server has had the job; None if nothing is known.

        Of a vertex that is part of several queries each figure is that of the query with most of it, since each of them
        reads the rows; its time is the sum.
        """
        found = []
        for query in self.queries.values():
            parts = [query.attempt.get(vertex_id), query.before.get(vertex_id) if whole_life else None]
            if known := [part for part in parts if part is not None]:
                found.append(sum(known, Totals()))
        return _of_queries(found)


def total_backlog(queries: Iterable[QueryLoad]) -> int | None:
    """The rows that wait at the sources of all queries; None if of none of them it is known."""
    known = [rows for query in queries if query.spans and (rows := query.spans[-1].backlog_rows) is not None]
    return sum(known) if known else None


def _of_queries(found: list[Totals]) -> Totals | None:
    if len(found) <= 1:
        return found[0] if found else None
    figures = [
        max((value for value in values if value is not None), default=None)
        for values in zip(*(each.work for each in found), strict=True)
    ]
    return Totals(
        Work(*figures)._replace(busy_ms=sum(each.work.busy_ms or 0 for each in found)),
        max(each.idle_ms for each in found),
        max(each.held_ms for each in found),
        frozenset().union(*(each.unknown for each in found)),
        max(each.batches for each in found),
    )

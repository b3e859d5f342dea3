"""The load that the drivers of a job have reported: counters, the batches of the last minute, executors.

None of it is durable: it begins at 0 when a server starts or takes over the job. Its size is bounded for all
reports of drivers (docs/metrics.md has the sums): vertices, batches, queries, executors and phases are limited
in number, and texts in length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from app.load.long_batches import TEXT_KEPT, LongBatches
from app.load.steps import LoadSteps
from app.load.subtasks import QuerySubtasks, Subtasks, tasks_in
from app.load.vertex_work import NO_TOTALS, NOTHING, Totals, Work, of_queries, work_of
from app.model.jobgraph import JobGraph, JobVertex
from app.model.measured import TASKS_TOLD, TOPICS_TOLD, ExecutorLoad, TaskWork, VertexBatch
from app.model.protocol import Report

SPANS_KEPT: Final = 64
SPAN_MS: Final = 2_000
"""Batches that end within so long of the start of a span are added to it. Two spans in a row
take longer than that, so those kept are more than a minute."""
QUERIES_KEPT: Final = 100
VERTICES_KEPT: Final = 2_000
"""Of all queries together, which may have vertices in common."""
EXECUTORS_KEPT: Final = 1_000
PHASES_KEPT: Final = 20
TOPIC_KEPT: Final = 249
"""Characters of the name of a topic: Kafka allows no more."""


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """``seen_ms``: when the report came, by the clock of the server. The times in it are by that of the driver."""

    report: Report
    seen_ms: int

    @classmethod
    def of(cls, report: Report, known: Collection[str], seen_ms: int) -> SeenBatch:
        """With what is shown of ``report``, which may be of megabytes: each of the ``known`` vertices once.

        A batch begins when Spark begins to plan it. The driver sees it, and reports its start, after that.
        """
        took_ms = report.phases_ms.get("triggerExecution")
        vertices = {each.vertex_id: _kept(each) for each in report.vertices if each.vertex_id in known}
        kept = Report(
            report.seq,
            report.at_ms,
            report.type,
            plan_version=report.plan_version,
            query_id=report.query_id[:TEXT_KEPT],
            run_id=report.run_id[:TEXT_KEPT],
            batch_id=report.batch_id,
            started_ms=report.started_ms if took_ms is None else report.at_ms - took_ms,
            input_rows=report.input_rows,
            state_rows=report.state_rows,
            backlog_rows=report.backlog_rows,
            vertices=tuple(vertices.values()),
            watermark_ms=report.watermark_ms,
            phases_ms={
                name[:TEXT_KEPT]: took_ms for name, took_ms in islice(report.phases_ms.items(), PHASES_KEPT)
            },
        )
        return cls(kept, seen_ms)

    def backlog_at(self, vertex_id: str) -> int | None:
        """The rows that wait at a source: its own, or those of its query, if it tells them only together."""
        own = (each.backlog_rows for each in self.report.vertices if each.vertex_id == vertex_id)
        rows = next(own, None)
        return self.report.backlog_rows if rows is None else rows


def _kept(batch: VertexBatch) -> VertexBatch:
    """With no more topics than are kept, and no figures by task, which are added up elsewhere."""
    if batch.by_task is not None:
        batch = replace(batch, by_task=None)
    topics = batch.backlog_rows_by_topic
    if not topics:
        return batch
    kept = {name[:TOPIC_KEPT]: rows for name, rows in islice(topics.items(), TOPICS_TOLD)}
    return replace(batch, backlog_rows_by_topic=kept)


@dataclass(frozen=True, slots=True)
class Span:
    """Batches that followed each other closely, by the clock of the driver; ``late_ms`` is how far the server's clock
    was ahead of it at most. ``batch_ms``: while a batch ran. ``backlog_rows``: those that waited at the end."""

    start_ms: int
    end_ms: int
    late_ms: int
    rows: int
    batch_ms: int
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
            max(self.longest_batch_ms, later.longest_batch_ms),
            later.backlog_rows,
            work,
        )


@dataclass(slots=True)
class QueryLoad:
    """One query: its latest batch, the spans of the present attempt, oldest first, and what its vertices did in this
    attempt and in those before. ``sink``: the id of its vertex, once a batch has told of it."""

    latest: SeenBatch
    sink: str | None = None
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=SPANS_KEPT))
    attempt: dict[str, Totals] = field(default_factory=dict)
    before: dict[str, Totals] = field(default_factory=dict)
    subtasks: QuerySubtasks = field(default_factory=QuerySubtasks)

    @property
    def size(self) -> int:
        return max(len(self.attempt), len(self.before))

    @property
    def late_ms(self) -> int:
        """How far the clock of the server is ahead of the driver's: reports may have waited for a server, so the one
        with the least delay says it."""
        seen = self.latest
        return min((span.late_ms for span in self.spans), default=seen.seen_ms - seen.report.at_ms)

    def begin_attempt(self, known: Collection[str]) -> None:
        """Vertices that the job has no more, in its present version, are forgotten."""
        for vertex_id, totals in self.attempt.items():
            self.before[vertex_id] = self.before.get(vertex_id, NO_TOTALS) + totals
        self.before = {vertex_id: totals for vertex_id, totals in self.before.items() if vertex_id in known}
        self.attempt = {}
        self.subtasks = QuerySubtasks()
        self.spans.clear()

    def note(
        self,
        seen: SeenBatch,
        known: Mapping[str, JobVertex],
        by_task: Mapping[str, TaskWork],
        room: Callable[[], int],
    ) -> Span:
        """Add a batch; the span that it is by itself. ``by_task``: what the tasks of its vertices did, by vertex id.
        ``room``: for how many more subtasks there is room."""
        report = seen.report
        last = self.spans[-1] if self.spans else None
        gap_ms = 0 if last is None else max(0, report.started_ms - last.end_ms)
        took_ms = max(0, report.at_ms - report.started_ms)
        work = {}
        for batch in report.vertices:
            vertex = known[batch.vertex_id]
            held_ms = gap_ms if vertex.is_source and self.latest.backlog_at(vertex.id) else 0
            done = work[vertex.id] = work_of(batch, vertex, held_ms)
            before = self.attempt.get(vertex.id, NO_TOTALS)
            slots = max(1, batch.parallelism)
            busy_ms = took_ms * slots
            if done.busy_ms is not None or before.work.busy_ms is not None:
                busy_ms = min(busy_ms, done.busy_ms or 0)
            self.attempt[vertex.id] = before + Totals(
                done,
                busy_ms,
                (gap_ms - held_ms + took_ms) * slots - busy_ms,
                held_ms * slots,
                done.unknown if report.input_rows > 0 else NOTHING,
                1,
            )
            self.subtasks.note(
                batch,
                by_task.get(vertex.id),
                report,
                took_ms=gap_ms + took_ms,
                held_ms=held_ms,
                room=room,
            )
        span = Span(
            start_ms=min(report.started_ms, report.at_ms),
            end_ms=report.at_ms,
            late_ms=seen.seen_ms - report.at_ms,
            rows=report.input_rows,
            batch_ms=took_ms,
            longest_batch_ms=took_ms,
            backlog_rows=report.backlog_rows,
            work=work,
        )
        if last is not None and last.start_ms <= report.at_ms <= last.start_ms + SPAN_MS:
            self.spans[-1] = last.with_next(span)
        else:
            self.spans.append(span)
        self.latest = seen
        return span


@dataclass(frozen=True, slots=True)
class ExecutorsLoad:
    """What was told last of the executors. ``seen_ms``: by the clock of the server; ``at_ms``: by that of the driver.
    ``gc_ms_before``: what was told before that, at ``before_ms``, by their ids."""

    seen_ms: int
    at_ms: int
    now: tuple[ExecutorLoad, ...]
    before_ms: int = 0
    gc_ms_before: Mapping[str, int] = field(default_factory=dict)


class Load:
    """Of one job. It changes with each report, on the event loop: who is shown it reads it at once.

    ``since_ms``: when this server began to count.
    """

    def __init__(self, since_ms: int = 0) -> None:
        self.since_ms = since_ms
        self.attempt = 0
        self.queries: dict[str, QueryLoad] = {}
        self._gone: dict[str, Totals] = {}
        self.executors: ExecutorsLoad | None = None
        self.long_batches = LongBatches()
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

    def note(
        self, report: Report, attempt: int, graph: JobGraph, now_ms: int, newest_ms: int | None = None
    ) -> None:
        """Take note of what ``attempt`` reports. ``newest_ms``: the time of the newest of the reports that came
        together, which says most of how far the clocks are apart; None if it came alone."""
        if attempt != self.attempt:
            self.attempt, self.executors, self.idle_sinks = attempt, None, frozenset()
            self.long_batches = LongBatches()
            self._begin_attempt(graph)
        if report.executor_loads:
            known = self.executors
            self.executors = ExecutorsLoad(
                now_ms,
                report.at_ms,
                tuple(
                    replace(each, executor_id=each.executor_id[:TEXT_KEPT], host=each.host[:TEXT_KEPT])
                    for each in report.executor_loads[:EXECUTORS_KEPT]
                ),
                known.at_ms if known else 0,
                {each.executor_id: each.gc_ms for each in known.now} if known else {},
            )
        self.long_batches.note(report, graph.by_id, now_ms)
        if report.idle_queries is not None:
            self.idle_sinks = frozenset(report.idle_queries).intersection(graph.by_id)
            self.idle_ms = now_ms
        if report.type == "batch":
            late_ms = now_ms - (report.at_ms if newest_ms is None else newest_ms)
            self._note_batch(SeenBatch.of(report, graph.by_id, now_ms), graph, late_ms, tasks_in(report))

    def _begin_attempt(self, graph: JobGraph) -> None:
        """Queries of an earlier version whose sinks the job has no more are forgotten."""
        self._gone = {
            vertex_id: totals for vertex_id, totals in self._gone.items() if vertex_id in graph.by_id
        }
        for query_id, query in list(self.queries.items()):
            query.begin_attempt(graph.by_id)
            if query.sink is not None and query.sink not in graph.by_id:
                self._forget(query_id)

    def _forget(self, query_id: str) -> None:
        """The counters of its vertices do not fall."""
        query = self.queries.pop(query_id)
        query.begin_attempt({*query.attempt, *query.before})
        for vertex_id, totals in query.before.items():
            others = [self._gone[vertex_id]] if vertex_id in self._gone else []
            self._gone[vertex_id] = of_queries([totals, *others]) or totals

    def end(self) -> None:
        """The job is over: its counters are all that is shown any more."""
        for query in self.queries.values():
            query.spans.clear()
        self.executors, self.long_batches, self.steps = None, LongBatches(), LoadSteps()

    def _note_batch(
        self, seen: SeenBatch, graph: JobGraph, late_ms: int, by_task: Mapping[str, TaskWork]
    ) -> None:
        query = self._take_out(seen, graph)
        # The one that had a batch last stands last.
        self.queries[seen.report.query_id] = query
        span = query.note(seen, graph.by_id, by_task, self._room)
        while len(self.queries) > 1 and (
            len(self.queries) > QUERIES_KEPT
            or sum(each.size for each in self.queries.values()) > VERTICES_KEPT
        ):
            self._forget(next(iter(self.queries)))
        late_ms = min(late_ms, query.late_ms)
        self.steps.note(
            span.start_ms + late_ms,
            span.end_ms + late_ms,
            rows=span.rows,
            backlog_rows=total_backlog(self.queries.values()),
            busy_ms={
                vertex_id: work.slot_busy_us / 1000
                for vertex_id, work in span.work.items()
                if work.slot_busy_us is not None
            },
        )

    def _room(self) -> int:
        """For how many more subtasks there is room."""
        return TASKS_TOLD - sum(query.subtasks.count for query in self.queries.values())

    def _take_out(self, seen: SeenBatch, graph: JobGraph) -> QueryLoad:
        """The query of a batch: by its id, or the one that it takes the place of at its sink; else a new one."""
        own = [each.vertex_id for each in seen.report.vertices]
        sink = next((vertex_id for vertex_id in own if graph.by_id[vertex_id].is_sink), None)
        of_sink = (key for key, each in self.queries.items() if sink is not None and each.sink == sink)
        query_id = seen.report.query_id
        query = self.queries.pop(query_id if query_id in self.queries else next(of_sink, ""), None)
        query = query or QueryLoad(seen)
        query.sink = sink or query.sink
        return query

    def tasks_at(self, parallelism: Mapping[str, int]) -> dict[str, int]:
        """The tasks of each vertex in its last batch, by its id, if that ran at this ``parallelism``."""
        return {
            each.vertex_id: each.tasks
            for query in self.queries.values()
            for each in query.latest.report.vertices
            if each.tasks is not None and parallelism.get(each.vertex_id) == each.parallelism
        }

    def subtasks(self, vertex_id: str) -> Subtasks | None:
        """Those of the present attempt. Of a vertex that is part of several queries: in the one that read most with it.
        None: nothing is known of them."""
        queries = self.queries.values()
        found = [known for each in queries if (known := each.subtasks.of(vertex_id)) is not None]
        return max(found, key=lambda each: sum(each.total("records_in")), default=None)

    def totals(self, vertex_id: str, *, whole_life: bool) -> Totals | None:
        """What a vertex did in the present attempt, or since this server has had the job; None if nothing is known."""
        found = []
        for query in self.queries.values():
            parts = [query.attempt.get(vertex_id), query.before.get(vertex_id) if whole_life else None]
            if known := [part for part in parts if part is not None]:
                found.append(sum(known, NO_TOTALS))
        if whole_life and vertex_id in self._gone:
            found.append(self._gone[vertex_id])
        return of_queries(found)


def total_backlog(queries: Iterable[QueryLoad]) -> int | None:
    """The rows that wait at the sources of all queries; None if of none of them it is known."""
    known = [rows for query in queries if query.spans and (rows := query.spans[-1].backlog_rows) is not None]
    return sum(known) if known else None

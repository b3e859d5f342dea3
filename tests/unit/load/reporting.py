"""A driver that reports batches of one query, for tests of a job's load."""

from __future__ import annotations

from typing import Any

from app.load.reported import Load
from app.model.jobgraph import JobGraph
from app.model.measured import VertexBatch
from app.model.protocol import Report
from tests.unit.scheduler.driving import T0_MS, chain


class Reporting:
    """``ahead_ms``: of the clock of the driver. Times are seconds since the start."""

    def __init__(self, graph: JobGraph | None = None, *, ahead_ms: int = 0) -> None:
        self.graph = graph or chain()
        self.source, *_, self.sink = (vertex.id for vertex in self.graph.vertices)
        self.load = Load()
        self.ahead_ms = ahead_ms
        self.count = 0
        self.attempt = 1

    def batch(
        self,
        start_s: float,
        end_s: float,
        rows: int,
        *,
        late_s: float = 0.0,
        backlog: int | None = 7,
        query: str = "q",
        vertices: tuple[VertexBatch, ...] | None = None,
        newest_ms: int | None = None,
        **fields: Any,
    ) -> Reporting:
        start_ms, end_ms = at_ms(start_s), at_ms(end_s)
        if vertices is None:
            busy_ms = (end_ms - start_ms) // 2
            vertices = (VertexBatch(self.source, 2, 2, rows, 2 * rows, busy_ms=busy_ms),)
        report = Report(
            self.count,
            end_ms + self.ahead_ms,
            "batch",
            query_id=query,
            batch_id=self.count,
            started_ms=start_ms + self.ahead_ms,
            input_rows=rows,
            vertices=vertices,
            backlog_rows=backlog,
            **fields,
        )
        self.count += 1
        self.load.note(report, self.attempt, self.graph, end_ms + round(late_s * 1000), newest_ms)
        return self

    def steady(
        self, count: int, rows: int = 36, every_s: float = 1.0, takes_s: float = 0.5, **fields: Any
    ) -> Reporting:
        for index in range(count):
            self.batch(index * every_s, index * every_s + takes_s, rows, **fields)
        return self


def at_ms(second: float) -> int:
    return T0_MS + round(second * 1000)

"""The valves of a running query: how they are set, and what Spark made of them in a batch."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from app.driver.failures import DriverError
from app.driver.valves.labels import Label
from app.driver.valves.spark import Rows, Valve, execution_of, last_batch, numbers_of, rows_of, valves_in
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from app.model.protocol import VertexBatch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_BATCH: Final = re.compile(r"^batch = (\d+)", re.MULTILINE)
_SETTLE_S: Final = 1.0
_POLL_S: Final = 0.005
_LATEST_JOBS: Final = 32


@dataclass(frozen=True, slots=True)
class Stage:
    """What Spark reports of a stage that has run. ``rdd_ids``: the RDDs that its tasks went through."""

    stage_id: int
    tasks: int
    busy_ms: int
    rdd_ids: frozenset[int]
    input_records: int = 0
    shuffle_read_records: int = 0
    shuffle_write_records: int = 0


class Valves:
    """Those of one query. For one thread at a time."""

    def __init__(self, query: StreamingQuery, vertices: Sequence[PlannedVertex]) -> None:
        """``query`` was started with a frame that `insert_valves` has made for ``vertices``."""
        self._vertices = tuple(vertices)
        self._run_id = str(query.runId)
        self._execution = execution_of(query)
        context = self._execution.sparkSession().sparkContext()
        self._tracker, self._store = context.statusTracker(), context.statusStore()
        self._all: list[tuple[Label | None, Valve]] = []
        self._wanted: Mapping[str, int] | None = None
        self._poisoned = False
        self._places: list[int] = []

    # -- before a batch

    def set(self, parallelism: Mapping[str, int]) -> bool:
        """Let the next batch that is planned run at these numbers, by vertex name; not after `poison`.

        Returns whether it could be done now. As long as Spark prepares the query it cannot: then any later call of a
        method does it.
        """
        self._wanted = dict(parallelism)
        return self._apply()

    def poison(self) -> bool:
        """Let the next batch fail when it is planned, before anything of it runs: it stays planned, and runs with its
        number when the query is started again. One that runs goes on. For good; the answer is that of `set`."""
        self._poisoned = True
        return self._apply()

    def _apply(self) -> bool:
        if not self._all:
            self._all = self._find()
        if not self._all:
            return False
        if self._poisoned:
            # Spark refuses to make a copy of such an operator, and copies it in each batch.
            for _, valve in self._all:
                valve.set(0)
        elif self._wanted is not None:
            for label, valve in self._all:
                if label is not None:
                    valve.set(*label.setting(self._wanted))
            self._wanted = None
        return True

    def _find(self) -> list[tuple[Label | None, Valve]]:
        valves = valves_in(self._execution)
        found = [(Label.of(valve.label) if valve.label else None, valve) for valve in valves]
        if valves:
            names = {label.vertex for label, _ in found if label is not None}
            for vertex in self._vertices:
                if vertex.name not in names:
                    raise DriverError(
                        f"Spark's plan has no valve for vertex {vertex.name}.", vertex=vertex.name
                    )
        return found

    # -- after a batch

    def in_force(self, batch_id: int) -> Mapping[str, int] | None:
        """The numbers by vertex name that a batch was planned with; None if a later batch has been planned since.

        They may be in part those of before `set` and in part those after it.
        """
        if not self._apply():
            return None
        batch = last_batch(self._execution)
        if batch is None or batch[0] != batch_id:
            return None
        numbers = numbers_of(batch[1])
        if len(numbers) != len(self._all):
            return None
        return {
            label.vertex: number
            for (label, _), number in zip(self._all, numbers, strict=True)
            if label is not None and label.vertex
        }

    def vertex_batches(
        self,
        batch_id: int,
        ids: Mapping[str, str],
        parallelism: Mapping[str, int],
        *,
        input_rows: int | None = None,
        output_rows: int | None = None,
    ) -> tuple[VertexBatch, ...]:
        """What Spark did for each vertex in a batch that is committed. ``ids`` and ``parallelism``: by vertex name; the
        latter is what the batch was to run at.

        It waits for what Spark reports later than the end of the batch. What is not known of a vertex is None: all of
        it, if a later batch has been planned since.
        """
        rows = self._rows(batch_id)
        stages = self._stages(batch_id) if rows else []
        only_source = sum(vertex.role is Role.SOURCE for vertex in self._vertices) == 1
        return tuple(
            vertex_batch(
                vertex,
                ids[vertex.name],
                parallelism[vertex.name],
                rows.get(vertex.name),
                stages,
                input_rows if only_source else None,
                output_rows,
            )
            for vertex in self._vertices
        )

    def _rows(self, batch_id: int) -> dict[str, Rows]:
        batch = last_batch(self._execution)
        if batch is None or batch[0] != batch_id or not self._apply():
            return {}
        numbers, rows = numbers_of(batch[1]), rows_of(batch[1], self._places)
        if len(self._all) != len(numbers) or [each.number for each in rows] != list(numbers):
            # Without data from a source, Spark leaves out what would have read them.
            return {}
        return {
            label.vertex: each
            for (label, _), each in zip(self._all, rows, strict=True)
            if label is not None and label.vertex
        }

    # -- what Spark's status store says

    def _stages(self, batch_id: int) -> list[Stage]:
        """The stages of all jobs of the batch."""
        found: dict[int, Stage] = {}
        newest = sorted(map(int, self._tracker.getJobIdsForGroup(self._run_id)))[-_LATEST_JOBS:]
        for job_id in newest:
            job = self._ended_job(job_id)
            if job is None or not _is_of(job, batch_id):
                continue
            for stage_id in _numbers(job.stageIds()):
                stage = self._stage(stage_id)
                if stage is not None:
                    found[stage_id] = stage
        return list(found.values())

    def _ended_job(self, job_id: int) -> Any:
        """What the store knows of a job, once it knows of its end; None if it has forgotten it."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            try:
                job = self._store.job(job_id)
            except Exception:
                return None
            if job.status().toString() != "RUNNING" or time.monotonic() > deadline:
                return job
            time.sleep(_POLL_S)

    def _stage(self, stage_id: int) -> Stage | None:
        try:
            data = self._store.lastStageAttempt(stage_id)
        except Exception:
            return None
        if data.status().toString() == "SKIPPED":
            return None
        return Stage(
            stage_id,
            int(data.numTasks()),
            int(data.executorRunTime()),
            frozenset(_numbers(data.rddIds())),
            int(data.inputRecords()),
            int(data.shuffleReadRecords()),
            int(data.shuffleWriteRecords()),
        )


def _is_of(job: Any, batch_id: int) -> bool:
    text = job.description()
    found = _BATCH.search(str(text.get())) if text.isDefined() else None
    return found is not None and int(found[1]) == batch_id


def _numbers(values: Any) -> list[int]:
    return [int(each) for each in str(values.mkString(",")).split(",") if each]


def vertex_batch(
    vertex: PlannedVertex,
    vertex_id: str,
    parallelism: int,
    rows: Rows | None,
    stages: Iterable[Stage],
    input_rows: int | None,
    output_rows: int | None,
) -> VertexBatch:
    """``rows``: what its valve was. The stages that it ran in are those of that RDD: more than one, if the program
    works on a batch several times."""
    is_sink = vertex.role is Role.SINK
    mine = [stage for stage in stages if rows is not None and rows.rdd_id in stage.rdd_ids]
    if rows is None or not mine:
        return VertexBatch(vertex_id, parallelism, None, records_in=output_rows if is_sink else None)
    first = mine[0]
    # Of stages that are united in one, each vertex has a part of the tasks.
    tasks = min(first.tasks, rows.partitions)
    if vertex.role is Role.SOURCE:
        records_in, records_out = None, input_rows
    elif is_sink:
        records_in, records_out = output_rows, None
    else:
        records_in, records_out = first.shuffle_read_records, first.shuffle_write_records or None
    return VertexBatch(
        vertex_id,
        parallelism,
        tasks,
        records_in=records_in,
        records_out=records_out,
        busy_ms=sum(stage.busy_ms for stage in mine),
    )

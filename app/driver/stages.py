"""What Spark reports of the stages of a batch, and which vertices they ran."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from app.driver.graph_valves import Rows, label_before, label_behind
from app.driver.scala import scala_context
from app.model.analysis import Query
from app.model.jobgraph import JobVertex
from app.model.protocol import VertexBatch

if TYPE_CHECKING:
    from pyspark import SparkContext

_SETTLE_S = 1.0
_POLL_S = 0.005
_LATEST_JOBS = 16
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Stage:
    """``rdd_ids``: the RDDs that its tasks went through."""

    stage_id: int
    tasks: int
    busy_ms: int
    shuffle_read_records: int
    rdd_ids: frozenset[int]


class StageReader:
    """Reads the stages of a query run's batches from Spark's status store."""

    def __init__(self, context: SparkContext, run_id: str) -> None:
        self._tracker = scala_context(context).statusTracker()
        self._store = scala_context(context).statusStore()
        self._run_id = run_id
        self._last_job = -1

    def batch_jobs(self) -> tuple[int, ...]:
        """The jobs of the batch that was run since the last call, which is made between batches.

        The last one wrote it. Before it run broadcasts of side tables, and what looks at rows to put them in order.
        """
        jobs = sorted(
            job
            for each in self._tracker.getJobIdsForGroup(self._run_id)
            if (job := int(each)) > self._last_job
        )
        self._last_job = max(jobs, default=self._last_job)
        return tuple(jobs)

    def has_active_tasks(self) -> bool:
        """Whether a task of the query still runs. Those of a stage that has failed may take a while to end."""
        newest = sorted(int(job) for job in self._tracker.getJobIdsForGroup(self._run_id))[-_LATEST_JOBS:]
        for job_id in newest:
            job = self._tracker.getJobInfo(job_id)
            if job.isEmpty():
                continue
            if job.get().status().toString() == "RUNNING":
                # What the tracker says comes late: of a job that has ended it knows which of its tasks have.
                return True
            stages = job.get().stageIds()
            for stage_id in stages:
                stage = self._tracker.getStageInfo(stage_id)
                if not stage.isEmpty() and int(stage.get().numActiveTasks()) > 0:
                    return True
        return False

    def of_jobs(self, job_ids: Iterable[int]) -> list[Stage]:
        """The stages that were run for these jobs, in the order of their ids."""
        found = {stage.stage_id: stage for job_id in job_ids for stage in self.of_job(job_id)}
        return sorted(found.values(), key=lambda stage: stage.stage_id)

    def of_job(self, job_id: int) -> list[Stage]:
        """The stages that were run for ``job_id``; empty if Spark has forgotten it.

        The store learns of a job's end a moment after the job's caller does: this waits for it, so it is not for the
        thread that runs batches.
        """
        deadline = time.monotonic() + _SETTLE_S
        while True:
            try:
                info = self._store.job(job_id)
            except Py4JJavaError:
                # Spark keeps a limited number of jobs.
                return []
            if info.status().toString() != "RUNNING" or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        ids = info.stageIds()
        found = [self._stage(int(ids.apply(position))) for position in range(ids.size())]
        return [stage for stage in found if stage is not None]

    def _stage(self, stage_id: int) -> Stage | None:
        try:
            data = self._store.lastStageAttempt(stage_id)
        except Py4JJavaError:
            # Spark keeps a limited number of stages.
            return None
        if data.status().toString() == "SKIPPED":
            return None
        return Stage(
            stage_id,
            int(data.numTasks()),
            int(data.executorRunTime()),
            int(data.shuffleReadRecords()),
            frozenset(map(int, _NUMBER.findall(data.rddIds().toString()))),
        )


def vertex_batches(
    query: Query,
    parallelism: Mapping[str, int],
    rows: Mapping[str, Rows],
    stages: Sequence[Stage],
    *,
    input_rows: int,
    output_rows: int | None,
) -> tuple[VertexBatch, ...]:
    """What each vertex of ``query`` did in a batch: in the ``stages`` whose tasks went through its valves, ``rows``.

    A vertex that shuffles by itself is in two of them. Vertices without a shuffle in between share theirs.
    """
    mine = {vertex.id: _stages_of(vertex, rows, stages) for vertex in query.flow}
    records_in: dict[str, int | None] = {}
    records_out: dict[str, int | None] = {}
    for vertex in query.flow:
        edges = query.streaming_inputs(vertex)
        shared = {stage.stage_id for edge in edges for stage, _ in mine[edge.vertex_id]}
        if edges and (own := mine[vertex.id]) and own[0][0].stage_id not in shared:
            records_in[vertex.id] = own[0][0].shuffle_read_records
            if len(edges) == 1:
                records_out[edges[0].vertex_id] = records_in[vertex.id]
    records_in[query.sink.id] = output_rows
    if len(query.streams) == 1:
        records_out[query.streams[0].id] = input_rows
    return tuple(
        VertexBatch(
            vertex_id=vertex.id,
            parallelism=parallelism[vertex.id],
            tasks=own[-1][1] if (own := mine[vertex.id]) else None,
            records_in=records_in.get(vertex.id),
            records_out=records_out.get(vertex.id),
            busy_ms=sum(stage.busy_ms for stage, _ in own) if own else None,
        )
        for vertex in query.flow
    )


def _stages_of(
    vertex: JobVertex, rows: Mapping[str, Rows], stages: Sequence[Stage]
) -> list[tuple[Stage, int]]:
    """The stages of ``vertex``, in the order of its valves, and how many tasks it has in each: where those of several
    vertices are united in one, each vertex has a part of the tasks."""
    found: dict[int, tuple[Stage, int]] = {}
    for label in (label_before(vertex.id), label_behind(vertex.id)):
        if valve := rows.get(label):
            for stage in stages:
                if valve.rdd_id in stage.rdd_ids:
                    found[stage.stage_id] = (stage, min(stage.tasks, valve.partitions))
    return list(found.values())

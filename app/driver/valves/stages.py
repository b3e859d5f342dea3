"""What Spark reports of the stages of a batch, and which vertices they ran."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from app.driver.scala import scala_context
from app.driver.valves.running import Rows
from app.model.analysis import Query
from app.model.protocol import VertexBatch

if TYPE_CHECKING:
    from pyspark import SparkContext

_SETTLE_S: Final = 1.0
_POLL_S: Final = 0.005
_LATEST_JOBS: Final = 32
_BATCH: Final = re.compile(r"^batch = (\d+)", re.MULTILINE)
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Stage:
    """What Spark reports of a stage that has run. ``rdd_ids``: the RDDs that its tasks went through."""

    stage_id: int
    tasks: int
    busy_ms: int
    rdd_ids: frozenset[int]
    shuffle_read_records: int = 0
    shuffle_write_records: int = 0
    written_records: int = 0


class StageReader:
    """Reads the stages of a query run's batches from Spark's status store."""

    def __init__(self, context: SparkContext, run_id: str) -> None:
        self._tracker = scala_context(context).statusTracker()
        self._store = scala_context(context).statusStore()
        self._run_id = run_id

    def _newest_jobs(self) -> list[int]:
        return sorted(map(int, self._tracker.getJobIdsForGroup(self._run_id)))[: -_LATEST_JOBS - 1 : -1]

    def has_active_tasks(self) -> bool:
        """Whether a task of the query still runs. Those of a stage that has failed may take a while to end."""
        for job_id in self._newest_jobs():
            job = self._tracker.getJobInfo(job_id)
            if job.isEmpty():
                continue
            if job.get().status().toString() == "RUNNING":
                # What the tracker says comes late: of a job that has ended it knows which of its tasks have.
                return True
            for stage_id in job.get().stageIds():
                stage = self._tracker.getStageInfo(stage_id)
                if not stage.isEmpty() and int(stage.get().numActiveTasks()) > 0:
                    return True
        return False

    def of_batch(self, batch_id: int) -> list[Stage]:
        """The stages that were run for a batch, in the order of their ids; without those that Spark has forgotten.

        They are those of several jobs: what wrote the batch, before it broadcasts of side tables and what looks at rows
        to put them in order. The store learns of a job's end a moment after the job's caller does: this waits for it,
        so it is not for the thread that runs batches.
        """
        found: dict[int, Stage] = {}
        for job_id in self._newest_jobs():
            number = _batch_of(job := self._job(job_id))
            if number is None or number > batch_id:
                continue
            if number < batch_id:
                break
            deadline = time.monotonic() + _SETTLE_S
            while job is not None and job.status().toString() == "RUNNING" and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                job = self._job(job_id)
            for stage_id in _numbers(job.stageIds()) if job is not None else ():
                if (stage := self._stage(stage_id)) is not None:
                    found[stage_id] = stage
        return [found[stage_id] for stage_id in sorted(found)]

    def _job(self, job_id: int) -> Any:
        try:
            return self._store.job(job_id)
        except Py4JJavaError:
            # Spark keeps a limited number of jobs.
            return None

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
            frozenset(_numbers(data.rddIds())),
            int(data.shuffleReadRecords()),
            int(data.shuffleWriteRecords()),
            int(data.outputRecords()),
        )


def _batch_of(job: Any) -> int | None:
    """The number of the batch that a job was run for, which Spark writes into its description."""
    if job is None or not (text := job.description()).isDefined():
        return None
    found = _BATCH.search(str(text.get()))
    return int(found[1]) if found is not None else None


def _numbers(values: Any) -> list[int]:
    return [int(each) for each in _NUMBER.findall(str(values.mkString(",")))]


def vertex_batches(
    query: Query,
    parallelism: Mapping[str, int],
    rows: Collection[Rows],
    stages: Sequence[Stage],
    *,
    input_rows: int | None,
    output_rows: int | None,
) -> tuple[VertexBatch, ...]:
    """What each vertex of ``query`` did in a batch: in the ``stages`` whose tasks went through its valves, ``rows``,
    which are in the order of the plan, inputs first.

    A vertex that shuffles by itself is in two of them. Vertices without a shuffle in between share theirs. What is not
    known of a vertex is None.
    """
    work = {vertex.id: _work_of(vertex.id, rows, stages) for vertex in query.flow}
    records_in: dict[str, int | None] = {}
    records_out: dict[str, int | None] = {}
    for vertex in query.flow:
        before = {edge.vertex_id: work[edge.vertex_id][0] for edge in query.streaming_inputs(vertex)}
        own = work[vertex.id][0]
        if not before or not own or any(own[0] in each for each in before.values()):
            continue
        records_in[vertex.id] = own[0].shuffle_read_records
        for input_id, theirs in before.items():
            if len(before) == 1:
                records_out[input_id] = own[0].shuffle_read_records
            elif theirs and sum(theirs[-1] in each for each in before.values()) == 1:
                records_out[input_id] = theirs[-1].shuffle_write_records or None
    # Spark's sinks of files do not count, and their tasks do.
    records_in[query.sink.id] = (
        output_rows if output_rows is not None else sum(each.written_records for each in stages) or None
    )
    if len(query.streams) == 1:
        records_out[query.streams[0].id] = input_rows
    return tuple(
        VertexBatch(
            vertex_id=vertex.id,
            parallelism=parallelism[vertex.id],
            tasks=tasks,
            records_in=records_in.get(vertex.id),
            records_out=records_out.get(vertex.id),
            busy_ms=sum(stage.busy_ms for stage in own) if own else None,
        )
        for vertex in query.flow
        for own, tasks in (work[vertex.id],)
    )


def _work_of(
    vertex_id: str, rows: Collection[Rows], stages: Sequence[Stage]
) -> tuple[list[Stage], int | None]:
    """The stages of a vertex, in the order of its valves, and how many tasks it has in the last of them."""
    found: dict[int, Stage] = {}
    tasks = None
    for valve in rows:
        if valve.vertex_id != vertex_id:
            continue
        own = [stage for stage in stages if valve.rdd_id in stage.rdd_ids]
        found |= {stage.stage_id: stage for stage in own}
        if own:
            # Where the stages of several vertices are united in one, each has a part of the tasks. A program may work
            # on a batch several times, and look at a part of it only.
            tasks = max(min(stage.tasks, valve.partitions) for stage in own)
    return list(found.values()), tasks

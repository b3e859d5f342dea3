"""What Spark reports of the stages of a batch, and which vertices they ran."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from app.driver.scala import scala_context
from app.model.protocol import VertexBatch

if TYPE_CHECKING:
    from pyspark import SparkContext

_SETTLE_S = 1.0
_POLL_S = 0.005
_LATEST_JOBS = 16


@dataclass(frozen=True, slots=True)
class Stage:
    stage_id: int
    tasks: int
    busy_ms: int
    shuffle_read_records: int
    shuffle_write_records: int


class StageReader:
    """Reads the stages of a query run's batches from Spark's status store."""

    def __init__(self, context: SparkContext, run_id: str) -> None:
        self._tracker = scala_context(context).statusTracker()
        self._store = scala_context(context).statusStore()
        self._run_id = run_id
        self._last_job = -1

    def batch_job(self) -> int | None:
        """The job that wrote the batch that was run since the last call; None if it ran none. Asked between batches.

        It is the newest: side tables that are broadcast run before it.
        """
        newest = max((int(job) for job in self._tracker.getJobIdsForGroup(self._run_id)), default=-1)
        if newest <= self._last_job:
            return None
        self._last_job = newest
        return newest

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

    def of_job(self, job_id: int) -> list[Stage]:
        """The stages of ``job_id``, in the order of their ids; empty if Spark has forgotten it.

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
        return sorted((stage for stage in found if stage is not None), key=lambda stage: stage.stage_id)

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
            int(data.shuffleWriteRecords()),
        )


def vertex_batches(
    groups: Sequence[tuple[str, ...]],
    parallelism: dict[str, int],
    stages: Sequence[Stage],
    *,
    tail_shuffles: int,
    source_ids: Sequence[str],
    input_rows: int,
    output_rows: int | None,
) -> tuple[VertexBatch, ...]:
    """The stages told apart by vertex.

    ``groups``: the vertices per stage, first to last. Spark may run more stages than that, if a vertex shuffles by
    itself: stages are then matched from the end, which is certain as long as no vertex of the tail does it
    (``tail_shuffles`` is the number of shuffles there beyond ours); what is not certain has no task count.
    """
    matched: dict[int, Stage] = {}
    if stages:
        last = len(groups) - 1
        matched[last] = stages[-1]
        extra = len(stages) - len(groups)
        if tail_shuffles == 0 and extra >= 0:
            for offset in range(len(groups)):
                matched[last - offset] = stages[-1 - offset]
            if extra > 0 and len(source_ids) == 1 and groups[0] == (source_ids[0],):
                matched[0] = stages[0]
            elif len(source_ids) > 1:
                # Stages of several sources run in no particular order.
                for position, group in enumerate(groups):
                    if set(group) & set(source_ids):
                        matched.pop(position, None)
    answer: list[VertexBatch] = []
    for position, group in enumerate(groups):
        stage = matched.get(position)
        following = matched.get(position + 1)
        for vertex_id in group:
            is_only_source = list(source_ids) == [vertex_id]
            records_in = (
                stage.shuffle_read_records if stage and position > 0 and vertex_id == group[0] else None
            )
            records_out = following.shuffle_read_records if following and vertex_id == group[-1] else None
            is_sink = position == len(groups) - 1 and vertex_id == group[-1]
            answer.append(
                VertexBatch(
                    vertex_id=vertex_id,
                    parallelism=parallelism[vertex_id],
                    tasks=stage.tasks if stage else None,
                    records_in=output_rows if is_sink else records_in,
                    records_out=input_rows if is_only_source else records_out,
                    busy_ms=stage.busy_ms if stage else None,
                )
            )
    return tuple(answer)

"""A job as an execution graph: per vertex the parallelism, the status of its tasks and its times; of a BATCH job also
its decisions with the numbers that led to them, and what became of the runs that they were for.

Flink has a task per subtask; here a vertex runs as so many tasks of each micro-batch. The status of a vertex
follows from the state of the job's scheduler, and its task counters from the parallelism in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from app.api.schema import runs as schema
from app.api.schema.base import made_of
from app.api.schema.jobs import ExecutionState, RegionProgress
from app.model.batch import RegionStatus
from app.model.batch_layout import layout_of
from app.model.job_state.batch import BatchProgress, Decision, Written
from app.model.jobgraph import JobVertex
from app.model.status import JobStatus
from app.scheduler.adaptive.program_queries import absent_vertices
from app.scheduler.adaptive.state import (
    Canceling,
    CreatingExecutionGraph,
    Executing,
    Failing,
    Finished,
    JobState,
    Rescaling,
    Restarting,
    StopWithSavepoint,
)
from app.scheduler.batch.explain import decision_sentence
from app.scheduler.batch.remaining_time import TaskCount, percent, rest_ms
from app.worker.views import JobView

_FINISHED_PROGRESS: Final = RegionProgress(
    tasks_done=None, tasks_known=None, percent=100, estimated_rest_ms=0
)


@dataclass(frozen=True, slots=True)
class VertexExecution:
    """One vertex. ``tasks`` is 0 while nothing of it was ever deployed; times that do not apply are -1.

    ``read``, ``written``: bytes and rows between regions, None where they are not known. ``counted``: the Spark tasks
    of the run of its region, None if it does not run or has told nothing yet.
    """

    vertex: JobVertex
    parallelism: int
    tasks: int
    status: ExecutionState
    start_ms: int
    end_ms: int
    read: tuple[int, int] | None = None
    written: tuple[int, int] | None = None
    is_batch: bool = False
    counted: TaskCount | None = None

    def duration_ms(self, now_ms: int) -> int:
        if self.start_ms < 0:
            return -1
        return max(0, (now_ms if self.end_ms < 0 else self.end_ms) - self.start_ms)


def vertex_executions(view: JobView) -> list[VertexExecution]:
    """Every vertex of the job, in the order of its graph."""
    state = view.state
    if state.batch is not None:
        return _batch_executions(view, state.batch)
    deployed = parallelism_deployed(state)
    failures = state.recovery.failures
    failed = failures[-1][0].vertex if failures and view.status is JobStatus.FAILED else None
    status = _task_status(state, deployed is not None)
    # Of a program whose queries are known.
    waits = state.is_before_query and not state.graph.awaits_query and status == "RUNNING"
    began_ms = dict(state.status_since_ms).get(JobStatus.RUNNING, -1)
    start_ms = began_ms if deployed is not None and not waits else -1
    end_ms = view.ended_ms if view.ended_ms is not None and start_ms >= 0 else -1
    wanted = None if deployed is not None else {vid: bounds.upper for vid, bounds in state.bounds}
    over, absent = state.graph.over, absent_vertices(state)
    result = []
    for vertex in state.graph.vertices:
        own_status = status
        if status == "RUNNING" and vertex.id in over:
            own_status = "FINISHED"
        elif status == "RUNNING" and (waits or vertex.id in absent):
            own_status = "CREATED"
        if status == "FAILED" and failed is not None and failed not in (vertex.name, vertex.id):
            own_status = "CANCELED"
        if deployed is not None:
            tasks = parallelism = deployed.get(vertex.id, 0)
        else:
            tasks, parallelism = 0, (wanted or {}).get(vertex.id, vertex.parallelism)
        counted = _counted(view, 0, state.attempt) if state.graph.is_batch_program else None
        result.append(
            VertexExecution(
                vertex,
                parallelism,
                tasks,
                own_status,
                start_ms,
                end_ms,
                is_batch=state.graph.is_batch_program,
                counted=counted if own_status == "RUNNING" else None,
            )
        )
    return result


def _batch_executions(view: JobView, progress: BatchProgress) -> list[VertexExecution]:
    """Of a batch job each region has its own status and times; parallelism is -1 until it is decided, as in Flink.

    A region that is to run again is as one that never ran: of its last run nothing counts.
    """
    state = view.state
    regions = layout_of(state.graph).regions
    written = {one.vertex_id: (one.bytes, one.rows) for one in progress.written}
    result = []
    for vertex in state.graph.vertices:
        number = regions.by_vertex[vertex.id].number
        region = progress.regions[number]
        status = region_status(state, region.status)
        decision = progress.in_force(vertex.id)
        parallelism = decision.parallelism if decision is not None else -1
        is_finished = region.status is RegionStatus.FINISHED
        start_ms = region.started_ms if region.status is not RegionStatus.CREATED else None
        end_ms = region.finished_ms if is_finished else None
        if end_ms is None and start_ms is not None:
            end_ms = view.ended_ms
        result.append(
            VertexExecution(
                vertex,
                parallelism,
                max(0, parallelism),
                status,
                -1 if start_ms is None else start_ms,
                -1 if end_ms is None else end_ms,
                read=_read(decision),
                written=written.get(vertex.id) if is_finished else None,
                is_batch=True,
                counted=_counted(view, number, region.run) if status == "RUNNING" else None,
            )
        )
    return result


def _counted(view: JobView, region: int, run: int) -> TaskCount | None:
    report = view.region_progress.get(region)
    if report is None or report.run != run:
        return None
    return TaskCount(report.tasks_done, report.tasks_total)


def region_progress(execution: VertexExecution, now_ms: int) -> RegionProgress | None:
    """How far the region of a vertex is, an addition of ours; None in a STREAMING job and where nothing is known."""
    if not execution.is_batch:
        return None
    if execution.status == "FINISHED":
        return _FINISHED_PROGRESS
    count = execution.counted
    if count is None:
        return None
    return RegionProgress(
        tasks_done=count.done,
        tasks_known=count.known,
        percent=percent(count),
        estimated_rest_ms=rest_ms(count, execution.duration_ms(now_ms)),
    )


def _read(decision: Decision | None) -> tuple[int, int] | None:
    if decision is None or decision.bytes is None or decision.rows is None:
        return None
    return decision.bytes + decision.broadcast_bytes, decision.rows


def region_status(state: JobState, status: RegionStatus) -> ExecutionState:
    """The status of the tasks of a region: its own, unless the attempt or the job is at its end."""
    if status is RegionStatus.FINISHED:
        return "FINISHED"
    whole = _task_status(state, deployed=status is RegionStatus.RUNNING)
    if status is RegionStatus.CREATED and whole in ("RUNNING", "DEPLOYING"):
        return "CREATED"
    return whole


def parallelism_deployed(state: JobState) -> dict[str, int] | None:
    """The parallelism in force; when nothing runs, that which ran last; None if nothing ever did."""
    if isinstance(state.phase, CreatingExecutionGraph):
        return dict(state.phase.plan.parallelism)
    if state.plan is not None:
        return dict(state.plan.parallelism)
    last = state.timeline.last_completed
    if last is None:
        return None
    return {vertex.vertex_id: vertex.post for vertex in last.vertices if vertex.post is not None} or None


def _task_status(state: JobState, deployed: bool) -> ExecutionState:
    match state.phase:
        case Executing() | Rescaling() | StopWithSavepoint():
            return "RUNNING"
        case CreatingExecutionGraph():
            return "DEPLOYING"
        case Restarting() as phase:
            return "CANCELED" if phase.stopped else "CANCELING"
        case Canceling() | Failing():
            return "CANCELING"
        case Finished() as phase if phase.status is JobStatus.FINISHED:
            return "FINISHED"
        case Finished() as phase if phase.status is JobStatus.FAILED:
            return "FAILED" if deployed else "CANCELED"
        case Finished():
            return "CANCELED"
        case _:
            return "CREATED"


def decisions(view: JobView, *, with_groups: bool) -> list[schema.Decision]:
    """Newest first; none for a job that has made none, as every STREAMING job."""
    state, progress = view.state, view.state.batch
    if progress is None:
        return []
    written = {one.vertex_id: one for one in progress.written}
    found = []
    for decision in reversed(progress.decisions):
        name = state.graph.by_id[decision.vertex_id].name
        run = _run(state, progress, decision, written.get(decision.vertex_id))
        found.append(
            made_of(
                schema.Decision,
                decision,
                vertex_name=name,
                groups=decision.groups if with_groups else None,
                sentence=decision_sentence(name, decision, is_running=run.state == "RUNNING"),
                region_run=run,
            )
        )
    return found


def _run(
    state: JobState, progress: BatchProgress, decision: Decision, written: Written | None
) -> schema.RegionRun:
    """The run that a decision was for. Of all but the last run of a region only the start is kept."""
    region = progress.regions[decision.region]
    is_last = region.run == decision.run
    end_ms = region.finished_ms if is_last else None
    left = written if end_ms is not None else None
    run_state: Literal["RUNNING", "FINISHED", "DISCARDED"] = "DISCARDED"
    if is_last and region.status is RegionStatus.FINISHED:
        run_state = "FINISHED"
    elif is_last and region_status(state, region.status) == "RUNNING":
        run_state = "RUNNING"
    return schema.RegionRun(
        state=run_state,
        start_timestamp_ms=decision.at_ms,
        end_timestamp_ms=end_ms,
        written_bytes=left.bytes if left is not None else None,
        written_rows=left.rows if left is not None else None,
    )

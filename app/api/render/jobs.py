"""Jobs as Flink's REST API shows them: lists, details, plan, configuration, status, result."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

from app.api.render.execution import VertexExecution, region_progress, vertex_executions
from app.api.schema import jobs as schema
from app.api.schema import runs
from app.api.schema.base import made_of
from app.load.reported import Load
from app.model.job_state.failures import Failure
from app.model.jobgraph import Exchange, JobGraph
from app.model.masking import masked
from app.model.options import RestartStrategyOptions
from app.model.status import JobStatus
from app.scheduler.adaptive.last_failure import last_failure
from app.scheduler.adaptive.state import JobState, Stop
from app.worker.ownership.unreadable import UnreadableJob
from app.worker.under_way import is_under_way
from app.worker.views import JobView

_SCHEDULER_TYPE: Final = "Adaptive"
_NO_TASKS: dict[schema.ExecutionState, int] = dict.fromkeys(get_args(schema.ExecutionState), 0)
_APPLICATION_STATUS: dict[JobStatus, Literal["SUCCEEDED", "CANCELED", "FAILED"]] = {
    JobStatus.FINISHED: "SUCCEEDED",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FAILED: "FAILED",
}
READ_AND_WRITTEN: Final = {
    "read_bytes": "bytes_in",
    "write_bytes": "bytes_out",
    "read_records": "records_in",
    "write_records": "records_out",
}

# Before anything is known: present for Flink's clients, marked incomplete.
NOT_MEASURED = schema.IoMetrics(
    read_bytes=0,
    read_bytes_complete=False,
    write_bytes=0,
    write_bytes_complete=False,
    read_records=0,
    read_records_complete=False,
    write_records=0,
    write_records_complete=False,
    accumulated_backpressured_time=0,
    accumulated_idle_time=0,
    accumulated_busy_time=0.0,
)


def newest_first(
    views: Sequence[JobView], unreadable: Sequence[UnreadableJob]
) -> Sequence[JobView | UnreadableJob]:
    """Both, each of which is in this order."""
    if not unreadable:
        return views
    return sorted([*views, *unreadable], key=lambda one: (one.submitted_ms, one.job_id), reverse=True)


def id_and_status(job: JobView | UnreadableJob) -> schema.JobIdAndStatus:
    if isinstance(job, UnreadableJob):
        return schema.JobIdAndStatus(id=job.job_id, status=job.status, unreadable=job.why)
    return schema.JobIdAndStatus(id=job.job_id, status=job.status)


def unreadable_overview(job: UnreadableJob, now_ms: int) -> schema.JobOverview:
    """A job of which only what stands beside its documents is known, as the list of all jobs shows it."""
    summary = job.summary
    ended_ms = summary.ended_ms
    return schema.JobOverview(
        jid=job.job_id,
        name=summary.name,
        job_type=summary.type,
        scheduler_type=_SCHEDULER_TYPE,
        start_time=summary.submitted_ms,
        end_time=-1 if ended_ms is None else ended_ms,
        duration=max(0, (now_ms if ended_ms is None else ended_ms) - summary.submitted_ms),
        state=summary.status,
        last_modification=summary.submitted_ms if ended_ms is None else ended_ms,
        tasks=_overview_tasks(_NO_TASKS),
        pending_operators=0,
        scheduler_state=None,
        last_failure=None,
        unreadable=job.why,
    )


def job_overview(view: JobView, now_ms: int) -> schema.JobOverview:
    """A job as the list of all jobs shows it."""
    tasks = dict(_NO_TASKS)
    for execution in vertex_executions(view):
        tasks[execution.status] += execution.tasks
    return schema.JobOverview(
        **_of_job(view, now_ms),
        last_modification=max(
            [view.submitted_ms, view.ended_ms or 0, *dict(view.state.status_since_ms).values()]
        ),
        tasks=_overview_tasks(tasks),
    )


def _of_job(view: JobView, now_ms: int) -> dict[str, Any]:
    """The fields of a job, in the list and alone."""
    return {
        "jid": view.state.job_id,
        "name": view.state.graph.name,
        "job_type": view.state.graph.type,
        "scheduler_type": _SCHEDULER_TYPE,
        "start_time": view.submitted_ms,
        "end_time": -1 if view.ended_ms is None else view.ended_ms,
        "duration": max(0, (now_ms if view.ended_ms is None else view.ended_ms) - view.submitted_ms),
        "state": view.status,
        "pending_operators": 0,
        "scheduler_state": view.state.phase.kind,
        "last_failure": _last_failure(view.state),
    }


def _overview_tasks(tasks: Mapping[schema.ExecutionState, int]) -> dict[str, int]:
    return {"total": sum(tasks.values()), **{state.lower(): count for state, count in tasks.items()}}


def _last_failure(state: JobState) -> schema.LastFailure | None:
    failure = last_failure(state)
    return None if failure is None else made_of(schema.LastFailure, failure)


def job_details(view: JobView, now_ms: int, working_directory: str) -> schema.JobDetails:
    state = view.state
    executions = vertex_executions(view)
    status_counts = dict(_NO_TASKS)
    for execution in executions:
        status_counts[execution.status] += 1
    return schema.JobDetails(
        **_of_job(view, now_ms),
        application_id=state.job_id,
        is_stoppable=False,
        max_parallelism=state.graph.max_parallelism,
        now=now_ms,
        timestamps=_timestamps(view),
        vertices=[_vertex(execution, view, now_ms) for execution in executions],
        status_counts=status_counts,
        plan=job_plan(view, executions),
        attempt=state.attempt,
        driver_pid=view.driver_pid,
        spark_ui=view.spark_ui,
        submitted_by=view.submitted_by,
        working_directory=working_directory,
        under_way=is_under_way(view, now_ms),
        queries=[made_of(schema.StreamingQuery, batch) for batch in view.last_batches.values()],
    )


def _timestamps(view: JobView) -> dict[JobStatus, int]:
    """When the job last entered each status. RUNNING moves with each rescale too, as Flink restarts a job for one, and
    when counters begin at 0 because another server runs the job: who reads metrics begins a new window then."""
    state = view.state
    found = dict.fromkeys(JobStatus, 0) | dict(state.status_since_ms)
    if found[JobStatus.RUNNING]:
        last = state.timeline.last_completed
        counted_ms = view.load.since_ms if view.status is JobStatus.RUNNING else 0
        found[JobStatus.RUNNING] = max(found[JobStatus.RUNNING], (last and last.end_ms) or 0, counted_ms)
    return found


def _vertex(execution: VertexExecution, view: JobView, now_ms: int) -> schema.VertexSummary:
    vertex = execution.vertex
    return made_of(
        schema.VertexSummary,
        vertex,
        parallelism=execution.parallelism,
        status=execution.status,
        start_time=execution.start_ms,
        end_time=execution.end_ms,
        duration=execution.duration_ms(now_ms),
        tasks={**_NO_TASKS, execution.status: execution.tasks},
        metrics=io_metrics(execution, view.load),
        progress=region_progress(execution, now_ms),
    )


def io_metrics(execution: VertexExecution, load: Load) -> schema.IoMetrics:
    """Flink's I/O metrics of a vertex: of a BATCH graph what it read and wrote between regions, else what it did since
    the attempt began."""
    found: dict[str, int | bool] = {}
    totals = load.totals(execution.vertex.id, whole_life=False)
    if totals is not None:
        found["accumulated_busy_time"] = totals.busy_ms
        found["accumulated_idle_time"] = totals.idle_ms
        found["accumulated_backpressured_time"] = totals.held_ms
        for name, of_work in READ_AND_WRITTEN.items():
            found[name] = getattr(totals.work, of_work) or 0
            found[f"{name}_complete"] = totals.is_complete(of_work)
    for name, figures in (("read", execution.read), ("write", execution.written)):
        if figures is not None:
            found[f"{name}_bytes"], found[f"{name}_records"] = figures
            found[f"{name}_bytes_complete"] = found[f"{name}_records_complete"] = True
    return NOT_MEASURED.model_copy(update=found) if found else NOT_MEASURED


def job_plan(view: JobView, executions: list[VertexExecution] | None = None) -> schema.Plan:
    graph = view.state.graph
    nodes = [_plan_node(execution) for execution in executions or vertex_executions(view)]
    return made_of(schema.Plan, graph, jid=view.state.job_id, nodes=nodes)


def _plan_node(execution: VertexExecution) -> schema.PlanNode:
    vertex = execution.vertex
    node = schema.PlanNode(
        id=vertex.id,
        operator="",
        parallelism=execution.parallelism,
        operator_strategy="",
        description=html.escape(vertex.name) + "<br/>",
        optimizer_properties={},
    )
    if vertex.inputs:
        node.inputs = [
            schema.PlanInput(
                id=edge.vertex_id,
                num=number,
                exchange="blocking" if edge.exchange is Exchange.BLOCKING else "pipelined_bounded",
                ship_strategy=edge.partitioner,
            )
            for number, edge in enumerate(vertex.inputs)
        ]
    return node


def job_config(view: JobView) -> schema.JobConfig:
    state = view.state
    parallelisms = [execution.parallelism for execution in vertex_executions(view)]
    return schema.JobConfig(
        jid=state.job_id,
        name=state.graph.name,
        execution_config=schema.ExecutionConfig(
            restart_strategy=_restart_strategy(state.options.restart_strategy),
            job_parallelism=max(parallelisms, default=0),
            object_reuse_mode=False,
            user_config=user_config(state.graph),
        ),
    )


def user_config(graph: JobGraph) -> dict[str, str]:
    """The graph's ``config`` as far as it may be shown."""
    return {name: masked(name, value) for name, value in graph.config}


def _restart_strategy(strategy: RestartStrategyOptions) -> str:
    if strategy.type == "none":
        return "Restart deactivated."
    if strategy.type == "fixed-delay":
        return (
            f"Restart with fixed delay ({strategy.fixed_delay_ms} ms). #{strategy.fixed_attempts} restart"
            " attempts."
        )
    if strategy.type == "failure-rate":
        return (
            f"Restart with failure rate: at most {strategy.max_failures_per_interval} failures in "
            f"{strategy.failure_rate_interval_ms} ms, delay {strategy.failure_rate_delay_ms} ms."
        )
    return (
        f"Restart with exponential delay: {strategy.initial_backoff_ms} ms to {strategy.max_backoff_ms} ms, "
        f"multiplier {strategy.backoff_multiplier}, jitter {strategy.jitter_factor}."
    )


def execution_result(view: JobView) -> schema.ExecutionResult:
    application_status = _APPLICATION_STATUS.get(view.status)
    if application_status is None or view.ended_ms is None:
        return schema.ExecutionResult(status=schema.OperationStatus(id="IN_PROGRESS"))
    result = schema.JobResult(
        id=view.state.job_id,
        name=view.state.graph.name,
        application_status=application_status,
        accumulator_results={},
        net_runtime=max(0, view.ended_ms - view.submitted_ms),
        application_id=view.state.job_id,
        start_time=view.submitted_ms,
        end_time=view.ended_ms,
    )
    if view.status is JobStatus.FAILED:
        result.failure_cause = _failure_cause(view)
    return schema.ExecutionResult(status=schema.OperationStatus(id="COMPLETED"), job_execution_result=result)


def _failure_cause(view: JobView) -> schema.FailureCause:
    if view.state.recovery.failures:
        failure = view.state.recovery.failures[-1][0]
        stack = failure.stack or failure.error
        return schema.FailureCause(class_name=exception_name(failure.error), stack_trace=stack)
    cause = getattr(view.state.phase, "cause", None) or "The job failed."
    return schema.FailureCause(class_name=exception_name(cause), stack_trace=cause)


_EXCEPTION_NAME = re.compile(r"([A-Za-z_][\w.$]*(?:Error|Exception|Failure|Interrupt|Exit))\b")


def exception_name(error: str) -> str:
    """The class that a failure's text starts with, as Python and Java write it."""
    match = _EXCEPTION_NAME.match(error)
    return match[1] if match else "Failure"


def render_stop(stop: Stop) -> runs.StopStatus:
    """Flink's asynchronous operation: in progress, or completed with a location or a failure cause."""
    if stop.state == "IN_PROGRESS":
        return runs.StopStatus(status=schema.OperationStatus(id="IN_PROGRESS"), operation=None)
    if stop.error is not None:
        cause = schema.FailureCause(class_name="StopFailed", stack_trace=stop.error)
        outcome = runs.StopOutcome(failure_cause=cause)
    else:
        outcome = runs.StopOutcome(location=stop.location)
    return runs.StopStatus(status=schema.OperationStatus(id="COMPLETED"), operation=outcome)


def exception_history(state: JobState, max_exceptions: int | None = None) -> schema.JobExceptions:
    """``max_exceptions``: the most root exceptions."""
    groups = [group for group in reversed(state.recovery.failures) if group]
    shown = groups if max_exceptions is None else groups[:max_exceptions]
    # The core keeps as many as the option says and counts no more: a full history may have lost older ones.
    full = len(groups) >= state.options.exception_history_size
    history = schema.ExceptionHistory(
        entries=[_root(group) for group in shown], truncated=len(shown) < len(groups) or full
    )
    return schema.JobExceptions(exception_history=history)


def _root(group: tuple[Failure, ...]) -> schema.RootExceptionInfo:
    concurrent = [schema.ExceptionInfo(**_fields(failure)) for failure in group[1:]]
    return schema.RootExceptionInfo(**_fields(group[0]), concurrent_exceptions=concurrent)


def _fields(failure: Failure) -> dict[str, Any]:
    labels = {"failover": "local"} if failure.local else {}
    fields: dict[str, Any] = {
        "exception_name": exception_name(failure.error),
        "stacktrace": failure.stack or failure.error,
        "timestamp": failure.at_ms,
        "failure_labels": labels | ({"why": failure.why} if failure.why else {}),
        "message": failure.error,
        "attempt": failure.attempt,
    }
    if failure.vertex is not None:
        fields["task_name"] = failure.vertex
    return fields

"""Jobs as Flink's REST API shows them: lists, details, plan, configuration, status, result."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from app.api.render.execution import (
    EXECUTION_STATES,
    VertexExecution,
    region_progress,
    vertex_executions,
)
from app.model.jobgraph import Exchange, JobGraph
from app.model.masking import masked
from app.model.options import JobOptions
from app.model.status import JobStatus
from app.scheduler.adaptive.last_failure import last_failure
from app.scheduler.adaptive.state import JobState
from app.worker.under_way import is_under_way
from app.worker.unreadable import UnreadableJob
from app.worker.views import JobView

SCHEDULER_TYPE = "Adaptive"

_NO_TASKS = dict.fromkeys(EXECUTION_STATES, 0)
_NO_TIMESTAMPS = {status.value: 0 for status in JobStatus}
_APPLICATION_STATUS = {
    JobStatus.FINISHED: "SUCCEEDED",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FAILED: "FAILED",
}

# What Flink measures per task over its whole life and Spark does not: present for Flink's clients, marked
# incomplete.
NOT_MEASURED: dict[str, Any] = {
    "read-bytes": 0,
    "read-bytes-complete": False,
    "write-bytes": 0,
    "write-bytes-complete": False,
    "read-records": 0,
    "read-records-complete": False,
    "write-records": 0,
    "write-records-complete": False,
    "accumulated-backpressured-time": 0,
    "accumulated-idle-time": 0,
    "accumulated-busy-time": 0.0,
}


def newest_first(
    views: Sequence[JobView], unreadable: Sequence[UnreadableJob]
) -> Sequence[JobView | UnreadableJob]:
    """Both, each of which is in this order."""
    if not unreadable:
        return views
    return sorted([*views, *unreadable], key=lambda one: (one.submitted_ms, one.job_id), reverse=True)


def job_list(jobs: Iterable[JobView | UnreadableJob]) -> dict[str, Any]:
    return {"jobs": [_id_and_status(job) for job in jobs]}


def _id_and_status(job: JobView | UnreadableJob) -> dict[str, str]:
    told = {"id": job.job_id, "status": job.status.value}
    return {**told, "unreadable": job.why} if isinstance(job, UnreadableJob) else told


def unreadable_overview(job: UnreadableJob, now_ms: int) -> dict[str, Any]:
    """A job of which only what stands beside its documents is known, as the list of all jobs shows it."""
    summary = job.summary
    ended_ms = summary.ended_ms
    return {
        "jid": job.job_id,
        "name": summary.name,
        "jobType": summary.type,
        "schedulerType": SCHEDULER_TYPE,
        "start-time": summary.submitted_ms,
        "end-time": -1 if ended_ms is None else ended_ms,
        "duration": max(0, (now_ms if ended_ms is None else ended_ms) - summary.submitted_ms),
        "state": summary.status.value,
        "last-modification": summary.submitted_ms if ended_ms is None else ended_ms,
        "tasks": {**{name.lower(): count for name, count in _NO_TASKS.items()}, "total": 0},
        "pending-operators": 0,
        "lastFailure": None,
        "unreadable": job.why,
    }


def job_overview(view: JobView, now_ms: int) -> dict[str, Any]:
    """A job as the list of all jobs shows it."""
    tasks = {name.lower(): count for name, count in _NO_TASKS.items()}
    total = 0
    for execution in vertex_executions(view):
        tasks[execution.status.lower()] += execution.tasks
        total += execution.tasks
    return {
        "jid": view.state.job_id,
        "name": view.state.graph.name,
        "jobType": view.state.graph.type.value,
        "schedulerType": SCHEDULER_TYPE,
        "start-time": view.submitted_ms,
        "end-time": _end_ms(view),
        "duration": _duration_ms(view, now_ms),
        "state": view.status.value,
        "last-modification": last_modification_ms(view),
        "tasks": {**tasks, "total": total},
        "pending-operators": 0,
        "lastFailure": _last_failure(view.state),
    }


def _last_failure(state: JobState) -> dict[str, Any] | None:
    failure = last_failure(state)
    if failure is None:
        return None
    return {"timestampInMillis": failure.at_ms, "attempt": failure.attempt, "message": failure.error}


def job_details(view: JobView, now_ms: int) -> dict[str, Any]:
    state = view.state
    executions = vertex_executions(view)
    status_counts = dict(_NO_TASKS)
    for execution in executions:
        status_counts[execution.status] += 1
    timestamps = dict(_NO_TIMESTAMPS)
    for status, since_ms in state.status_since_ms:
        timestamps[status.value] = since_ms
    return {
        "jid": state.job_id,
        "application-id": state.job_id,
        "name": state.graph.name,
        "isStoppable": False,
        "state": view.status.value,
        "job-type": state.graph.type.value,
        "schedulerType": SCHEDULER_TYPE,
        "start-time": view.submitted_ms,
        "end-time": _end_ms(view),
        "duration": _duration_ms(view, now_ms),
        "maxParallelism": state.graph.max_parallelism,
        "now": now_ms,
        "timestamps": timestamps,
        "vertices": [_vertex(execution, now_ms) for execution in executions],
        "status-counts": status_counts,
        "plan": job_plan(view, executions),
        "pending-operators": 0,
        "schedulerState": state.phase.kind,
        "attempt": state.attempt,
        "driverPid": view.driver_pid,
        "submittedBy": view.submitted_by,
        "underWay": is_under_way(view, now_ms),
        "lastFailure": _last_failure(state),
        "queries": [
            {"id": batch.query_id, "runId": batch.run_id, "batchId": batch.batch_id}
            for batch in view.last_batches.values()
        ],
    }


def _vertex(execution: VertexExecution, now_ms: int) -> dict[str, Any]:
    vertex = execution.vertex
    return {
        "id": vertex.id,
        "slotSharingGroupId": vertex.slot_sharing_group_id,
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": execution.parallelism,
        "status": execution.status,
        "start-time": execution.start_ms,
        "end-time": execution.end_ms,
        "duration": execution.duration_ms(now_ms),
        "tasks": {**_NO_TASKS, execution.status: execution.tasks},
        "metrics": io_metrics(execution),
        "progress": region_progress(execution, now_ms),
    }


def io_metrics(execution: VertexExecution) -> dict[str, Any]:
    """Flink's I/O metrics of a vertex: of a batch job what it read and wrote between regions, else nothing is known."""
    if execution.read is None and execution.written is None:
        return NOT_MEASURED
    found = dict(NOT_MEASURED)
    for name, figures in (("read", execution.read), ("write", execution.written)):
        if figures is not None:
            found[f"{name}-bytes"], found[f"{name}-records"] = figures
            found[f"{name}-bytes-complete"] = found[f"{name}-records-complete"] = True
    return found


def job_plan(view: JobView, executions: list[VertexExecution] | None = None) -> dict[str, Any]:
    graph = view.state.graph
    return {
        "jid": view.state.job_id,
        "name": graph.name,
        "type": graph.type.value,
        "nodes": [_plan_node(execution) for execution in executions or vertex_executions(view)],
    }


def _plan_node(execution: VertexExecution) -> dict[str, Any]:
    vertex = execution.vertex
    node: dict[str, Any] = {
        "id": vertex.id,
        "operator": "",
        "parallelism": execution.parallelism,
        "operator_strategy": "",
        "description": html.escape(vertex.name) + "<br/>",
        "optimizer_properties": {},
    }
    if vertex.inputs:
        node["inputs"] = [
            {
                "id": edge.vertex_id,
                "num": number,
                "exchange": "blocking" if edge.exchange is Exchange.BLOCKING else "pipelined_bounded",
                "ship_strategy": edge.partitioner.value,
            }
            for number, edge in enumerate(vertex.inputs)
        ]
    return node


def job_config(view: JobView) -> dict[str, Any]:
    state = view.state
    return {
        "jid": state.job_id,
        "name": state.graph.name,
        "execution-config": {
            "restart-strategy": restart_strategy_sentence(state.options),
            "job-parallelism": max(
                (execution.parallelism for execution in vertex_executions(view)), default=0
            ),
            "object-reuse-mode": False,
            "user-config": user_config(state.graph),
        },
    }


def user_config(graph: JobGraph) -> dict[str, str]:
    """The graph's ``config`` as far as it may be shown."""
    return {name: masked(name, value) for name, value in graph.config}


def restart_strategy_sentence(options: JobOptions) -> str:
    strategy = options.restart_strategy
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


def execution_result(view: JobView) -> dict[str, Any]:
    application_status = _APPLICATION_STATUS.get(view.status)
    if application_status is None or view.ended_ms is None:
        return {"status": {"id": "IN_PROGRESS"}}
    result: dict[str, Any] = {
        "id": view.state.job_id,
        "name": view.state.graph.name,
        "application-status": application_status,
        "accumulator-results": {},
        "net-runtime": max(0, view.ended_ms - view.submitted_ms),
        "application-id": view.state.job_id,
        "start-time": view.submitted_ms,
        "end-time": view.ended_ms,
    }
    if view.status is JobStatus.FAILED:
        result["failure-cause"] = _failure_cause(view)
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


def _failure_cause(view: JobView) -> dict[str, str]:
    if view.state.failures:
        failure = view.state.failures[-1][0]
        return {"class": exception_name(failure.error), "stack-trace": failure.stack or failure.error}
    cause = getattr(view.state.phase, "cause", None) or "The job failed."
    return {"class": exception_name(cause), "stack-trace": cause}


_EXCEPTION_NAME = re.compile(r"([A-Za-z_][\w.$]*(?:Error|Exception|Failure|Interrupt|Exit))\b")


def exception_name(error: str) -> str:
    """The class that a failure's text starts with, as Python and Java write it."""
    match = _EXCEPTION_NAME.match(error)
    return match[1] if match else "Failure"


def last_modification_ms(view: JobView) -> int:
    times = [since_ms for _, since_ms in view.state.status_since_ms]
    return max([view.submitted_ms, view.ended_ms or 0, *times])


def _end_ms(view: JobView) -> int:
    return -1 if view.ended_ms is None else view.ended_ms


def _duration_ms(view: JobView, now_ms: int) -> int:
    return max(0, (now_ms if view.ended_ms is None else view.ended_ms) - view.submitted_ms)

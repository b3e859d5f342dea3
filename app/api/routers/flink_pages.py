"""Paths that only Flink's web page uses.

Data that Spark does not have or Slotwise does not store (thread dumps, profiles, flame graphs, log files of the
server) is answered empty, as in Flink without such data.
"""

from __future__ import annotations

import platform
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response

from app.api.answers import json_response
from app.api.dependencies import Job, JobNow, Now, Plane, job_of_path
from app.api.openapi import answered
from app.api.parameters import WholeNumber, names
from app.api.render import vertices as render
from app.api.render.metrics import metric_list, task_manager_metrics
from app.api.routers.cluster import Manager, manager_of_path
from app.api.routers.jobs import Vertex
from app.api.routers.metrics import Get
from app.api.routes import Operation
from app.api.schema import flink_pages as schema
from app.api.schema.jobs import Metric
from app.model.jobgraph import MAX_PARALLELISM_LIMIT

router = APIRouter(tags=["flink"], route_class=Operation)

_ENVIRONMENT: Final = schema.Environment(
    jvm=schema.JvmInfo(version=f"Python {platform.python_version()}", arch=platform.machine(), options=[]),
    classpath=[],
)
_VERTEX = "/jobs/{jobid}/vertices/{vertexid}"
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Empty: what a driver logs is under its attempt.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


# ---- a vertex


@router.get(f"{_VERTEX}/metrics")
async def get_subtask_metrics(job: Job, vertex: Vertex, now_ms: JobNow, get: Get = "") -> list[Metric]:
    """Metrics of each subtask of a vertex

    By number and name: `0.numRecordsIn`. Measured of its tasks; what is known only of the vertex is left out.
    """
    return metric_list(render.subtask_metrics(job, vertex, now_ms), names(get))


@router.get(f"{_VERTEX}/watermarks")
async def get_watermarks(job: Job, vertex: Vertex, now_ms: JobNow) -> list[Metric]:
    """The watermark of each subtask of a vertex

    The watermark of its query; empty without a watermark.
    """
    return render.watermarks(job, vertex, now_ms)


@router.get(f"{_VERTEX}/subtasktimes")
async def get_subtask_times(job: Job, vertex: Vertex, now_ms: JobNow) -> schema.VertexTimes:
    """How long each subtask of a vertex has run"""
    return render.vertex_times(job, vertex, now_ms)


@router.get(f"{_VERTEX}/taskmanagers")
async def get_task_managers_of_vertex(
    job: Job, vertex: Vertex, now_ms: JobNow
) -> schema.TaskManagersOfVertex:
    """The TaskManagers that a vertex runs on"""
    return render.task_managers_of_vertex(job, vertex, now_ms)


@router.get(f"{_VERTEX}/backpressure")
async def get_back_pressure(job: Job, vertex: Vertex, now_ms: JobNow) -> schema.BackPressure:
    """Busy, idle and back-pressured time of a vertex

    The status is `deprecated` before the first measurement.
    """
    return render.back_pressure(job, vertex, now_ms)


@router.get(f"{_VERTEX}/accumulators")
async def get_accumulators(vertex: Vertex) -> schema.VertexAccumulators:
    """The accumulators of a vertex: none"""
    return schema.VertexAccumulators(id=vertex.vertex.id, user_accumulators=[])


@router.get(f"{_VERTEX}/subtasks/accumulators")
async def get_subtask_accumulators(vertex: Vertex) -> schema.SubtaskAccumulators:
    """The accumulators of the subtasks of a vertex: none"""
    return schema.SubtaskAccumulators(id=vertex.vertex.id, parallelism=vertex.parallelism, subtasks=[])


@router.get(f"{_VERTEX}/flamegraph")
async def get_flame_graph(
    vertex: Vertex,
    now_ms: JobNow,
    type: Annotated[
        Literal["FULL", "ON_CPU", "OFF_CPU", "full", "on_cpu", "off_cpu"], Query(description="Of what.")
    ] = "FULL",
    subtaskindex: Annotated[
        int | SkipJsonSchema[None],
        WholeNumber(0, MAX_PARALLELISM_LIMIT),
        Query(description="Of one subtask."),
    ] = 0,
) -> schema.FlameGraph:
    """The flame graph of a vertex: none"""
    return schema.FlameGraph(end_timestamp=now_ms, data=None)


# ---- the server and its TaskManagers


@router.get("/jobs/{jobid}/jobmanager/environment")
async def get_environment_of_job(job: Job) -> schema.Environment:
    """The environment of a job's server"""
    return _ENVIRONMENT


@router.get("/jobmanager/environment")
async def get_environment() -> schema.Environment:
    """The environment of the server"""
    return _ENVIRONMENT


@router.get("/taskmanagers/{taskmanagerid}/metrics")
async def get_metrics_of_task_manager(
    manager: Manager, plane: Plane, now_ms: Now, get: Get = ""
) -> list[Metric]:
    """Metrics of one TaskManager

    Sums over its executors, for the jobs of this server.
    """
    values = task_manager_metrics(manager, plane.task_managers(), plane.jobs(), now_ms)
    return metric_list(values, names(get))


# ---- what is always the same


def _only(value: Any) -> dict[str, Any]:
    """The schema of ``value`` and nothing else."""
    if isinstance(value, dict):
        properties = {name: _only(each) for name, each in value.items()}
        return {
            "type": "object",
            "required": list(value),
            "additionalProperties": False,
            "properties": properties,
        }
    return {"type": "null"} if value is None else {"const": value}


def _always(path: str, name: str, documentation: str, answer: dict[str, Any] | None) -> None:
    """An operation ``name`` with one answer: JSON, or without any an empty text."""
    needs = [Depends(job_of_path)] if "{jobid}" in path else []
    needs += [Depends(manager_of_path)] if "{taskmanagerid}" in path else []
    response = Response(media_type="text/plain") if answer is None else json_response(answer)
    responses = _TEXT if answer is None else answered(schema=_only(answer))

    async def endpoint() -> Response:
        return response

    endpoint.__name__, endpoint.__doc__ = name, documentation
    router.get(path, response_class=Response, responses=responses, dependencies=needs)(endpoint)


_NO_DURATIONS = {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(("p50", "p90", "p95", "p99", "p999"), "NaN")}

_always(
    "/jobs/{jobid}/checkpoints",
    "get_checkpoints",
    "The checkpoints of a job: always empty\n\nEach committed micro-batch is a checkpoint, and Spark keeps only one.",
    {
        "counts": {"restored": 0, "total": 0, "in_progress": 0, "completed": 0, "failed": 0},
        "summary": {
            "checkpointed_size": _NO_DURATIONS,
            "state_size": _NO_DURATIONS,
            "end_to_end_duration": _NO_DURATIONS,
            "alignment_buffered": _NO_DURATIONS,
            "processed_data": _NO_DURATIONS,
            "persisted_data": _NO_DURATIONS,
        },
        "latest": {"completed": None, "savepoint": None, "failed": None, "restored": None},
        "history": [],
    },
)
_always(
    "/jobs/{jobid}/checkpoints/config",
    "get_checkpoint_config",
    "The configuration of checkpoints\n\nThe interval is 0: with each micro-batch.",
    {
        "mode": "exactly_once",
        "interval": 0,
        "timeout": 0,
        "min_pause": 0,
        "max_concurrent": 1,
        "externalization": {"enabled": True, "delete_on_cancellation": False},
        "state_backend": "Spark's state store",
        "checkpoint_storage": "Spark's checkpoint",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": 0,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "",
    },
)
_always(
    "/applications/overview",
    "list_applications",
    "Applications: none, because jobs are submitted alone",
    {"applications": []},
)
for base, name, words in (
    ("/jobmanager", "server", "the server"),
    ("/taskmanagers/{taskmanagerid}", "task_manager", "a TaskManager"),
):
    _always(f"{base}/logs", f"list_{name}_logs", f"Files of logs of {words}: none", {"logs": []})
    _always(f"{base}/thread-dump", f"get_{name}_threads", f"Threads of {words}: none", {"threadInfos": []})
    _always(f"{base}/profiler", f"list_{name}_profiles", f"Profiles of {words}: none", {"profilingList": []})
    _always(f"{base}/log", f"get_{name}_log", f"The log of {words}: empty", None)
    _always(f"{base}/stdout", f"get_{name}_stdout", f"The output of {words}: empty", None)

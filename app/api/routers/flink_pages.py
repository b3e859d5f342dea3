"""What only the web page of Flink asks of a job that runs, beside what its other clients ask.

What can be told is told. Of what Spark does not have, or what nobody keeps here (thread dumps, profiles, flame graphs,
files of logs beside those of attempts), the answer is as empty as Flink's is when it has none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response

from app.api.dependencies import Job, JobNow, Now, Plane
from app.api.parameters import WholeNumber, names
from app.api.render import flink_pages as render
from app.api.render.metrics import metric_list
from app.api.routers.cluster import Manager
from app.api.routers.jobs import Vertex
from app.api.routers.metrics import Get
from app.api.routes import Operation
from app.api.schema import flink_pages as schema
from app.api.schema.jobs import Metric
from app.model.jobgraph import MAX_PARALLELISM_LIMIT

router = APIRouter(tags=["flink"], route_class=Operation)

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

    By number and name: `0.numRecordsIn`. Spark counts a stage as a whole, so each subtask has an equal share.
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


# ---- a job


@router.get("/jobs/{jobid}/checkpoints")
async def get_checkpoints(job: Job) -> schema.Checkpoints:
    """The checkpoints of a job: always empty

    Each committed micro-batch is a checkpoint, and Spark keeps only the last one.
    """
    return render.CHECKPOINTS


@router.get("/jobs/{jobid}/checkpoints/config")
async def get_checkpoint_config(job: Job) -> schema.CheckpointConfig:
    """The configuration of checkpoints"""
    return render.CHECKPOINT_CONFIG


@router.get("/jobs/{jobid}/jobmanager/environment")
async def get_environment_of_job(job: Job) -> schema.Environment:
    """The environment of a job's server"""
    return render.ENVIRONMENT


# ---- the server and its TaskManagers


@router.get("/jobmanager/environment")
async def get_environment() -> schema.Environment:
    """The environment of the server"""
    return render.ENVIRONMENT


@router.get("/applications/overview")
async def list_applications() -> schema.Applications:
    """Applications: none, because jobs are submitted alone"""
    return schema.Applications(applications=[])


@router.get("/jobmanager/logs")
async def list_server_logs() -> schema.LogFiles:
    """Files of logs of the server: none"""
    return schema.LogFiles(logs=[])


@router.get("/jobmanager/thread-dump")
async def get_server_threads() -> schema.ThreadDump:
    """Threads of the server: none"""
    return schema.ThreadDump(thread_infos=[])


@router.get("/jobmanager/profiler")
async def list_server_profiles() -> schema.Profilings:
    """Profiles of the server: none"""
    return schema.Profilings(profiling_list=[])


@router.get("/jobmanager/log", response_class=Response, responses=_TEXT)
async def get_server_log() -> Response:
    """The log of the server: empty"""
    return _no_text()


@router.get("/jobmanager/stdout", response_class=Response, responses=_TEXT)
async def get_server_stdout() -> Response:
    """The output of the server: empty"""
    return _no_text()


@router.get("/taskmanagers/{taskmanagerid}/metrics")
async def get_metrics_of_task_manager(
    manager: Manager, plane: Plane, now_ms: Now, get: Get = ""
) -> list[Metric]:
    """Metrics of one TaskManager

    Sums over its executors, for the jobs of this server.
    """
    values = render.task_manager_metrics(manager, plane.task_managers(), plane.jobs(), now_ms)
    return metric_list(values, names(get))


@router.get("/taskmanagers/{taskmanagerid}/logs")
async def list_task_manager_logs(manager: Manager) -> schema.LogFiles:
    """Files of logs of a TaskManager: none"""
    return schema.LogFiles(logs=[])


@router.get("/taskmanagers/{taskmanagerid}/thread-dump")
async def get_task_manager_threads(manager: Manager) -> schema.ThreadDump:
    """Threads of a TaskManager: none"""
    return schema.ThreadDump(thread_infos=[])


@router.get("/taskmanagers/{taskmanagerid}/profiler")
async def list_task_manager_profiles(manager: Manager) -> schema.Profilings:
    """Profiles of a TaskManager: none"""
    return schema.Profilings(profiling_list=[])


@router.get("/taskmanagers/{taskmanagerid}/log", response_class=Response, responses=_TEXT)
async def get_task_manager_log(manager: Manager) -> Response:
    """The log of a TaskManager: empty"""
    return _no_text()


@router.get("/taskmanagers/{taskmanagerid}/stdout", response_class=Response, responses=_TEXT)
async def get_task_manager_stdout(manager: Manager) -> Response:
    """The output of a TaskManager: empty"""
    return _no_text()


def _no_text() -> Response:
    return Response(media_type="text/plain")

"""Metrics of the server, of executors, of jobs and of vertices."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, WithJsonSchema

from app.api.dependencies import Job, JobNow, Now, Plane
from app.api.parameters import SomeOf, expected, names
from app.api.render import metrics as render
from app.api.routers.jobs import Vertex
from app.api.routes import Operation
from app.api.schema.jobs import AggregatedMetric, Executors, LoadHistory, Metric
from app.load.steps import STEPS

router = APIRouter(tags=["metrics"], route_class=Operation)

_STEPS_S: Final = {str(step_ms // 1000): step_ms for step_ms in STEPS}


def _step_ms(value: str | int) -> int:
    if str(value) not in _STEPS_S:
        raise expected(" or ".join(_STEPS_S))
    return _STEPS_S[str(value)]


_ALL = ",".join(render.AGGREGATIONS)
Get = Annotated[
    str,
    Query(
        description="Names, separated by commas; unknown ones are left out. Without it the names that there are."
    ),
]
Aggregations = Annotated[
    str,
    SomeOf(render.AGGREGATIONS),
    Query(
        description="Aggregations, separated by commas: min, max, sum, avg, skew. Unknown values are left out, and "
        "skew always is."
    ),
]
Step = Annotated[
    int,
    BeforeValidator(_step_ms),
    WithJsonSchema({"type": "integer", "enum": [int(step) for step in _STEPS_S]}),
    Query(description="The length of a step in seconds: 5 for the last ten minutes, 60 for six hours."),
]


@router.get("/jobmanager/metrics")
async def get_server_metrics(plane: Plane, get: Get = "") -> list[Metric]:
    """Metrics of the control plane"""
    return render.metric_list(render.server_metrics(plane.task_managers(), plane.jobs()), names(get))


@router.get("/taskmanagers/metrics")
async def get_task_manager_metrics(
    plane: Plane, now_ms: Now, get: Get = "", agg: Aggregations = _ALL
) -> list[AggregatedMetric]:
    """Metrics of executors

    For the executors of all jobs of this server. A job without a cluster has one executor, its driver. All values are 0
    while no executor has reported.
    """
    values = render.executor_metrics(plane.jobs(), now_ms)
    return render.aggregated_metrics(values, names(get), agg.split(","))


@router.get("/jobs/{jobid}/metrics")
async def get_job_metrics(job: Job, now_ms: JobNow, get: Get = "") -> list[Metric]:
    """Metrics of a job"""
    return render.metric_list(render.job_metrics(job, now_ms), names(get))


@router.get("/jobs/{jobid}/load")
async def get_job_load(job: Job, now_ms: JobNow, step: Step = 5_000) -> LoadHistory:
    """The load of a job in the last minutes or hours

    In steps, oldest first, for curves; and the micro-batches that take long, while they run. It is not durable: it
    begins when this server takes over the job, and is empty when the job has ended.
    """
    return render.load_history(job, step, now_ms)


@router.get("/jobs/{jobid}/executors")
async def list_executors(job: Job) -> Executors:
    """The executors of a job, with their memory and work

    As the driver reported them last, at most every five seconds. The driver is one of them, with the id driver. Empty
    before the first report of an attempt, while no attempt runs, and with slotwise.metrics.load false.
    """
    return render.executors(job.executors_load)


@router.get("/jobs/{jobid}/vertices/{vertexid}/subtasks/metrics")
async def get_vertex_subtask_metrics(
    job: Job, vertex: Vertex, now_ms: JobNow, get: Get = "", agg: Aggregations = _ALL
) -> list[AggregatedMetric]:
    """Metrics of a vertex in the last minute

    Rates cover the last minute, or twice the duration of the longest micro-batch if that is longer: they fall to 0
    when no batch is committed any more. Counters grow while this server owns the job. Most other metrics are
    those of the last batch, which ended at lastBatchTimestamp; taskTimeSkew covers the last minute, and watermarkLag is
    that of now. Empty before the first batch.
    """
    values = render.vertex_metrics(job, vertex.vertex, now_ms)
    return render.aggregated_metrics(values, names(get), agg.split(","))

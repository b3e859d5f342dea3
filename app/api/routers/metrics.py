"""Metrics of the server, of jobs and of vertices."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, WithJsonSchema

from app.api.dependencies import Job, Now, Plane
from app.api.parameters import expected, names
from app.api.render import metrics as render
from app.api.routers.jobs import Vertex
from app.api.routes import Operation
from app.api.schema.jobs import AggregatedMetric, Metric

router = APIRouter(tags=["metrics"], route_class=Operation)


def _aggregations(value: str) -> str:
    if not set(value.split(",")) <= set(render.AGGREGATIONS):
        raise expected(f"some of {', '.join(render.AGGREGATIONS)}, with commas between")
    return value


_ALL = ",".join(render.AGGREGATIONS)
_ONE = f"({'|'.join(render.AGGREGATIONS)})"
Get = Annotated[
    str,
    Query(
        description="Names, separated by commas; unknown ones are left out. Without it the names that there are."
    ),
]
Aggregations = Annotated[
    str,
    BeforeValidator(_aggregations),
    WithJsonSchema({"type": "string", "pattern": f"^{_ONE}(,{_ONE})*$"}),
    Query(
        description="Aggregations, separated by commas, out of min, max, sum, avg, skew. Only sum and avg are known "
        "here."
    ),
]


@router.get("/jobmanager/metrics")
async def get_server_metrics(plane: Plane, get: Get = "") -> list[Metric]:
    """Metrics of the control plane"""
    return render.metric_list(render.server_metrics(plane.task_managers(), plane.jobs()), names(get))


@router.get("/jobs/{jobid}/metrics")
async def get_job_metrics(job: Job, now_ms: Now, get: Get = "") -> list[Metric]:
    """Metrics of a job"""
    return render.metric_list(render.job_metrics(job, now_ms), names(get))


@router.get("/jobs/{jobid}/vertices/{vertexid}/subtasks/metrics")
async def get_vertex_subtask_metrics(
    job: Job, vertex: Vertex, now_ms: Now, get: Get = "", agg: Aggregations = _ALL
) -> list[AggregatedMetric]:
    """Metrics of a vertex in the last minute

    Rates are over the last minute, or over twice the time of the last micro-batch if that is longer: they fall to 0
    when no batch is committed any more. pendingRecords and numTasksObserved are those of the last batch, which ended
    at lastBatchTimestamp. Empty before the first batch.
    """
    values = render.vertex_metrics(job, vertex.vertex.id, now_ms)
    return render.aggregated_metrics(values, names(get), agg.split(","))

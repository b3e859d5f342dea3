"""Reading one job or all of them; cancelling, stopping and forgetting one."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BeforeValidator, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import BytesResponse, json_response, model_bytes
from app.api.dependencies import Job, JobNow, Now, Plane, Principal, status_of
from app.api.errors import not_found
from app.api.openapi import answered, refusals, request_body
from app.api.parameters import Boolean, JobId, TriggerId, VertexId, WholeNumber, expected
from app.api.record_cache import Rendered
from app.api.render import jobs as render
from app.api.render.execution import VertexExecution, decisions, vertex_executions
from app.api.render.vertices import vertex_details
from app.api.requests import body_of
from app.api.routes import Operation
from app.api.schema import jobs as schema
from app.api.schema import runs
from app.api.schema.base import Empty
from app.model.graphdoc import to_document
from app.model.masking import masked_document
from app.worker.ownership.unreadable import UnreadableJob
from app.worker.views import JobView

MAX_EXCEPTIONS = 1000
_JOBS_AT_A_TIME = 100

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=Operation)


@router.get("")
async def list_jobs(plane: Plane) -> schema.JobList:
    """Ids and statuses of all jobs"""
    jobs = render.newest_first(plane.jobs(), plane.unreadable_jobs())
    return schema.JobList(jobs=[render.id_and_status(job) for job in jobs])


@router.get("/overview", response_model=schema.JobsOverview)
async def get_jobs_overview(request: Request, plane: Plane, now_ms: Now) -> Response:
    """All jobs, newest first"""
    parts = []
    for number, job in enumerate(render.newest_first(plane.jobs(), plane.unreadable_jobs()), 1):
        parts.append(_overview(request.app.state.ended_jobs, job, now_ms))
        if number % _JOBS_AT_A_TIME == 0:
            # Thousands of jobs take long to render: other requests have their turn in between.
            await asyncio.sleep(0)
    return BytesResponse(b'{"jobs":[' + b",".join(parts) + b"]}")


def _overview(ended_jobs: Rendered, job: JobView | UnreadableJob, now_ms: int) -> bytes:
    if isinstance(job, UnreadableJob):
        return model_bytes(render.unreadable_overview(job, now_ms))

    def made() -> bytes:
        return model_bytes(render.job_overview(job, now_ms + job.ahead_ms))

    return ended_jobs.get(job.job_id, job.state, made) if job.status.is_globally_terminal else made()


@router.get("/{jobid}")
async def get_job(job: Job, now_ms: JobNow, plane: Plane) -> schema.JobDetails:
    """A job with its vertices and its plan"""
    working_dir = await asyncio.to_thread(plane.working_dir, job.state.job_id)
    return render.job_details(job, now_ms, str(working_dir))


@router.delete("/{jobid}", responses=refusals({409: "The job has not ended: it is RUNNING."}))
async def forget_job(jobid: JobId, plane: Plane) -> Empty:
    """Forget a job that has ended, with its history"""
    await plane.forget(jobid)
    return Empty()


@router.get("/{jobid}/plan")
async def get_job_plan(job: Job) -> schema.JobPlan:
    """The plan in force"""
    return schema.JobPlan(plan=render.job_plan(job))


@router.get("/{jobid}/graph", responses=answered(schema={"type": "object"}))
async def get_job_graph(job: Job) -> Response:
    """The job graph document as stored"""
    return json_response(masked_document(to_document(job.state.graph)))


@router.get("/{jobid}/config")
async def get_job_config(job: Job) -> schema.JobConfig:
    """The configuration of a job"""
    return render.job_config(job)


@router.get("/{jobid}/status")
async def get_job_status(jobid: JobId, plane: Plane) -> schema.JobStatusAnswer:
    """The status of a job"""
    return schema.JobStatusAnswer(status=status_of(plane, jobid))


@router.get("/{jobid}/exceptions")
async def get_job_exceptions(
    job: Job,
    max_exceptions: Annotated[
        int | None,
        WholeNumber(1, MAX_EXCEPTIONS),
        Query(alias="maxExceptions", description="At most so many."),
    ] = None,
) -> schema.JobExceptions:
    """The failures of a job, newest first"""
    return render.exception_history(job.state, max_exceptions)


@router.get("/{jobid}/execution-result")
async def get_execution_result(job: Job) -> schema.ExecutionResult:
    """The result of an ended job"""
    return render.execution_result(job)


@router.get("/{jobid}/decisions")
async def get_decisions(
    job: Job, detail: Annotated[Boolean, Query(description="With the subpartitions of each task.")] = False
) -> list[runs.Decision]:
    """The parallelism decisions of a batch job, newest first

    The latest five of each vertex are kept. The list of a streaming job is empty: see its rescales.
    """
    return decisions(job, with_groups=detail)


async def _vertex(vertexid: VertexId, job: Job) -> VertexExecution:
    for execution in vertex_executions(job):
        if execution.vertex.id == vertexid:
            return execution
    raise not_found(f"Job vertex {vertexid} was not found in job {job.state.job_id}.")


Vertex = Annotated[VertexExecution, Depends(_vertex)]
"""The vertex that the path names."""


@router.get("/{jobid}/vertices/{vertexid}")
async def get_vertex(job: Job, vertex: Vertex, now_ms: JobNow) -> schema.VertexDetails:
    """A vertex with its subtasks"""
    return vertex_details(job, vertex, now_ms)


def _cancel(value: str | None) -> str:
    # Flink takes a missing one for cancel. Its clients always send it, and a request that forgets what it wants should
    # not end a job.
    if value != "cancel":
        raise expected("cancel (to stop a job, POST to /stop)")
    return "cancel"


Mode = Annotated[
    str,
    BeforeValidator(_cancel),
    WithJsonSchema({"enum": ["cancel"]}),
    Query(description="cancel is the only mode."),
]


@router.patch("/{jobid}", status_code=202, responses=refusals({409: "The job has ended: it is FINISHED."}))
async def cancel_job(jobid: JobId, plane: Plane, principal: Principal, mode: Mode) -> Empty:
    """Cancel a job at once"""
    await plane.cancel(jobid, requested_by=principal)
    return Empty()


_StopBody = Annotated[
    runs.StopBody,
    body_of(runs.StopBody, what='{} or {"triggerId": "<32 hexadecimal digits>"}', empty_ok=True),
]
_SavepointBody = Annotated[
    runs.SavepointBody, body_of(runs.SavepointBody, what='{"cancel-job": false}', empty_ok=True)
]


@router.post(
    "/{jobid}/stop",
    status_code=202,
    responses=refusals({409: "The job is RESTARTING: it can be stopped while it is RUNNING."}),
    openapi_extra=request_body(
        "May be empty.", {"application/json": runs.StopBody.model_json_schema()}, required=False
    ),
)
async def stop_job(jobid: JobId, plane: Plane, principal: Principal, body: _StopBody) -> runs.StopAccepted:
    """Stop a job after its current micro-batch, with a complete checkpoint"""
    trigger_id = await plane.stop(jobid, trigger_id=body.trigger_id, requested_by=principal)
    return runs.StopAccepted(request_id=trigger_id)


@router.post(
    "/{jobid}/savepoints",
    status_code=202,
    responses=refusals({409: "The job has no savepoint now: it is RESTARTING, and no attempt runs."}),
    openapi_extra=request_body(
        "May be empty.", {"application/json": runs.SavepointBody.model_json_schema()}, required=False
    ),
)
async def make_savepoint(jobid: JobId, plane: Plane, body: _SavepointBody) -> runs.StopAccepted:
    """The checkpoint of a running job

    Each committed micro-batch is a complete checkpoint, so nothing has to be done. The job continues to write there:
    copy the checkpoint when the job is stopped.
    """
    return runs.StopAccepted(request_id=plane.savepoint(jobid))


@router.get("/{jobid}/savepoints/{triggerid}")
async def get_stop_status(jobid: JobId, triggerid: TriggerId, plane: Plane) -> runs.StopStatus:
    """The progress of a stop, or the path of a savepoint"""
    return render.render_stop(plane.stop_operation(jobid, triggerid))

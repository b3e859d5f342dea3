"""The end of a job: cancel at once, or stop at a batch boundary, with the progress of the stop."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BeforeValidator, WithJsonSchema
from starlette.requests import Request

from app.api.dependencies import Plane, Principal
from app.api.openapi import refusals, request_body
from app.api.parameters import JobId, TriggerId, expected
from app.api.render.jobs import render_stop
from app.api.requests import read_model
from app.api.routes import Operation
from app.api.schema import runs as schema
from app.api.schema.base import Empty

router = APIRouter(prefix="/jobs/{jobid}", tags=["jobs"], route_class=Operation)


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


@router.patch("", status_code=202, responses=refusals({409: "The job has ended: it is FINISHED."}))
async def cancel_job(jobid: JobId, plane: Plane, principal: Principal, mode: Mode) -> Empty:
    """Cancel a job at once"""
    await plane.cancel(jobid, requested_by=principal)
    return Empty()


async def _stop_body(request: Request) -> schema.StopBody:
    what = '{} or {"triggerId": "<32 hexadecimal digits>"}'
    return await read_model(request, schema.StopBody, what=what, empty_ok=True)


@router.post(
    "/stop",
    status_code=202,
    responses=refusals({409: "The job is RESTARTING: it can be stopped while it is RUNNING."}),
    openapi_extra=request_body(
        "May be empty.",
        {"application/json": schema.StopBody.model_json_schema()},
        required=False,
    ),
)
async def stop_job(
    jobid: JobId, plane: Plane, principal: Principal, body: Annotated[schema.StopBody, Depends(_stop_body)]
) -> schema.StopAccepted:
    """Stop a job after its current micro-batch, with a complete checkpoint"""
    trigger_id = await plane.stop(jobid, trigger_id=body.trigger_id, requested_by=principal)
    return schema.StopAccepted(request_id=trigger_id)


async def _savepoint_body(request: Request) -> schema.SavepointBody:
    return await read_model(request, schema.SavepointBody, what='{"cancel-job": false}', empty_ok=True)


@router.post(
    "/savepoints",
    status_code=202,
    responses=refusals({409: "The job has no savepoint now: it is RESTARTING, and no attempt runs."}),
    openapi_extra=request_body(
        "May be empty.", {"application/json": schema.SavepointBody.model_json_schema()}, required=False
    ),
)
async def make_savepoint(
    jobid: JobId, plane: Plane, body: Annotated[schema.SavepointBody, Depends(_savepoint_body)]
) -> schema.StopAccepted:
    """The checkpoint of a running job

    Each committed micro-batch is a complete checkpoint, so nothing has to be done. The job continues to write there:
    copy the checkpoint when the job is stopped.
    """
    return schema.StopAccepted(request_id=plane.savepoint(jobid))


@router.get("/savepoints/{triggerid}")
async def get_stop_status(jobid: JobId, triggerid: TriggerId, plane: Plane) -> schema.StopStatus:
    """The progress of a stop, or the path of a savepoint"""
    return render_stop(plane.stop_operation(jobid, triggerid))

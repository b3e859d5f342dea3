"""PUT of a job's graph (a new version), and the outcomes of its versions."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import json_response
from app.api.dependencies import Job, Plane, Principal
from app.api.openapi import answered
from app.api.parameters import JobId
from app.api.requests import while_connected
from app.api.routers.submission import BODY, NOT_SUPPORTED, DryRun, Sent
from app.api.routes import Operation
from app.api.schema import runs as schema
from app.model.graphdoc import to_document
from app.model.masking import masked_document
from app.scheduler.adaptive.version_state import VersionNote

router = APIRouter(prefix="/jobs/{jobid}", tags=["jobs"], route_class=Operation)


@router.put(
    "/graph",
    status_code=202,
    response_model=schema.Replaced,
    responses=answered(
        200,
        schema={"type": "object"},
        refused={
            400: "The query of 'store' reads 'orders' now, and its checkpoint is of 'numbers': the sources of a "
            "checkpoint cannot be changed, nor their order.",
            409: "counts.py, line 12: the query of store does not go with the state in /data/counts: the key of "
            "'counts' has field 1, k, as string now, and had it as bigint.",
            415: NOT_SUPPORTED,
        },
    ),
    openapi_extra=BODY,
)
async def replace_job(
    request: Request,
    response: Response,
    jobid: JobId,
    plane: Plane,
    principal: Principal,
    sent: Sent,
    dry_run: DryRun = False,
) -> Response | schema.Replaced:
    """Replace a running job by a new version of it

    The new version, a graph or a program as in POST /jobs, is planned and compared with the checkpoints of the job
    before anything is stopped. Then the version in force stops at a batch boundary, and the new version continues from
    its checkpoints, with the job's id, name and history. If it commits no batch, the previous version comes back.
    `GET /jobs/:jobid/versions` has the outcome. With dryRun=true nothing changes, and the answer (200) is
    the document with all defaults if it would be accepted.
    """
    submitted, files = sent
    graph = await while_connected(request, plane.replacing.planned(jobid, submitted, files))
    if dry_run:
        return json_response(masked_document(to_document(graph)))
    number = await plane.replacing.replace(jobid, graph, files, requested_by=principal)
    url = f"/jobs/{jobid}/versions"
    response.headers["Location"] = url
    return schema.Replaced(version=number, versions_url=url)


@router.get("/versions")
async def get_job_versions(job: Job) -> schema.JobVersions:
    """The versions of a job, newest first"""
    own = job.state.versions
    notes = own.notes or (
        VersionNote(own.current, job.submitted_ms, "IN_FORCE", job.submitted_by, job.submitted_ms),
    )
    versions = [
        schema.Version(
            version=note.number,
            outcome=note.outcome,
            since=note.since_ms,
            requested_by=note.requested_by,
            requested=note.requested_ms or note.since_ms,
            why=note.why or None,
        )
        for note in reversed(notes)
    ]
    return schema.JobVersions(current=own.current, versions=versions)

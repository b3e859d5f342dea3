"""PUT of a job's graph: a new version of it. And what became of its versions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import json_response
from app.api.context import Context
from app.api.handlers.jobs import find_job
from app.api.handlers.submission import read_submitted
from app.api.requests import boolean, path_id, query, requested_by, while_connected
from app.model.graphdoc import to_document
from app.model.masking import masked_document
from app.scheduler.adaptive.version_state import VersionNote


async def replace(context: Context, request: Request) -> Response:
    dry_run = boolean(query(request, ("dryRun",)), "dryRun")
    job_id, plane = path_id(request, "jobid"), context.control_plane
    submitted, files = await read_submitted(request)
    graph = await while_connected(request, plane.plan_version(job_id, submitted, files))
    if dry_run:
        return json_response(masked_document(to_document(graph)))
    number = await plane.replace(job_id, graph, files, requested_by=requested_by(request))
    url = f"/jobs/{job_id}/versions"
    return json_response({"version": number, "versionsUrl": url}, 202, {"Location": url})


async def versions(context: Context, request: Request) -> Response:
    query(request)
    job = find_job(context, request)
    own = job.state.versions
    notes = own.notes or (
        VersionNote(own.current, job.submitted_ms, "IN_FORCE", job.submitted_by, job.submitted_ms),
    )
    return json_response(
        {
            "current": own.current,
            "versions": [
                {
                    "version": note.number,
                    "outcome": note.outcome,
                    "since": note.since_ms,
                    "requestedBy": note.requested_by,
                    "requested": note.requested_ms or note.since_ms,
                    "why": note.why or None,
                }
                for note in reversed(notes)
            ],
        }
    )

"""The rescale history of a job: overview, history, summary, configuration, details (FLIP-495)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import BytesResponse, model_bytes, next_page
from app.api.dependencies import Declaration, Job, JobNow, Plane, declaration, etag
from app.api.openapi import answered
from app.api.parameters import PAGE, After, Limit, RescaleUuid
from app.api.record_cache import AnswerCache, Rendered
from app.api.render import rescales as render
from app.api.routes import Operation
from app.api.schema.base import Empty
from app.api.schema.rescales import LatestRescales, Rescale, RescalesConfig, RescalesOverview, RescalesSummary
from app.model.rescale import Measured, RescaleRecord, TerminalState, TriggerCause
from app.scheduler.adaptive.state import JobState
from app.worker.requests.requirements import RescaleCancellation
from app.worker.views import JobView

router = APIRouter(prefix="/jobs/{jobid}/rescales", tags=["rescales"], route_class=Operation)


@router.get(
    "/history",
    response_model=list[Rescale],
    responses=answered(headers={"Link": "The next page, if there is one."}),
)
async def get_rescale_history(
    request: Request,
    job: Job,
    plane: Plane,
    limit: Limit = PAGE,
    after: After = None,
    cause: Annotated[
        TriggerCause | SkipJsonSchema[None], Query(description="Only records of this cause.")
    ] = None,
    state: Annotated[
        TerminalState | SkipJsonSchema[None], Query(description="Only records that ended so.")
    ] = None,
) -> Response:
    """The rescales of a job, newest first

    A rescale in progress has neither an end nor a terminal state. The header Link has the next page.
    """
    job_id, path, query = job.state.job_id, request.scope["path"], request.scope["query_string"]

    async def make() -> Response:
        # One more than asked for tells whether there is a next page.
        listed = await plane.rescales(job_id, limit=limit + 1, after=after, cause=cause, state=state)
        page = listed[:limit]
        parts = [_record_bytes(request.app.state.records, job.state, record) for record in page]
        headers = next_page(request, limit, page[-1].number) if len(listed) > limit else None
        return BytesResponse(b"[" + b",".join(parts) + b"]", headers=headers)

    return await _cached(request, job, f"{path}?{query.decode('latin-1')}", make)


def _record_bytes(records: Rendered, state: JobState, record: RescaleRecord) -> bytes:
    def made() -> bytes:
        return model_bytes(render.rescale_record(record, state.graph))

    if record.is_open:
        return made()
    return records.get(state.job_id + record.uuid, (record.end_ms, Measured.of(record)), made)


@router.get("/overview", response_model=RescalesOverview)
async def get_rescales_overview(request: Request, job: Job, plane: Plane) -> Response:
    """Counts, and the latest record of each outcome"""

    async def make() -> Response:
        latest = {}
        for state in (TerminalState.COMPLETED, TerminalState.FAILED, TerminalState.IGNORED):
            records = await plane.rescales(job.state.job_id, limit=1, state=state)
            latest[state.value.lower()] = (
                render.rescale_record(records[0], job.state.graph) if records else None
            )
        overview = RescalesOverview(
            rescales_counts=render.rescale_counts(job.state), latest=LatestRescales(**latest)
        )
        return BytesResponse(model_bytes(overview))

    return await _cached(request, job, "/overview", make)


@router.get("/summary", response_model=RescalesSummary)
async def get_rescales_summary(request: Request, job: Job, plane: Plane) -> Response:
    """Statistics of the durations"""

    async def make() -> Response:
        durations_ms = await plane.rescale_durations(job.state.job_id)
        return BytesResponse(model_bytes(render.rescales_summary(job.state, durations_ms)))

    return await _cached(request, job, "/summary", make)


async def _cached(
    request: Request, job: JobView, name: str, make: Callable[[], Awaitable[Response]]
) -> Response:
    """An answer about the history of a job: the one made before, if it still holds."""
    answers: AnswerCache = request.app.state.answers
    key, timeline = job.state.job_id + name, job.state.timeline
    return answers.find(key, timeline) or answers.keep(key, timeline, await make())


@router.get("/config")
async def get_rescales_config(job: Job) -> RescalesConfig:
    """The options for the timing of rescales"""
    return render.rescales_config(job.state)


@router.get("/details/{rescaleuuid}")
async def get_rescale_details(rescaleuuid: RescaleUuid, job: Job, plane: Plane, now_ms: JobNow) -> Rescale:
    """One rescale with the states of the scheduler"""
    record = await plane.rescale(job.state.job_id, rescaleuuid)
    return render.rescale_details(record, job.state, now_ms)


@router.delete(
    "/{rescaleuuid}",
    responses=answered(
        headers={"ETag": "The version of the requirements now in force."},
        refused={
            409: "Rescale 7 of job ... cannot be canceled any more: it is being carried out. To change ...",
            412: "If-Match names version 2, but the requirements are at version 3: read them again and ...",
        },
    ),
)
async def cancel_rescale(
    rescaleuuid: RescaleUuid,
    response: Response,
    job: Job,
    plane: Plane,
    declared: Annotated[
        Declaration, declaration(lambda state: state.requirements.version, "The requirements are")
    ],
) -> Empty:
    """Cancel a rescale that waits

    For the vertices that the request had changed, the bounds before hold. Refused with 409 if a plan was made for the
    rescale, or if nothing of it waits any more. If-Match is the version of the requirements.
    """
    asked = RescaleCancellation(rescaleuuid, **declared)
    result = await plane.cancel_rescale(job.state.job_id, asked)
    response.headers["ETag"] = etag(result.version)
    return Empty()

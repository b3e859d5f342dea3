"""GET and PUT of a job's share of the slots: its weight, its priority and its cap."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from app.api.dependencies import Declaration, Job, Plane, declaration, etag
from app.api.openapi import answered, request_body
from app.api.requests import read_model
from app.api.routes import Operation
from app.api.schema.base import Empty
from app.api.schema.declared import SlotShare
from app.worker.requests.declared import SlotShareUpdate

_FORM = '{"weight": 1, "priority": 0, "cap": null}'
_PATH = "/jobs/{jobid}/slot-share"

router = APIRouter(tags=["requirements"], route_class=Operation)


@router.get(
    _PATH,
    responses=answered(headers={"ETag": "The version of the slot share, for If-Match."}),
)
async def get_slot_share(job: Job, response: Response) -> SlotShare:
    """The weight, priority and cap of a job among the others

    The numbers that were declared last, or those of the graph. The explanation has their effect.
    """
    share = job.state.share
    response.headers["ETag"] = etag(share.version)
    return SlotShare(weight=share.weight, priority=share.priority, cap=share.cap)


_Declared = Annotated[Declaration, declaration(lambda state: state.share.version, "The slot share is")]


async def _share(request: Request) -> SlotShare:
    return await read_model(request, SlotShare, what=_FORM)


@router.put(
    _PATH,
    responses=answered(
        headers={"ETag": "The version now in force."},
        refused={
            400: "The field weight should be a whole number between 1 and 1000, found '0'.",
            409: "The cap of 1 slot(s) is below the 2 that the lower bounds need, so the job could not run: lower "
            "the bounds first, or set the cap to at least 2.",
            412: 'The slot share is at version 3, not at "x" as If-Match demands.',
        },
    ),
    openapi_extra=request_body(
        "All three fields. The content type does not matter: the body is read as JSON, strictly.",
        {"application/json": SlotShare.model_json_schema()},
    ),
)
async def put_slot_share(
    response: Response,
    job: Job,
    plane: Plane,
    declared: _Declared,
    share: Annotated[SlotShare, Depends(_share)],
) -> Empty:
    """Declare the weight, priority and cap of a job among the others

    The numbers are durable when they are answered, and the slots are distributed again at once. Numbers equal to those
    in force change nothing.
    """
    update = SlotShareUpdate(share.weight, share.priority, share.cap, **declared)
    response.headers["ETag"] = etag(await plane.update_slot_share(job.state.job_id, update))
    return Empty()

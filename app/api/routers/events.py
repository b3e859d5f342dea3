"""What happens, as Server-Sent Events: of one job, or of all of them and the cluster."""

from __future__ import annotations

import functools
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.sse import EventSourceResponse
from pydantic import BeforeValidator, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import PRINCIPAL
from app.api.dependencies import Job, Plane
from app.api.event_streams import EventStream, Streams, following, stored
from app.api.openapi import refusals
from app.api.parameters import MAX_NUMBER, Boolean, WholeNumber, expected
from app.api.routes import SharedOperation
from app.model.public_event import PublicEventType
from app.worker.facade import ControlPlaneFacade
from app.worker.requests.event_feed import Follower, Wanted

router = APIRouter(tags=["events"], route_class=SharedOperation)

_NAMES = tuple(kind.value for kind in PublicEventType)
_ONE = f"({'|'.join(_NAMES)})"


def _types(value: str) -> str:
    if not set(value.split(",")) <= set(_NAMES):
        raise expected(f"some of {', '.join(_NAMES)}, with commas between")
    return value


Types = Annotated[
    str | None,
    BeforeValidator(_types),
    WithJsonSchema({"type": "string", "pattern": f"^{_ONE}(,{_ONE})*$"}),
    Query(description="Only events of these types, separated by commas."),
]
After = Annotated[
    int | None,
    WholeNumber(0, MAX_NUMBER),
    Query(
        description="Only events after this id; 0: from the oldest stored event. Default: new events only."
    ),
]
LastEventId = Annotated[
    int | None,
    WholeNumber(0, MAX_NUMBER),
    Header(
        alias="Last-Event-ID",
        description="As `after`, which it has precedence over: EventSource sends it when it comes again.",
    ),
]
Follow = Annotated[
    Boolean,
    Query(
        description="false: the answer ends with the newest event that is stored, and begins with the oldest."
    ),
]
_SENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$"},
        "event": {"enum": [*_NAMES, "gone", "closing"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": "integer"},
    },
}
_RESPONSES = {
    200: {
        "description": "A stream of events",
        "content": {"text/event-stream": {"schema": _SENT}},
    },
    **refusals(
        {
            429: "250 clients of ann follow events already, which is the most of one name: close some of them.",
            503: "1000 clients follow events already, which is the most: try again.",
        }
    ),
}


@router.get("/jobs/{jobid}/events", response_class=EventSourceResponse, responses=_RESPONSES)
async def get_job_events(
    request: Request,
    job: Job,
    plane: Plane,
    types: Types = None,
    after: After = None,
    follow: Follow = True,
    last_event_id: LastEventId = None,
) -> Response:
    """The events of a job, as Server-Sent Events

    Each event has an id, a type and JSON data. After every 15 seconds without an event, an empty event has the current
    id. If events are not stored any more, an event of type `gone` has the id after which the stream continues.
    """
    cursor = after if last_event_id is None else last_event_id
    return await _answer(request, plane, _wanted(job.state.job_id, types), cursor, follow=follow)


@router.get("/events", response_class=EventSourceResponse, responses=_RESPONSES)
async def get_events(
    request: Request,
    plane: Plane,
    types: Types = None,
    after: After = None,
    follow: Follow = True,
    last_event_id: LastEventId = None,
) -> Response:
    """The events of all jobs and of the servers, as Server-Sent Events

    In the format of the events of one job.
    """
    cursor = after if last_event_id is None else last_event_id
    return await _answer(request, plane, _wanted(None, types), cursor, follow=follow)


def _wanted(job_id: str | None, types: str | None) -> Wanted:
    return Wanted(job_id, None if types is None else frozenset(map(PublicEventType, types.split(","))))


async def _answer(
    request: Request, plane: ControlPlaneFacade, wanted: Wanted, cursor: int | None, *, follow: bool
) -> Response:
    if request.method == "HEAD":
        return Response(media_type=EventSourceResponse.media_type)
    streams: Streams = request.app.state.streams
    feed = plane.events
    principal: str = request.scope[PRINCIPAL]
    streams.opened(principal)
    closed = functools.partial(streams.closed, principal)
    try:
        if not follow:
            first = await feed.stored(wanted, cursor or 0)
            return EventStream(stored(feed, wanted, first), closed)
        follower = Follower(feed, wanted, cursor)
        await follower.join()
    except BaseException:
        closed()
        raise
    tokens, headers = request.app.state.tokens, request.scope["headers"]

    def over() -> None:
        follower.leave()
        closed()

    def is_allowed() -> bool:
        return tokens is None or tokens.authenticate(headers) is not None

    return EventStream(following(follower, is_allowed), over)

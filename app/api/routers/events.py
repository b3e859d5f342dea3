"""Events as Server-Sent Events: of one job, or of all jobs and servers."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from app.api.dependencies import Job, Plane, Principal, StillAllowed
from app.api.event_streams import EventStream, EventTexts, Streams, following, stored
from app.api.openapi import refusals
from app.api.parameters import MAX_NUMBER, Boolean, SomeOf, WholeNumber
from app.api.routes import SharedOperation
from app.model.public_event import PublicEventType
from app.worker.requests.event_feed import Follower, Wanted

router = APIRouter(tags=["events"], route_class=SharedOperation)

_NAMES = tuple(kind.value for kind in PublicEventType)
Types = Annotated[
    str | None, SomeOf(_NAMES), Query(description="Only events of these types, separated by commas.")
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
    200: {"description": "A stream of events", "content": {"text/event-stream": {"schema": _SENT}}},
    **refusals(
        {
            429: "250 clients of ann follow events already, which is the most of one name: close some of them.",
            503: "1000 clients follow events already, which is the most: try again.",
        }
    ),
}


async def _stream(
    request: Request,
    plane: Plane,
    principal: Principal,
    is_allowed: StillAllowed,
    types: Types = None,
    after: After = None,
    follow: Follow = True,
    last_event_id: LastEventId = None,
) -> Callable[[str | None], Awaitable[Response]]:
    """What answers with the events of a job, or of all of them."""
    cursor = after if last_event_id is None else last_event_id
    kinds = None if types is None else frozenset(map(PublicEventType, types.split(",")))

    async def answer(job_id: str | None) -> Response:
        wanted = Wanted(job_id, kinds)
        if request.method == "HEAD":
            return Response(media_type=EventSourceResponse.media_type)
        streams: Streams = request.app.state.streams
        texts: EventTexts = request.app.state.event_texts
        feed = plane.events
        streams.opened(principal)
        closed = functools.partial(streams.closed, principal)
        try:
            if not follow:
                first = await feed.stored(wanted, cursor or 0)
                return EventStream(stored(feed, wanted, first, texts), closed)
            follower = Follower(feed, wanted, cursor)
            await follower.join()
        except BaseException:
            closed()
            raise

        def over() -> None:
            follower.leave()
            closed()

        return EventStream(following(follower, texts, is_allowed), over)

    return answer


Stream = Annotated[Callable[[str | None], Awaitable[Response]], Depends(_stream)]


@router.get("/jobs/{jobid}/events", response_class=EventSourceResponse, responses=_RESPONSES)
async def get_job_events(job: Job, stream: Stream) -> Response:
    """The events of a job, as Server-Sent Events

    Each event has an id, a type and JSON data. After every 15 seconds without an event, an empty event has the current
    id. If events are not stored any more, an event of type `gone` has the id after which the stream continues.
    """
    return await stream(job.job_id)


@router.get("/events", response_class=EventSourceResponse, responses=_RESPONSES)
async def get_events(stream: Stream) -> Response:
    """The events of all jobs and of the servers, as Server-Sent Events

    In the format of the events of one job.
    """
    return await stream(None)

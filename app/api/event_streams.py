"""Server-Sent Events: the events of `app.worker.requests.event_feed` in the form that `EventSource` reads.

FastAPI makes the text of an event. Its own way to send them (an endpoint that yields them) is not used: an operation
here is called by `app.api.calls`, and has to say how a stream that is over is let go of.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

from cachetools import LRUCache
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.types import Receive, Scope, Send

from app.api.answers import json_bytes
from app.api.auth import ANONYMOUS
from app.api.errors import RETRY, ApiError
from app.api.render.events import Names, summary
from app.model.public_event import StoredEvent
from app.worker.refusals import Unavailable
from app.worker.requests.event_feed import EventFeed, Follower, FollowingEnds, Gap, Given, Wanted

STREAMS_MAX: Final = 1_000
_TEXTS_KEPT: Final = 256
HEARTBEAT_MS: Final = 15_000
"""A proxy takes a connection for dead on which nothing comes, often after a minute."""
RECONNECT_MS: Final = 2_000
"""After which time `EventSource` comes again."""

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_NOT_ALLOWED = "The token of this stream is not valid any more."


class Streams:
    """Those that are open: at most ``most``, and a quarter of them of one principal, where callers have names."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_each = max(1, most // 4)
        self._open: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self._open.total()

    def opened(self, principal: str) -> None:
        """
        Raises:
            ApiError: there are too many.
        """
        if principal != ANONYMOUS and self._open[principal] >= self._most_each:
            raise ApiError(
                429,
                f"{self._most_each} clients of {principal} follow events already, which is the most of one name: "
                "close some of them.",
                headers=RETRY,
            )
        if self.count >= self._most:
            raise ApiError(
                503,
                f"{self._most} clients follow events already, which is the most: try again.",
                headers=RETRY,
            )
        self._open[principal] += 1

    def closed(self, principal: str) -> None:
        self._open[principal] -= 1


class EventStream(EventSourceResponse):
    """An answer that goes on. ``over`` is called in the end, however it comes."""

    def __init__(self, content: AsyncIterator[bytes], over: Callable[[], None]) -> None:
        super().__init__(content, headers=_HEADERS)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


class EventTexts:
    """Events as they are sent, each made once for all who follow. ``names``: those of the vertices of a job, by id;
    none while this server does not know the job."""

    def __init__(self, names: Callable[[str], Names]) -> None:
        self._names = names
        self._kept: LRUCache[int, bytes] = LRUCache(_TEXTS_KEPT)

    def __call__(self, given: Given) -> bytes:
        gap = [] if given.gap is None else [_gone(given.gap)]
        return b"".join([*gap, *map(self._text, given.events)])

    def _text(self, event: StoredEvent) -> bytes:
        if (text := self._kept.get(event.id)) is not None:
            return text
        names = {} if event.job_id is None else self._names(event.job_id)
        text = self._made(event, names)
        if names or event.job_id is None:
            self._kept[event.id] = text
        return text

    def _made(self, event: StoredEvent, names: Names) -> bytes:
        head = {
            "id": event.id,
            "type": event.type,
            "jid": event.job_id,
            "timestampInMillis": event.at_ms,
            "summary": summary(event.type, json.loads(event.fields), names),
        }
        # The fields go on where the head ends; every type has some.
        data = f"{json_bytes(head).decode()[:-1]},{event.fields[1:]}"
        return format_sse_event(id=str(event.id), event=event.type, data_str=data)


async def following(
    follower: Follower, text: EventTexts, is_allowed: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """What comes, until the server or the follower sends the client away. The follower has joined."""
    # So that a client whose connection breaks before the first event misses nothing.
    yield format_sse_event(retry=RECONNECT_MS, id=str(follower.cursor) if follower.is_live else None)
    try:
        while is_allowed():
            given = await follower.next(HEARTBEAT_MS)
            yield text(given) or format_sse_event(comment="heartbeat", id=str(given.cursor))
        yield _closing(_NOT_ALLOWED)
    except (FollowingEnds, Unavailable) as error:
        yield _closing(str(error))


async def stored(feed: EventFeed, wanted: Wanted, first: Given, text: EventTexts) -> AsyncIterator[bytes]:
    """What is stored, from its ``first`` page on, and no more."""
    given = first
    try:
        while True:
            yield text(given)
            if given.is_last:
                return
            given = await feed.stored(wanted, given.cursor)
    except Unavailable as error:
        yield _closing(str(error))


def _gone(gap: Gap) -> bytes:
    if gap.after < gap.cursor:
        why = f"There is no event {gap.cursor} here yet: the database is another one, or was restored."
    else:
        why = f"Events {gap.cursor + 1} to {gap.after} are not kept any more."
    told = {
        "type": "gone",
        "cursor": gap.cursor,
        "after": gap.after,
        "message": f"{why} Read the state again.",
    }
    return format_sse_event(event="gone", id=str(gap.after), data_str=json_bytes(told).decode())


def _closing(sentence: str) -> bytes:
    return format_sse_event(
        event="closing", data_str=json_bytes({"type": "closing", "message": sentence}).decode()
    )

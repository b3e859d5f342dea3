"""How events come from the store to those who follow them: one reader of the store, however many followers.

A follower first gets what is stored behind its cursor, page by page, which it reads itself; then it joins the others,
and all of them are given what the one reader finds. What the reader found last is kept, bounded in number: a follower
that does not take events for so long that its next one is not among those is sent away, to come again with its cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from app.model.public_event import PublicEventType, StoredEvent
from app.store.errors import StoreError
from app.store.events import EventPage
from app.store.store import Store
from app.worker.job.bell import Bell
from app.worker.retrying import reading

log = structlog.get_logger()

KEPT: Final = 4_096
"""Events that are kept for followers. One that is further behind is sent away."""
POLL_S: Final = 0.5
"""After which time the store is looked at for events of other servers; those of this one ring."""
PAGE: Final = 500
_RETRY_S = 1.0
_REPLAYS_AT_ONCE = 2
"""Followers that read from the store at once: its other readers are for everybody else."""

STOPPING: Final = "The server is stopping. Come again with the id of the last event."
FELL_BEHIND: Final = (
    f"More than {KEPT} events came and were not taken. Come again with the id of the last one."
)


class FollowingEnds(Exception):
    """Nothing more is given to this follower; the message is a sentence for it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a follower wants: events of one job, or of all and the cluster; of some types, or of all."""

    job_id: str | None = None
    types: frozenset[PublicEventType] | None = None

    def takes(self, event: StoredEvent) -> bool:
        return (self.job_id is None or event.job_id == self.job_id) and (
            self.types is None or event.type in self.types
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """Events behind ``cursor`` are not there any more, or ``cursor`` is not of this database. It goes on behind
    ``after``."""

    cursor: int
    after: int


@dataclass(frozen=True, slots=True)
class Given:
    """What a follower is given: perhaps a gap, then events, then nothing up to ``cursor``. ``is_last``: it has all
    that was stored when it asked."""

    events: Sequence[StoredEvent]
    cursor: int
    gap: Gap | None = None
    is_last: bool = False


class EventFeed:
    """Of one server. Everything here runs on the event loop."""

    def __init__(self, store: Store, *, kept: int = KEPT, poll_s: float = POLL_S) -> None:
        self._store = store
        self._kept, self._poll_s = kept, poll_s
        self._recent: deque[StoredEvent] = deque()
        # Every event with a number above ``base`` and up to ``newest`` is in ``_recent``.
        self.base = self.newest = 0
        self.is_closed = False
        self._followers = 0
        self._reader: asyncio.Task[None] | None = None
        self._found = Bell()
        self._committed = asyncio.Event()
        self._replays = asyncio.Semaphore(_REPLAYS_AT_ONCE)
        store.tell_events = self._committed.set

    def close(self) -> None:
        """Send all followers away."""
        self.is_closed = True
        self._found.ring()
        if self._reader is not None:
            self._reader.cancel()

    async def stored(self, wanted: Wanted, cursor: int) -> Given:
        """A page of what is stored behind ``cursor``; 0: from the oldest event on that is kept.

        Raises:
            Unavailable: the database is away.
        """
        async with self._replays:
            page = await reading(self._store.events(cursor, PAGE, job_id=wanted.job_id, types=wanted.types))
        gap = None
        if cursor > page.newest:
            gap = Gap(cursor, page.newest)
        elif 0 < cursor < page.oldest - 1:
            gap = Gap(cursor, page.oldest - 1)
        reached = page.newest if page.is_last else page.events[-1].id
        return Given(page.events, reached, gap, page.is_last)

    async def join(self) -> None:
        """There is one more follower; `leave` when there is not. The reader is at work from here on.

        Raises:
            Unavailable: the database is away.
        """
        self._followers += 1
        if self._reader is not None:
            return
        try:
            page = await reading(self._store.events(0, 0))
        except BaseException:
            self._followers -= 1
            raise
        self._begin(page.newest)

    def _begin(self, newest: int) -> None:
        # Others may have come meanwhile.
        if self._reader is None:
            self._recent.clear()
            self.base = self.newest = newest
            self._reader = asyncio.get_running_loop().create_task(self._read())

    def leave(self) -> None:
        self._followers -= 1
        if self._followers == 0 and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def recent(self, cursor: int) -> list[StoredEvent]:
        """What the reader has found behind ``cursor``, which is not below `base`; oldest first."""
        found = []
        for event in reversed(self._recent):
            if event.id <= cursor:
                break
            found.append(event)
        return found[::-1]

    async def arrival(self, timeout_ms: int) -> None:
        """Returns when the reader has found something, or everybody is sent away, or after ``timeout_ms``."""
        await self._found.wait(timeout_ms)

    async def _read(self) -> None:
        """The one reader."""
        while True:
            self._committed.clear()
            wait_s = self._poll_s
            try:
                page = await self._store.events(self.newest, PAGE)
            except Exception as error:
                defect = None if isinstance(error, StoreError) else error
                log.warning("events cannot be read", error=str(error), retry_in_s=_RETRY_S, exc_info=defect)
                wait_s = _RETRY_S
            else:
                self._take(page)
                if not page.is_last:
                    continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._committed.wait(), wait_s)

    def _take(self, page: EventPage) -> None:
        for event in page.events:
            self._recent.append(event)
            self.newest = event.id
        while len(self._recent) > self._kept:
            self.base = self._recent.popleft().id
        if page.events:
            self._found.ring()


class Follower:
    """One who follows what comes behind the event ``cursor``; 0: from the oldest event on that is kept, None: from now
    on. `join` it, call `next` again and again, and `leave` it. ``is_live``: it has all that was stored when it came."""

    def __init__(self, feed: EventFeed, wanted: Wanted, cursor: int | None) -> None:
        self._feed, self._wanted = feed, wanted
        self.is_live = cursor is None
        self.cursor = cursor or 0

    async def join(self) -> None:
        """
        Raises:
            Unavailable: the database is away.
        """
        await self._feed.join()
        if self.is_live:
            self.cursor = self._feed.newest

    def leave(self) -> None:
        self._feed.leave()

    async def next(self, timeout_ms: int) -> Given:
        """What comes next; no events after ``timeout_ms`` without any.

        Raises:
            FollowingEnds: nothing more comes.
            Unavailable: the database is away.
        """
        feed = self._feed
        if feed.is_closed:
            raise FollowingEnds(STOPPING)
        if not self.is_live:
            given = await feed.stored(self._wanted, self.cursor)
            self.cursor = given.cursor
            # If so, the reader has all that follows.
            self.is_live = given.is_last and self.cursor >= feed.base
            return given
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_ms / 1000
        while True:
            if self.cursor < feed.base:
                raise FollowingEnds(FELL_BEHIND)
            events = [event for event in feed.recent(self.cursor) if self._wanted.takes(event)]
            self.cursor = max(self.cursor, feed.newest)
            left_ms = round((until_s - loop.time()) * 1000)
            if events or left_ms <= 0 or feed.is_closed:
                return Given(events, self.cursor)
            await feed.arrival(left_ms)

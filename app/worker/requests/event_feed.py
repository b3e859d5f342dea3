"""Delivery of stored events to clients: one reader of the store for all followers.

A follower first reads the stored events after its cursor, page by page. Then it joins the other followers, and
all of them get the events that the one reader finds. The latest events are kept in memory, bounded in number
and size. If the next event of a slow follower is not among them any more, its stream is closed, and it has to
reconnect with its cursor.
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
from app.worker.refusals import Unavailable
from app.worker.retrying import reading

log = structlog.get_logger()

KEPT: Final = 4_096
"""Events that are kept for followers. One that is further behind is sent away."""
KEPT_CHARS: Final = 4 << 20
"""How long the texts of those are together."""
PIECE_CHARS: Final = 64 << 10
"""A page of the store, and what a follower is given at once, ends with the event that fills it: a client that does not
read holds one piece."""
POLL_S: Final = 0.5
"""After which time the store is looked at for events of other servers; those of this one ring."""
PAGE: Final = 500
_RETRY_S = 1.0
_AWAY_S = 5.0
"""Followers are not told of a database that is away for less."""
_REPLAYS_AT_ONCE = 2
"""Followers that read from the store at once: its other readers are for everybody else."""

STOPPING: Final = "The server is stopping. Come again with the id of the last event."
FELL_BEHIND: Final = (
    "More events came and were not taken than are kept in memory. Come again with the id of the last one."
)
FORGOTTEN: Final = "The job was deleted, with its events."
_UNREADABLE: Final = "The events cannot be read. Try again."


class FollowingEnds(Exception):
    """Nothing more is given to this follower; the message is a sentence for it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a follower wants: events of one job, or of all and the cluster; of some types, or of all."""

    job_id: str | None = None
    types: frozenset[PublicEventType] | None = None

    def takes(self, event: StoredEvent) -> bool:
        is_meant = self.job_id is None or event.job_id == self.job_id or self.ends_with(event)
        return is_meant and (self.types is None or event.type in self.types)

    def ends_with(self, event: StoredEvent) -> bool:
        """Whether nothing comes after ``event``: it tells that the job was forgotten."""
        return self.job_id is not None and event.forgotten_job == self.job_id


@dataclass(frozen=True, slots=True)
class Gap:
    """Events behind ``cursor`` are not there any more, or ``cursor`` is not of this database. It goes on behind
    ``after``."""

    cursor: int
    after: int


@dataclass(frozen=True, slots=True)
class Given:
    """What a follower is given: perhaps a gap, then events, then nothing up to ``cursor``. ``is_last``: it has all
    that was stored when it asked. ``is_over``: nothing will ever come, since the job was forgotten."""

    events: Sequence[StoredEvent]
    cursor: int
    gap: Gap | None = None
    is_last: bool = False
    is_over: bool = False


class EventFeed:
    """Of one server. Everything here runs on the event loop."""

    def __init__(
        self, store: Store, *, kept: int = KEPT, kept_chars: int = KEPT_CHARS, poll_s: float = POLL_S
    ) -> None:
        self._store = store
        self._kept, self._kept_chars, self._poll_s = kept, kept_chars, poll_s
        self._recent: deque[StoredEvent] = deque()
        self._chars = 0
        # Every event with a number above ``base`` and up to ``newest`` is in ``_recent``.
        self.base = self.newest = 0
        # Another one after each gap: who came before goes on by what is stored.
        self.era = 0
        # Why events cannot be read now, when that has been so for a while.
        self.away = ""
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
            page = await reading(
                self._store.events(cursor, PAGE, job_id=wanted.job_id, types=wanted.types, chars=PIECE_CHARS)
            )
        gap = None
        if cursor > page.newest:
            gap = Gap(cursor, page.newest)
        elif 0 < cursor < page.oldest - 1:
            gap = Gap(cursor, page.oldest - 1)
        reached = page.newest if page.is_last else page.events[-1].id
        events = [event for event in page.events if wanted.takes(event)]
        return Given(events, reached, gap, page.is_last, any(map(wanted.ends_with, page.events)))

    async def join(self) -> None:
        """There is one more follower; `leave` when there is not. The reader is at work from here on.

        Raises:
            Unavailable: the database is away.
        """
        if self.away:
            raise Unavailable(self.away)
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
            self._begin_anew(newest)
            self._reader = asyncio.get_running_loop().create_task(self._read())

    def _begin_anew(self, newest: int) -> None:
        self._recent.clear()
        self._chars = 0
        self.base = self.newest = newest
        self.era += 1

    def leave(self) -> None:
        self._followers -= 1
        if self._followers == 0 and self._reader is not None:
            self._reader.cancel()
            self._reader, self.away = None, ""

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
        now_s = asyncio.get_running_loop().time
        read_s = now_s()
        while True:
            self._committed.clear()
            wait_s = self._poll_s
            try:
                page = await self._store.events(self.newest, PAGE, chars=PIECE_CHARS)
            except Exception as error:
                defect = None if isinstance(error, StoreError) else error
                log.warning("events cannot be read", error=str(error), retry_in_s=_RETRY_S, exc_info=defect)
                wait_s = _RETRY_S
                if now_s() - read_s >= _AWAY_S:
                    self.away = _UNREADABLE if defect else str(error)
                    self._found.ring()
            else:
                read_s, self.away = now_s(), ""
                self._take(page)
                if not page.is_last:
                    continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._committed.wait()

    def _take(self, page: EventPage) -> None:
        is_restored = page.newest < self.newest
        has_gap = page.oldest > self.newest + 1
        if is_restored or has_gap:
            # The database was restored to an older state, or could not be read until events were too old to keep:
            # followers go on by what is stored, which tells them of the gap.
            self._begin_anew(page.newest if is_restored else page.oldest - 1)
        for event in page.events:
            self._recent.append(event)
            self._chars += len(event.fields)
            self.newest = event.id
        while len(self._recent) > self._kept or (self._chars > self._kept_chars and len(self._recent) > 1):
            oldest = self._recent.popleft()
            self._chars -= len(oldest.fields)
            self.base = oldest.id
        if page.events or is_restored:
            self._found.ring()


class Follower:
    """One who follows what comes behind the event ``cursor``; 0: from the oldest event on that is kept, None: from now
    on. `join` it, call `next` again and again, and `leave` it. ``is_live``: it has all that was stored when it came."""

    def __init__(self, feed: EventFeed, wanted: Wanted, cursor: int | None) -> None:
        self._feed, self._wanted = feed, wanted
        self.is_live = cursor is None
        self.cursor = cursor or 0
        self._era = 0
        self._is_over = False

    async def join(self) -> None:
        """Raises Unavailable: the database is away."""
        await self._feed.join()
        self._era = self._feed.era
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
        self._check()
        feed = self._feed
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_ms / 1000
        while True:
            if not self.is_live or self._era != feed.era:
                return await self._replayed()
            if self.cursor < feed.base:
                raise FollowingEnds(FELL_BEHIND)
            events = self._piece()
            left_ms = round((until_s - loop.time()) * 1000)
            if events or self._is_over or left_ms <= 0 or feed.is_closed or feed.away:
                return Given(events, self.cursor)
            await feed.arrival(left_ms)

    def _check(self) -> None:
        if self._is_over:
            raise FollowingEnds(FORGOTTEN)
        if self._feed.is_closed:
            raise FollowingEnds(STOPPING)
        if self._feed.away:
            raise Unavailable(self._feed.away)

    async def _replayed(self) -> Given:
        """What comes next in the store."""
        feed, self._era = self._feed, self._feed.era
        given = await feed.stored(self._wanted, self.cursor)
        self.cursor, self._is_over = given.cursor, given.is_over
        # If so, the reader has all that follows.
        self.is_live = given.is_last and self.cursor >= feed.base
        return given

    def _piece(self) -> list[StoredEvent]:
        """What comes next of that which the reader has found."""
        events: list[StoredEvent] = []
        chars = 0
        for event in self._feed.recent(self.cursor):
            self.cursor = event.id
            self._is_over = self._wanted.ends_with(event)
            if self._wanted.takes(event):
                events.append(event)
                chars += len(event.fields)
            if self._is_over or chars >= PIECE_CHARS:
                return events
        self.cursor = max(self.cursor, self._feed.newest)
        return events

"""One reader for all followers: what it keeps, who falls behind, and a database that is away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Connection

from app.model.public_event import PublicEvent, PublicEventType
from app.store.errors import StoreUnavailable
from app.store.store import Store
from app.store.tables import events
from app.store.writes import AddEvents, UnitOfWork
from app.worker.refusals import Unavailable
from app.worker.requests import event_feed
from app.worker.requests.event_feed import (
    FELL_BEHIND,
    EventFeed,
    Follower,
    FollowingEnds,
    Gap,
    Given,
    Wanted,
)
from tests.unit.store import samples

JOB = samples.job_id(1)
LONG_MS = 20_000


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(sqlite_url, "owner-1", durable=False)
    await opened.commit(samples.creation())
    yield opened
    await opened.close()


@pytest.fixture
async def feed(store: Store) -> AsyncIterator[EventFeed]:
    opened = EventFeed(store, kept=5)
    yield opened
    opened.close()


async def tell(store: Store, count: int, kind: PublicEventType = PublicEventType.FAILURE) -> None:
    event = PublicEvent(kind, samples.NOW_MS, {"error": "x"})
    await store.commit(UnitOfWork(JOB, 1).add(AddEvents((event,) * count)))


async def joined(feed: EventFeed, cursor: int | None = None, wanted: Wanted | None = None) -> Follower:
    follower = Follower(feed, wanted or Wanted(), cursor)
    await follower.join()
    return follower


async def take(follower: Follower, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [event.id for event in (await follower.next(LONG_MS)).events]
    return found


async def has_read(feed: EventFeed, number: int) -> None:
    async with asyncio.timeout(20):
        while feed.newest < number:
            await asyncio.sleep(0.001)


async def test_who_is_further_behind_than_what_is_kept_is_sent_away(store: Store, feed: EventFeed) -> None:
    slow, quick = await joined(feed), await joined(feed)
    for first in (1, 4):
        await tell(store, 3)
        assert await take(quick, 3) == [first, first + 1, first + 2]
    with pytest.raises(FollowingEnds, match="events came and were not taken"):
        await slow.next(LONG_MS)
    assert "Come again" in FELL_BEHIND
    slow.leave()
    again = await joined(feed, slow.cursor)
    assert await take(again, 6) == [1, 2, 3, 4, 5, 6], "it goes on where it was, from the store"


async def test_who_comes_from_far_back_reads_the_store_until_the_reader_has_the_rest(
    store: Store, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "PAGE", 4)
    await tell(store, 11)
    follower = await joined(feed, 0)
    first = await follower.next(LONG_MS)
    assert ([event.id for event in first.events], follower.is_live) == ([1, 2, 3, 4], False)
    await tell(store, 9)
    await has_read(feed, 20)
    assert feed.base == 15
    assert await take(follower, 16) == list(range(5, 21))
    assert not (await follower.next(1)).events
    assert follower.is_live
    await tell(store, 1)
    assert await take(follower, 1) == [21]


async def test_a_follower_of_other_types_is_not_woken_and_its_cursor_moves_on(
    store: Store, feed: EventFeed
) -> None:
    follower = await joined(feed, None, Wanted(JOB, frozenset({PublicEventType.STATUS})))
    waiting = asyncio.create_task(follower.next(LONG_MS))
    await tell(store, 2)
    await has_read(feed, 2)
    await tell(store, 1, PublicEventType.STATUS)
    assert [event.id for event in (await waiting).events] == [3]
    await tell(store, 2)
    await has_read(feed, 5)
    given = await follower.next(1)
    assert (list(given.events), given.cursor) == ([], 5)


async def test_events_of_another_server_are_found_without_being_rung_for(
    store: Store, sqlite_url: str
) -> None:
    feed = EventFeed(store, poll_s=0.01)
    follower = await joined(feed)
    other = await Store.open(sqlite_url, "owner-1", durable=False)
    await tell(other, 1)
    assert await take(follower, 1) == [1]
    await other.close()
    feed.close()


async def test_a_database_that_is_away_for_a_while_costs_nobody_an_event(
    store: Store, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "_RETRY_S", 0.01)
    follower = await joined(feed)
    read, failures = store.events, 0

    async def away(*arguments: Any, **which: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures < 4:
            raise StoreUnavailable("The database is away.")
        return await read(*arguments, **which)

    monkeypatch.setattr(store, "events", away)
    await tell(store, 2)
    assert await take(follower, 2) == [1, 2]
    assert failures >= 4


async def test_a_follower_that_cannot_join_is_not_counted(
    store: Store, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("The database is away.")

    with monkeypatch.context() as patched:
        patched.setattr(store, "events", away)
        with pytest.raises(Exception, match="The database is away"):
            await joined(feed)
    follower = await joined(feed)
    follower.leave()
    assert feed._reader is None


# -- how much is in memory


async def test_a_page_and_a_piece_end_with_the_event_that_fills_them(
    store: Store, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len('{"error":"x"}')
    monkeypatch.setattr(event_feed, "PIECE_CHARS", 2 * size - 1)
    await tell(store, 5)
    replaying, live = await joined(feed, 0), await joined(feed)
    for expected in ([1, 2], [3, 4], [5]):
        given = await replaying.next(LONG_MS)
        assert [event.id for event in given.events] == expected
    assert given.is_last and replaying.is_live
    await tell(store, 3)
    await has_read(feed, 8)
    for expected in ([6, 7], [8]):
        assert [event.id for event in (await live.next(LONG_MS)).events] == expected


async def test_what_is_kept_is_bounded_in_size(store: Store) -> None:
    feed = EventFeed(store, kept_chars=3 * len('{"error":"x"}'))
    slow = await joined(feed)
    for number in range(1, 6):
        await tell(store, 1)
        await has_read(feed, number)
    assert [event.id for event in feed.recent(feed.base)] == [3, 4, 5]
    with pytest.raises(FollowingEnds, match="than are kept in memory"):
        await slow.next(LONG_MS)
    feed.close()


# -- ends and gaps


async def end_job(store: Store) -> None:
    await store.commit(samples.finish(JOB, 2))


@pytest.mark.parametrize("cursor", [None, 0])
@pytest.mark.parametrize("types", [None, frozenset({PublicEventType.STATUS})])
async def test_who_follows_a_job_that_is_forgotten_is_told_so_and_sent_away(
    store: Store, feed: EventFeed, cursor: int | None, types: frozenset[PublicEventType] | None
) -> None:
    await store.commit(samples.creation(2))
    await tell(store, 2)
    await end_job(store)
    follower = await joined(feed, cursor, Wanted(JOB, types))
    other = await joined(feed, cursor, Wanted(samples.job_id(2)))
    assert await store.forget(JOB)
    found = []
    with pytest.raises(FollowingEnds, match="The job was deleted"):
        while True:
            found += [event.type for event in (await follower.next(LONG_MS)).events]
    assert found == (["job-forgotten"] if types is None else [])
    await has_read(feed, 3)
    assert not (await other.next(1)).events, "another job is not meant"


async def test_events_that_grew_too_old_while_the_database_was_away_are_told_as_a_gap(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "_RETRY_S", 0.01)
    feed = EventFeed(store, poll_s=0.01)
    await tell(store, 2)
    follower = await joined(feed)
    asked = asyncio.Event()

    async def away(*_: Any, **__: Any) -> Any:
        asked.set()
        await unavailable()

    with monkeypatch.context() as patched:
        patched.setattr(store, "events", away)
        async with asyncio.timeout(LONG_MS / 1000):
            await asked.wait()
        await tell(store, 6)
        await store.prune_events(older_than_ms=0, most=2, limit=100)
    given = await follower.next(LONG_MS)
    assert given.gap == Gap(2, 6)
    assert [event.id for event in given.events] == [7, 8]
    await tell(store, 1)
    assert await take(follower, 1) == [9]
    feed.close()


async def test_a_database_that_was_restored_to_an_older_state_is_gone_on_with_behind_a_gap(
    store: Store, sqlite_url: str
) -> None:
    feed = EventFeed(store, poll_s=0.01)
    await tell(store, 5)
    first, second = await joined(feed), await joined(feed)
    await tell(store, 2)
    for one in (first, second):
        assert await take(one, 2) == [6, 7]

    def restore(connection: Connection) -> None:
        connection.execute(events.delete().where(events.c.id > 3))

    await store.write(restore)
    for one in (first, second):
        given = Given([], 0)
        while given.gap is None:
            given = await one.next(20)
        assert (given.gap, list(given.events), one.cursor) == (Gap(7, 3), [], 3)
    await tell(store, 1)
    assert await take(first, 1) == [4] == await take(second, 1)
    feed.close()


async def unavailable(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("The database is away.")


async def test_followers_are_sent_away_from_a_database_that_stays_away(
    store: Store, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "_RETRY_S", 0.01)
    monkeypatch.setattr(event_feed, "_AWAY_S", 0.05)
    follower = await joined(feed)
    with monkeypatch.context() as patched:
        patched.setattr(store, "events", unavailable)
        await tell(store, 1)
        await follower.next(LONG_MS)
        with pytest.raises(Unavailable, match="The database is away"):
            await follower.next(LONG_MS)
        with pytest.raises(Unavailable, match="The database is away"):
            await joined(feed)
    follower.leave()
    assert feed._reader is None, "who could not join is not counted"
    again = await joined(feed, follower.cursor)
    assert await take(again, 1) == [1]

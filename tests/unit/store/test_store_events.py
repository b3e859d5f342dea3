"""Events become visible in the order of their numbers, with the step that they tell of, and are kept for a while."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from app.model.public_event import PublicEvent, PublicEventType, StoredEvent
from app.model.rescale import TerminatedReason
from app.store import engine as engine_module
from app.store import events as store_events
from app.store import writer as writer_module
from app.store.engine import Database, create, parse_url
from app.store.errors import StateConflict, StoreError, StoreUnavailable
from app.store.events import event_row, insert_events
from app.store.store import Store
from app.store.writes import AddEvents, PutRescale, UnitOfWork
from tests.unit.store import samples
from tests.unit.store.conftest import Opener

pytestmark = pytest.mark.asyncio

JOB, OTHER = samples.job_id(1), samples.job_id(2)
PATIENCE_S = 30.0


def event(number: int = 0, kind: PublicEventType = PublicEventType.FAILURE) -> PublicEvent:
    return PublicEvent(kind, samples.NOW_MS + number, {"number": number, "error": "Zürich\x00"})


def telling(job: str, *numbers: int) -> UnitOfWork:
    return UnitOfWork(job, 1).add(AddEvents(tuple(event(number) for number in numbers)))


async def all_of(store: Store, after: int = 0, **which: Any) -> list[StoredEvent]:
    return list((await store.events(after, 10_000, **which)).events)


async def numbers(store: Store, after: int = 0, **which: Any) -> list[int]:
    return [one.id for one in await all_of(store, after, **which)]


async def test_events_are_numbered_over_all_jobs_and_read_from_any_number_on(store: Store) -> None:
    assert await store.events(0, 10) == store_events.EventPage([], 0, 0, True)
    await store.commit(samples.creation(1))
    await store.commit(samples.creation(2))
    await store.commit(telling(JOB, 1, 2, 3))
    await store.commit(telling(OTHER, 4))
    await store.commit(telling(JOB, 5))
    found = await all_of(store)
    assert [(one.id, one.job_id) for one in found] == [(1, JOB), (2, JOB), (3, JOB), (4, OTHER), (5, JOB)]
    assert (found[3].type, found[3].at_ms) == ("failure", samples.NOW_MS + 4)
    assert found[3].fields == '{"number":4,"error":"Zürich\\u0000"}'
    await store.commit(
        UnitOfWork(JOB, 1).add(AddEvents((PublicEvent(event().type, 1, {"error": "\ud800"}),)))
    )
    assert (await all_of(store, 5))[0].fields == '{"error":"\\ud800"}'
    assert await numbers(store, 3) == [4, 5, 6]
    assert await numbers(store, job_id=JOB) == [1, 2, 3, 5, 6]
    assert await numbers(store, 1, job_id=JOB, types={PublicEventType.FAILURE}) == [2, 3, 5, 6]
    assert await numbers(store, types={PublicEventType.STATUS}) == []
    page = await store.events(0, 2, job_id=JOB)
    assert ([one.id for one in page.events], page.oldest, page.newest, page.is_last) == ([1, 2], 1, 6, False)


async def test_more_events_than_a_statement_takes_have_numbers_without_gaps(store: Store) -> None:
    await store.commit(samples.creation())
    await store.commit(telling(JOB, *range(203)))
    found = await all_of(store)
    assert [one.id for one in found] == list(range(1, 204))
    assert [one.at_ms - samples.NOW_MS for one in found] == list(range(203))


async def test_a_page_ends_with_the_event_that_fills_it(store: Store) -> None:
    await store.commit(samples.creation(1))
    await store.commit(samples.creation(2))
    sizes = (10, 40, 10, 200, 10)
    told = tuple(PublicEvent(event().type, 1, {"e": "ü" * (size - 8)}) for size in sizes)
    await store.commit(UnitOfWork(JOB, 1).add(AddEvents(told)))
    await store.commit(telling(OTHER, 1))
    assert [len(one.fields) for one in await all_of(store, job_id=JOB)] == list(sizes)
    pages, after = [], 0
    while True:
        page = await store.events(after, 3, job_id=JOB, chars=50)
        pages.append([one.id for one in page.events])
        if page.is_last:
            break
        after = page.events[-1].id
    assert pages == [[1, 2], [3, 4], [5]]
    assert [one.id for one in (await store.events(0, 2, chars=10_000)).events] == [1, 2]


async def test_a_step_that_is_refused_leaves_no_event(store: Store) -> None:
    await store.commit(samples.creation())
    await store.commit(samples.put(JOB, 2).add(AddEvents((event(2),))))
    with pytest.raises(StateConflict):
        await store.commit(samples.put(JOB, 2).add(AddEvents((event(3),))))
    with pytest.raises(Exception, match="ended"):
        again = PutRescale(samples.record(JOB, 1, reason=TerminatedReason.SUCCEEDED))
        open_again = PutRescale(samples.record(JOB, 1))
        await store.commit(UnitOfWork(JOB, 1).add(again, open_again, AddEvents((event(4),))))
    assert [one.at_ms for one in await all_of(store)] == [samples.NOW_MS + 2]


async def test_a_follower_is_told_of_commits_with_events_only(store: Store) -> None:
    told = 0

    def tell() -> None:
        nonlocal told
        told += 1

    store.tell_events = tell
    await store.commit(samples.creation())
    assert told == 0
    await store.commit(telling(JOB, 1))
    assert told == 1


# -- the order in which numbers become visible


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection of another server, which writes."""
    engine: Engine = create(parse_url(url), write=True, pool_size=1)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def insert(connection: Connection, *found: PublicEvent) -> None:
    insert_events(connection, [event_row(JOB, one) for one in found])


async def eventually(there: Callable[[], Any], what: str) -> Any:
    until_s = time.monotonic() + PATIENCE_S
    while not (found := there()):
        assert time.monotonic() < until_s, what
        await asyncio.sleep(0.005)
    return found


def waits_for_the_lock(url: str) -> bool:
    with connected(url) as looking:
        query = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return bool(looking.execute(query).scalar())


async def test_a_transaction_that_took_its_numbers_first_is_visible_first(
    postgresql_url: str, open_store: Opener
) -> None:
    """Two connections: the one that is committed later cannot have the lower number, and nobody sees 2 before 1."""
    reader = await Store.open(postgresql_url, "reader")
    await reader.commit(samples.creation())
    with connected(postgresql_url) as first, connected(postgresql_url) as second:
        first.begin()
        second.begin()
        second.execute(text("SELECT 1"))  # It has begun before the other one has numbers.
        insert(first, event(1), event(2))
        overtaking = threading.Thread(target=lambda: (insert(second, event(3)), second.commit()))
        overtaking.start()
        await eventually(lambda: waits_for_the_lock(postgresql_url), "the second one waits")
        assert await numbers(reader) == []
        first.commit()
        await eventually(lambda: not overtaking.is_alive(), "the second one goes on")
    assert [(one.id, one.at_ms - samples.NOW_MS) for one in await all_of(reader)] == [(1, 1), (2, 2), (3, 3)]
    await reader.close()


async def test_a_transaction_that_is_rolled_back_leaves_its_numbers_to_the_next(postgresql_url: str) -> None:
    reader = await Store.open(postgresql_url, "reader")
    await reader.commit(samples.creation())
    with connected(postgresql_url) as first:
        first.begin()
        insert(first, event(1))
        first.rollback()
    await reader.commit(telling(JOB, 2))
    assert [(one.id, one.at_ms - samples.NOW_MS) for one in await all_of(reader)] == [(1, 2)]
    await reader.close()


async def test_a_server_that_is_silent_while_it_has_numbers_does_not_stop_the_others(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_events, "_TAKE_LOCK", store_events._TAKE_LOCK.replace("'5000'", "'300'"))
    store = await Store.open(postgresql_url, "living")
    await store.commit(samples.creation())
    with connected(postgresql_url) as silent:
        silent.begin()
        insert(silent, event(1))
        begun_s = time.monotonic()
        await store.commit(telling(JOB, 2))
        assert time.monotonic() - begun_s < 8, "it waited for longer than the silent one is borne"
        assert [one.at_ms - samples.NOW_MS for one in await all_of(store)] == [2]
        silent.invalidate()
    await store.close()


async def test_a_reader_that_goes_from_number_to_number_meets_each_event_of_many_writers_once(
    open_store: Opener,
) -> None:
    """Each of four servers writes at its own pace; a fifth one reads all the time."""
    reader = await open_store("reader")
    writers = [await open_store(f"writer-{number}", durable=False) for number in range(1, 5)]
    for number, writer in enumerate(writers, 1):
        await writer.commit(samples.creation(number))
    each, met = 60, list[StoredEvent]()

    async def write(number: int, writer: Store) -> None:
        for turn in range(each):
            await writer.commit(telling(samples.job_id(number), *range(1 + turn % 3)))

    async def read() -> None:
        while len(met) < 4 * 2 * each:
            met.extend(await all_of(reader, met[-1].id if met else 0))

    async with asyncio.timeout(PATIENCE_S * 4), asyncio.TaskGroup() as group:
        group.create_task(read())
        for number, writer in enumerate(writers, 1):
            group.create_task(write(number, writer))
    assert [one.id for one in met] == list(range(1, 4 * 2 * each + 1))
    assert await all_of(reader, met[-1].id) == []


@pytest.mark.parametrize("table", ["requirements", "events"])
async def test_a_job_that_takes_long_to_remove_does_not_hold_up_the_events_of_others(
    postgresql_url: str, table: str
) -> None:
    forgetting, others = await Store.open(postgresql_url, "one"), await Store.open(postgresql_url, "two")
    await forgetting.commit(samples.creation(1))
    await others.commit(samples.creation(2))
    await forgetting.commit(samples.finish(JOB, 2).add(AddEvents((event(1), event(2)))))
    with connected(postgresql_url) as slow:
        order = "id" if table == "events" else "version"
        slow.execute(
            text(f"SELECT 1 FROM {table} WHERE job_id = '{JOB}' ORDER BY {order} LIMIT 1 FOR UPDATE")
        )
        forgotten = asyncio.create_task(forgetting.forget(JOB))
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        with connected(postgresql_url) as looking:
            await eventually(lambda: looking.execute(text(blocked)).scalar(), "it waits for the row")
        async with asyncio.timeout(5):
            await others.commit(telling(OTHER, 3))
        assert not forgotten.done()
        slow.rollback()
    assert await forgotten is True
    assert [(one.id, one.job_id) for one in await all_of(others)] == [(3, OTHER), (4, None)]
    await forgetting.close()
    await others.close()


async def test_a_lock_of_events_that_is_held_for_too_long_is_waited_for_again(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 100)
    refused = 0

    def counted(error: SQLAlchemyError, database: Database) -> StoreError:
        nonlocal refused
        refused += 1
        return engine_module.translate(error, database)

    monkeypatch.setattr(writer_module, "translate", counted)
    patient = await Store.open(postgresql_url, "patient", commit_deadline_s=PATIENCE_S)
    hasty = await Store.open(postgresql_url, "hasty", commit_deadline_s=0.01)
    await patient.commit(samples.creation(1))
    await hasty.commit(samples.creation(2))
    with connected(postgresql_url) as holder:
        insert(holder, event(1))
        with pytest.raises(StoreUnavailable, match="Other servers wrote events to the database"):
            await hasty.commit(telling(OTHER, 2))
        waiting = asyncio.create_task(patient.commit(telling(JOB, 3)))
        await eventually(lambda: refused >= 3, "it tries again")
        holder.rollback()
    await waiting
    assert [one.job_id for one in await all_of(hasty)] == [JOB]
    await patient.close()
    await hasty.close()


# -- what is kept


async def test_the_oldest_go_by_number_and_by_age_and_the_newest_stays(store: Store) -> None:
    await store.commit(samples.creation())
    await store.commit(telling(JOB, *range(1, 11)))
    now_ms = samples.NOW_MS
    assert await store.prune_events(older_than_ms=0, most=10, limit=100) == 0
    assert await store.prune_events(older_than_ms=0, most=8, limit=1) == 1
    assert await store.prune_events(older_than_ms=0, most=8, limit=100) == 1
    assert await numbers(store) == list(range(3, 11))
    assert await store.prune_events(older_than_ms=now_ms + 6, most=100, limit=100) == 3
    assert await numbers(store) == [6, 7, 8, 9, 10]
    assert await store.prune_events(older_than_ms=now_ms + 1_000, most=1, limit=100) == 4
    assert await numbers(store) == [10]
    await store.commit(telling(JOB, 11))
    page = await store.events(3, 10)
    assert ([one.id for one in page.events], page.oldest, page.newest) == ([10, 11], 10, 11)


async def test_nothing_is_removed_where_there_is_nothing(store: Store) -> None:
    assert await store.prune_events(older_than_ms=samples.NOW_MS, most=1, limit=100) == 0


async def test_a_clock_that_went_back_keeps_what_is_behind_a_younger_event(store: Store) -> None:
    await store.commit(samples.creation())
    await store.commit(telling(JOB, 5, 900, 6, 901))
    assert await store.prune_events(older_than_ms=samples.NOW_MS + 100, most=100, limit=100) == 1
    assert await numbers(store) == [2, 3, 4], "what is removed is the beginning, without holes"


async def test_a_forgotten_job_takes_its_events_along_and_numbers_go_on(store: Store) -> None:
    await store.commit(samples.creation(1))
    await store.commit(samples.creation(2))
    await store.commit(telling(OTHER, 1))
    await store.commit(samples.finish(JOB, 2).add(AddEvents((event(2), event(3)))))
    assert await store.forget("f" * 32) is False
    with pytest.raises(StateConflict, match="has not ended"):
        await store.forget(OTHER)
    assert await store.forget(JOB) is True
    (kept, forgotten) = await all_of(store)
    assert (kept.id, kept.job_id) == (1, OTHER)
    assert (forgotten.id, forgotten.job_id, forgotten.type) == (4, None, "job-forgotten")
    assert forgotten.fields == f'{{"forgottenJob":"{JOB}"}}'
    assert forgotten.at_ms > 1_600_000_000_000
    assert await all_of(store, 3, job_id=JOB) == [forgotten], "who follows the job is told too"
    assert await all_of(store, 3, job_id=OTHER) == await all_of(store, 4, job_id=JOB) == []
    await store.commit(telling(OTHER, 2))
    assert await numbers(store) == [1, 4, 5]

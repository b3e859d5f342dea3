"""The database is locked, full, gone, or goes away while it commits: callers hear the truth, and it is all over
once the database is back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text

from app.model.rescale import TerminatedReason
from app.store import engine as store_engine
from app.store import statements
from app.store import store as store_module
from app.store.engine import create, parse_url
from app.store.errors import ConstraintViolated, OutcomeUnknown, StoreUnavailable
from app.store.store import Store
from app.store.writes import AddArtifact, AddIdempotencyKey, UnitOfWork
from tests.databases import PostgresServer
from tests.unit.store import samples
from tests.unit.store.conftest import Opener

pytestmark = pytest.mark.asyncio

JOB = samples.job_id(1)
SHORT_S = 0.4


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement waits for a lock for so long only."""
    monkeypatch.setattr(store_engine, "BUSY_TIMEOUT_MS", int(SHORT_S * 1000))


@contextmanager
def locked_by_another(url: str) -> Iterator[None]:
    """Another client holds what a commit needs."""
    other: Engine = create(parse_url(url), write=True, pool_size=1)
    try:
        with other.connect() as connection, connection.begin():
            if other.dialect.name == "postgresql":
                connection.execute(text("LOCK TABLE job_states IN EXCLUSIVE MODE"))
            yield
    finally:
        other.dispose()


async def stored_seq(store: Store) -> int:
    found = await store.load_job(JOB)
    assert found is not None
    return found.seq


# Locked


async def test_a_locked_database_refuses_writes_but_not_reads_and_recovers(
    short_waits: None, open_store: Opener, database_url: str
) -> None:
    store = await open_store()
    await store.commit(samples.creation())
    unit = samples.put(JOB, 2)
    with locked_by_another(database_url):
        with pytest.raises(StoreUnavailable, match=r"locked by another (process|client)") as refused:
            await store.commit(unit)
        assert not isinstance(refused.value, OutcomeUnknown)
        assert await stored_seq(store) == 1
    await store.commit(unit)
    assert await stored_seq(store) == 2


async def test_a_lock_that_is_let_go_in_time_is_waited_for(open_store: Opener, database_url: str) -> None:
    store = await open_store()
    await store.commit(samples.creation())
    with locked_by_another(database_url):
        committing = asyncio.create_task(store.commit(samples.put(JOB, 2)))
        done, _ = await asyncio.wait([committing], timeout=0.3)
        assert not done
    await committing
    assert await stored_seq(store) == 2


# SQLite: full


async def test_a_full_disk_is_told_and_over_when_there_is_space_again(sqlite_url: str) -> None:
    store = await Store.open(sqlite_url, "me")
    try:
        await store.commit(samples.creation())

        def pages(limit: int | None) -> Callable[[Any], int]:
            def set_limit(connection: Any) -> int:
                used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                return int(
                    connection.exec_driver_sql(f"PRAGMA max_page_count = {limit or used + 4}").scalar_one()
                )

            return set_limit

        await store.write(pages(None))
        big = samples.put(JOB, 2).add(AddArtifact("big", b"x" * 1_000_000))
        for _ in range(3):
            with pytest.raises(
                StoreUnavailable, match="is full: nothing can be recorded until space is freed"
            ):
                await store.commit(big)
        assert await stored_seq(store) == 1
        assert await store.artifacts(JOB) == {}
        await store.commit(samples.starts(JOB))  # what still fits is written
        await store.write(pages(1_000_000))
        await store.commit(big)
        assert await stored_seq(store) == 2
        assert len((await store.artifacts(JOB))["big"]) == 1_000_000
    finally:
        await store.close()


# PostgreSQL: gone


@asynccontextmanager
async def opened(url: str, deadline_s: float) -> AsyncIterator[Store]:
    store = await Store.open(url, "me", commit_deadline_s=deadline_s)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def mortal_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """The server, which the test may kill; it is there again afterwards."""
    yield postgres_server
    if postgres_server.process is None:
        postgres_server.launch()


async def test_while_the_server_is_away_nothing_is_written_and_everything_is_told(
    mortal_server: PostgresServer, postgresql_url: str
) -> None:
    async with opened(postgresql_url, SHORT_S) as store:
        await store.commit(samples.creation())
        mortal_server.kill()
        for call in (store.commit(samples.put(JOB, 2)), store.claim_leases(), store.ping()):
            with pytest.raises(StoreUnavailable, match="cannot be reached") as refused:
                await call
            assert not isinstance(refused.value, OutcomeUnknown)
        mortal_server.launch()
        await store.ping()
        assert await stored_seq(store) == 1
        await store.commit(samples.put(JOB, 2))
        assert await stored_seq(store) == 2


async def test_a_server_that_restarts_in_time_is_not_noticed(
    mortal_server: PostgresServer, postgresql_url: str
) -> None:
    async with opened(postgresql_url, 60.0) as store:
        await store.commit(samples.creation())
        mortal_server.kill()
        committing = asyncio.create_task(store.commit(samples.put(JOB, 2)))
        await asyncio.wait([committing], timeout=0.2)
        mortal_server.launch()
        await committing
        assert await stored_seq(store) == 2


@contextmanager
def commits_interrupted(store: Store, server: PostgresServer, *, durable: bool) -> Iterator[None]:
    """The next commit meets the end of the server: just before it is carried out, or just before its answer."""
    dialect = store._writer.engine.dialect
    original = dialect.do_commit

    def commit(connection: Any) -> None:
        dialect.do_commit = original  # type: ignore[method-assign]
        if durable:
            original(connection)
            server.kill()
            connection.dbapi_connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        server.kill()
        original(connection)

    dialect.do_commit = commit  # type: ignore[method-assign]
    try:
        yield
    finally:
        dialect.do_commit = original  # type: ignore[method-assign]


@pytest.mark.parametrize("durable", [True, False], ids=["answer lost", "commit lost"])
async def test_a_commit_without_an_answer_is_in_doubt_until_the_database_can_be_asked(
    mortal_server: PostgresServer, postgresql_url: str, durable: bool
) -> None:
    async with opened(postgresql_url, SHORT_S) as store:
        await store.commit(samples.creation())
        unit = samples.put(JOB, 2)
        with commits_interrupted(store, mortal_server, durable=durable):
            for _ in range(2):  # to say "nothing was written" the second time would be a lie
                with pytest.raises(OutcomeUnknown, match="not known whether the last change was recorded"):
                    await store.commit(unit)
        mortal_server.launch()
        assert await stored_seq(store) == (2 if durable else 1)
        await store.commit(unit)
        assert await stored_seq(store) == 2
        assert [record.number for record in await store.rescales(JOB)] == [2, 1]
        await store.commit(samples.put(JOB, 3))


@pytest.mark.parametrize("durable", [True, False], ids=["answer lost", "commit lost"])
async def test_a_doubt_that_is_settled_in_time_is_not_noticed(
    mortal_server: PostgresServer, postgresql_url: str, durable: bool
) -> None:
    async with opened(postgresql_url, 60.0) as store:
        for number in (1, 2, 3):
            await store.commit(samples.creation(number))
        with commits_interrupted(store, mortal_server, durable=durable):
            committing = [
                asyncio.create_task(store.commit(samples.put(samples.job_id(number), 2)))
                for number in (1, 2, 3)
            ]
            deadline = time.monotonic() + 30
            while mortal_server.process is not None:
                assert time.monotonic() < deadline, "the server was not killed"
                await asyncio.sleep(0.01)
            mortal_server.launch()
            await asyncio.gather(*committing)
        assert [job.seq for job in await store.load_live_jobs()] == [2, 2, 2]
        for number in (1, 2, 3):
            assert len(await store.rescales(samples.job_id(number))) == 2


def key_alone(request_hash: str = "hash") -> UnitOfWork:
    """What a PUT of equal bounds with an Idempotency-Key writes: its answer, and no state that has a token."""
    return UnitOfWork(JOB, 1).add(AddIdempotencyKey("key", request_hash, 1, False, samples.NOW_MS))


@pytest.mark.parametrize("durable", [True, False], ids=["answer lost", "commit lost"])
@pytest.mark.parametrize("in_time", [True, False], ids=["in time", "too late"])
async def test_a_key_without_a_state_whose_commit_was_in_doubt_is_written_again(
    mortal_server: PostgresServer, postgresql_url: str, durable: bool, in_time: bool
) -> None:
    async with opened(postgresql_url, 60.0 if in_time else SHORT_S) as store:
        await store.commit(samples.creation())
        unit = key_alone()
        with commits_interrupted(store, mortal_server, durable=durable):
            committing = asyncio.create_task(store.commit(unit))
            deadline = time.monotonic() + 30
            while mortal_server.process is not None:
                assert time.monotonic() < deadline, "the server was not killed"
                await asyncio.sleep(0.01)
            if in_time:
                mortal_server.launch()
                await committing
            else:
                with pytest.raises(OutcomeUnknown):
                    await committing
                mortal_server.launch()
        await store.commit(unit)
        assert await store.answer(JOB, "key") == ("hash", 1, False)


async def test_a_key_is_written_twice_with_the_same_answer_only(store: Store) -> None:
    await store.commit(samples.creation())
    await store.commit(key_alone())
    await store.commit(key_alone())
    with pytest.raises(ConstraintViolated, match="another answer"):
        await store.commit(key_alone("another hash"))
    assert await store.answer(JOB, "key") == ("hash", 1, False)


async def test_in_doubt_or_not_an_owner_that_was_replaced_writes_nothing_more(
    mortal_server: PostgresServer, postgresql_url: str
) -> None:
    """The unit was not durable, and meanwhile another control plane has the job: the fence decides."""
    from app.store.errors import LeaseLost

    async with opened(postgresql_url, SHORT_S) as first:
        first._writer.lease_ttl_ms = -1
        await first.commit(samples.creation())
        unit = samples.put(JOB, 2)
        with (
            commits_interrupted(first, mortal_server, durable=False),
            pytest.raises(OutcomeUnknown),
        ):
            await first.commit(unit)
        mortal_server.launch()
        second = await Store.open(postgresql_url, "other")
        try:
            lease = await second.acquire_lease(JOB)
            await second.commit(samples.put(JOB, 2, epoch=lease.epoch))
            with pytest.raises(LeaseLost):
                await first.commit(unit)
            await second.commit(
                UnitOfWork(JOB, lease.epoch).add(
                    *samples.finish(JOB, 3, epoch=lease.epoch).writes,
                )
            )
            (record, _) = await second.rescales(JOB)
            assert record.reason is TerminatedReason.JOB_FINISHED
        finally:
            await second.close()


# Readiness


async def test_a_failed_write_is_told_until_one_succeeds(
    short_waits: None, open_store: Opener, database_url: str
) -> None:
    store = await open_store()
    await store.commit(samples.creation())
    await store.check_writes()
    unit = samples.put(JOB, 2)
    with locked_by_another(database_url):
        with pytest.raises(StoreUnavailable):
            await store.commit(unit)
        with pytest.raises(StoreUnavailable, match=r"locked by another (process|client)"):
            store._probe_at = time.monotonic() + 60  # it is not tried again so soon
            await store.check_writes()
        assert store._probe is None
    await store.commit(unit)
    await store.check_writes()


async def test_a_failure_is_over_without_a_job_that_writes(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    await store.commit(samples.creation())
    tries = []
    write = statements.write_and_take_back

    def full(connection: Any) -> None:
        tries.append(1)
        raise StoreUnavailable("The disk is full.")

    monkeypatch.setattr(store_module, "PROBE_EVERY_S", 0.0)
    monkeypatch.setattr(statements, "write_and_take_back", full)
    store._writer.problem = StoreUnavailable("The disk was full.")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"The disk is full\."):
            await store.check_writes()
    assert len(tries) == 2
    monkeypatch.setattr(statements, "write_and_take_back", write)
    await store.check_writes()
    assert store._writer.problem is None
    assert [job.job_id for job in await store.list_jobs()] == [JOB], "what was tried is gone"

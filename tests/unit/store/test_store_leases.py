"""Ownership: an old owner or an old epoch writes nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any, get_args

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection

from app.model.options import JobOptions
from app.model.public_event import PublicEvent, PublicEventType
from app.model.rescale import TerminatedReason
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.plugins.livy.numbers import ADD_NUMBER
from app.store.errors import LeaseLost, StoreError
from app.store.leases import LeaseHeld
from app.store.statements import CLOCK_MS
from app.store.store import Store
from app.store.tables import metadata
from app.store.writes import (
    AcknowledgeReports,
    AddArtifact,
    AddEvents,
    AddIdempotencyKey,
    AddScalingPolicy,
    AddSubmissionKey,
    AddVersion,
    CreateJob,
    DescribeDriver,
    PutAttempt,
    PutRescale,
    SetGraph,
    SetVersion,
    UnitOfWork,
    Write,
)
from tests.unit.store import samples
from tests.unit.store.conftest import Opener

pytestmark = pytest.mark.asyncio

JOB = samples.job_id(1)
TTL_MS = 80


async def wait_until_taken(store: Store) -> int:
    """Take the lease of JOB as soon as its holder's time is over."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return (await store.acquire_lease(JOB)).epoch
        except LeaseHeld:
            assert time.monotonic() < deadline, "the lease never expired"
            await asyncio.sleep(0.01)


async def test_taking_the_lease_fences_the_owner_before(open_store: Opener) -> None:
    first, second = await open_store("owner-1", lease_ttl_ms=TTL_MS), await open_store("owner-2")
    await first.commit(samples.creation())
    assert await wait_until_taken(second) == 2
    for unit in (
        samples.put(JOB, 2),
        UnitOfWork(JOB, 1).add(AcknowledgeReports(1, 5)),
        UnitOfWork(JOB, 1).add(PutRescale(samples.record(JOB, 1, reason=TerminatedReason.SUCCEEDED))),
        UnitOfWork(JOB, 2).add(AcknowledgeReports(1, 5)),
    ):
        with pytest.raises(LeaseLost, match=f"lease of job {JOB} is not held by owner-1"):
            await first.commit(unit)
    found = await second.load_job(JOB)
    assert found is not None and found.seq == 1
    await second.commit(samples.put(JOB, 2, epoch=2))
    assert await first.renew_leases() == {}


WRITES: dict[type, Write] = {
    type(write): write
    for write in (
        *samples.put(JOB, 2).writes,
        PutRescale(samples.record(JOB, 1, reason=TerminatedReason.SUCCEEDED)),
        PutAttempt(samples.attempt()),
        AcknowledgeReports(1, 5),
        DescribeDriver(1, "build", "4.3.0", None),
        AddArtifact("code.py", b"x"),
        AddIdempotencyKey("key", "hash", 1, True, 0),
        AddEvents((PublicEvent(PublicEventType.STATUS, samples.NOW_MS, {"status": "RUNNING"}),)),
        AddVersion(2, 1, "{}", JobOptions()),
        SetVersion(1),
        SetGraph(1, "{}"),
        ADD_NUMBER,
        AddSubmissionKey("me", "key", "hash", "hash"),
        AddScalingPolicy(ScalingPolicy(2, FloorCeiling(1, 8))),
    )
}


async def test_every_kind_of_write_is_tried_below() -> None:
    assert set(WRITES) == set(get_args(Write)) - {CreateJob}


@pytest.mark.parametrize("kind", WRITES, ids=lambda kind: kind.__name__)
async def test_the_epoch_fences_every_kind_of_write(store: Store, kind: type) -> None:
    await store.commit(samples.creation())
    await store.acquire_lease(JOB)
    before = await contents(store)
    for epoch in (1, 3):
        with pytest.raises(LeaseLost):
            await store.commit(UnitOfWork(JOB, epoch).add(WRITES[kind]))
    assert await contents(store) == before
    await store.commit(UnitOfWork(JOB, 2).add(WRITES[kind]))


async def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""

    def read(connection: Connection) -> dict[str, list[tuple[Any, ...]]]:
        return {
            name: sorted(tuple(row) for row in connection.execute(table.select()))
            for name, table in metadata.tables.items()
        }

    return await store.read(read)


async def test_an_epoch_of_the_same_owner_that_is_over_writes_nothing(store: Store) -> None:
    await store.commit(samples.creation())
    lease = await store.acquire_lease(JOB)
    assert (lease.owner, lease.epoch) == ("owner-1", 2)
    with pytest.raises(LeaseLost):
        await store.commit(samples.put(JOB, 2, epoch=1))
    await store.commit(samples.put(JOB, 2, epoch=2))


async def test_a_released_job_is_free_at_once_and_its_owner_is_fenced(open_store: Opener) -> None:
    first, second = await open_store("owner-1", lease_ttl_ms=60_000), await open_store("owner-2")
    await first.commit(samples.creation())
    assert not await first.release_lease(JOB, 7)
    assert await first.release_lease(JOB, 1)
    assert not await first.release_lease(JOB, 1)
    with pytest.raises(LeaseLost):
        await first.commit(samples.put(JOB, 2))
    assert [lease.epoch for lease in await second.claim_leases()] == [2]
    await second.commit(samples.put(JOB, 2, epoch=2))


async def test_a_lease_expires_by_the_clock_of_the_database_and_is_put_off_by_renewing(store: Store) -> None:
    await store.commit(samples.creation())
    clock = text(f"SELECT {CLOCK_MS[store.database.dialect]}")
    before = await store.write(lambda c: c.execute(clock).scalar_one())
    assert abs(before - time.time() * 1000) < 5_000
    held = await store.renew_leases()
    after = await store.write(lambda c: c.execute(clock).scalar_one())
    assert before <= held[JOB].expires_ms - 15_000 <= after


async def test_there_is_no_lease_without_a_job(store: Store) -> None:
    with pytest.raises(StoreError, match="no job"):
        await store.acquire_lease(JOB)


async def test_claiming_leaves_ended_jobs_alone_and_is_limited(open_store: Opener) -> None:
    first, second = await open_store("owner-1", lease_ttl_ms=-1), await open_store("owner-2")
    for number in range(1, 6):
        await first.commit(samples.creation(number))
    await first.commit(samples.finish(JOB, 2))
    claimed = [await second.claim_leases(2) for _ in range(3)]
    assert [len(leases) for leases in claimed] == [2, 2, 0]
    taken = {lease.job_id for leases in claimed for lease in leases}
    assert taken == {samples.job_id(number) for number in range(2, 6)}


async def test_jobs_of_another_home_are_passed_over_also_when_nobody_has_them(open_store: Opener) -> None:
    first = await open_store("owner-1", home="here", lease_ttl_ms=-1)
    there, here = await open_store("owner-2", home="there"), await open_store("owner-3", home="here")
    await first.commit(samples.creation())
    assert await there.claim_leases() == []
    assert await first.release_lease(JOB, 1)
    assert await there.claim_leases() == [], "its files are where they were"
    assert [lease.epoch for lease in await here.claim_leases()] == [2]


async def test_on_sqlite_leases_of_an_earlier_run_are_taken_at_once(sqlite_url: str) -> None:
    first = await Store.open(sqlite_url, "run-1", lease_ttl_ms=600_000)
    await first.commit(samples.creation())
    await first.close()
    second = await Store.open(sqlite_url, "run-2")
    assert [(lease.job_id, lease.epoch) for lease in await second.claim_leases()] == [(JOB, 2)]
    assert await second.claim_leases() == []
    await second.close()


async def test_on_postgresql_a_lease_that_is_held_is_not_given_to_another(postgresql_url: str) -> None:
    first = await Store.open(postgresql_url, "owner-1", lease_ttl_ms=600_000)
    second = await Store.open(postgresql_url, "owner-2")
    await first.commit(samples.creation())
    with pytest.raises(LeaseHeld, match="owned by owner-1"):
        await second.acquire_lease(JOB)
    assert await second.claim_leases() == []
    await first.commit(samples.put(JOB, 2))
    await first.close()
    await second.close()


async def test_on_postgresql_owners_that_claim_together_get_different_jobs(postgresql_url: str) -> None:
    stores = [await Store.open(postgresql_url, f"owner-{n}", lease_ttl_ms=-1) for n in range(3)]
    for number in range(1, 31):
        await stores[0].commit(samples.creation(number))
    for store in stores:
        store._writer.lease_ttl_ms = 600_000
    claimed = await asyncio.gather(*(store.claim_leases(10) for store in stores[1:]))
    taken = [lease.job_id for leases in claimed for lease in leases]
    assert len(taken) == len(set(taken)) == 20
    for store in stores:
        await store.close()


async def test_on_postgresql_a_takeover_waits_for_the_transaction_that_it_fences(postgresql_url: str) -> None:
    """Between the look at the lease and the commit nobody can take the job, else two owners would write."""
    first = await Store.open(postgresql_url, "owner-1", lease_ttl_ms=-1)
    second = await Store.open(postgresql_url, "owner-2")
    await first.commit(samples.creation())
    fenced, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    original = first._writer.engine.dialect.do_commit

    def pause(connection: object) -> None:
        loop.call_soon_threadsafe(fenced.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
        original(connection)  # type: ignore[arg-type]

    first._writer.engine.dialect.do_commit = pause  # type: ignore[method-assign]
    writing = asyncio.create_task(first.commit(samples.put(JOB, 2)))
    await fenced.wait()
    taking = asyncio.create_task(second.acquire_lease(JOB))
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE leases%'"
    )
    deadline = time.monotonic() + 60
    while not await second.read(lambda c: c.execute(text(waiting)).scalar_one()):
        assert time.monotonic() < deadline and not taking.done(), "the takeover did not wait"
        await asyncio.sleep(0.01)
    go_on.set()
    await writing
    assert (await taking).epoch == 2
    found = await second.load_job(JOB)
    assert found is not None and found.seq == 2
    with pytest.raises(LeaseLost):
        await first.commit(samples.put(JOB, 3))
    go_on.set()
    await first.close()
    await second.close()

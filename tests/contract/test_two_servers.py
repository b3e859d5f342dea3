"""Control planes that share a database: one that dies is followed by another, on the same data directory only."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.store.errors import LeaseLost, StoreUnavailable
from app.store.store import Store
from app.store.writes import AddIdempotencyKey, UnitOfWork
from app.worker.refusals import Unavailable
from app.worker.views import RequirementsUpdate
from tests.unit.worker.fakes import FakeHost, Rig

BOUNDS = {name: (1, 4) for name in ("events", "counts", "store")}
LONG_MS = 600_000
SHORT_MS = 1_000
RENEW_S = 0.05
_owners = itertools.count(1)


@asynccontextmanager
async def server(
    url: str, directory: Path, host: FakeHost | None = None, *, home: str = "here", ttl_ms: int = LONG_MS
) -> AsyncIterator[Rig]:
    """A control plane as `app.main` runs it on a shared database. Its end is that of a kill: leases stay."""
    directory.mkdir(exist_ok=True)  # noqa: ASYNC240 - a directory of the test's own
    owner = f"server-{next(_owners)}"
    store = await Store.open(url, owner, home=home, durable=False, lease_ttl_ms=ttl_ms)
    rig = Rig(store, directory, host=host)
    try:
        await rig.plane.start(renew_every_s=RENEW_S)
        yield rig
    finally:
        await rig.plane.close()
        await store.close()


def renewals(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the control plane has looked for leases to claim since now."""
    count = itertools.count()
    seen = [0]
    claim = rig.store.claim_leases

    async def counted(limit: int = 100, **but: Any) -> Any:
        leases = await claim(limit, **but)
        seen[0] = next(count) + 1
        return leases

    monkeypatch.setattr(rig.store, "claim_leases", counted)
    return lambda: seen[0]


async def expire(url: str, rig: Rig) -> None:
    """The time of the leases of ``rig`` passes."""
    store = await Store.open(url, "nobody", durable=False)
    store.owner = rig.store.owner
    await store.expire_leases()
    await store.close()


async def test_a_server_takes_over_from_one_that_died(postgresql_url: str, tmp_path: Path) -> None:
    async with server(postgresql_url, tmp_path) as first:
        job = await first.run()
        host = first.host
        first.store._writer.lease_ttl_ms = SHORT_MS
        await first.store.renew_leases()
    async with server(postgresql_url, tmp_path, host) as second:
        await second.until(lambda: second.is_served(job), "the job is taken over")
        assert second.plane.job(job).driver_pid == first.driver.ref.pid
        assert (len(host.drivers), first.driver.kills) == (1, 0), "its driver was adopted, not started again"
        assert second.plane.job(job).epoch == 2
        assert (await second.orders(job)).epoch == 2
        assert (await second.plane.update_requirements(job, RequirementsUpdate(BOUNDS))).version == 2


async def test_a_restart_within_the_lease_time_adopts_when_it_is_over(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(postgresql_url, tmp_path) as first:
        job = await first.run()
        await first.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        await first.until_kind(job, "Rescaling")
    async with server(postgresql_url, tmp_path, first.host) as again:
        looked = renewals(again, monkeypatch)
        await again.until(lambda: looked() > 2, "looks at the leases")
        assert not again.is_served(job), "the lease holds"
        with pytest.raises(Unavailable):
            await again.orders(job)
        assert not first.driver.dead.is_set()
        await expire(postgresql_url, first)
        await again.until(lambda: again.is_served(job), "the job is adopted")
        orders = await again.orders(job)
        assert (set(orders.parallelism.values()), orders.epoch) == ({4}, 2)
        await again.report(job, "plan-applied", plan_version=orders.plan_version)
        await again.until_kind(job, "Executing")
        assert first.driver.kills == 0


async def test_a_driver_that_died_with_its_server_is_replaced(postgresql_url: str, tmp_path: Path) -> None:
    async with server(postgresql_url, tmp_path) as first:
        job = await first.run()
    async with server(postgresql_url, tmp_path, first.host) as again:
        first.driver.die(-9)
        await expire(postgresql_url, first)
        driver = await again.assigned(2)
        assert driver.spec is not None and driver.spec["epoch"] == 2
        await again.bring_up(job, 2)
        assert [row.state for row in await again.store.attempts(job)] == ["DEAD", "LIVE"]


async def test_a_server_that_lives_keeps_its_jobs(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(postgresql_url, tmp_path) as first:
        job = await first.run()
        async with server(postgresql_url, tmp_path, first.host) as second:
            looked = renewals(second, monkeypatch)
            await second.until(lambda: looked() > 4, "looks at the leases")
            assert first.is_served(job) and not second.is_served(job)
            assert (await first.plane.update_requirements(job, RequirementsUpdate(BOUNDS))).version == 2


async def test_one_that_was_paused_for_too_long_writes_nothing_and_lets_go(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with server(postgresql_url, tmp_path) as paused:
        job = await paused.run()
        renew = paused.store.renew_leases
        asleep, awake = asyncio.Event(), asyncio.Event()

        async def sleepy() -> Any:
            asleep.set()
            await awake.wait()
            return await renew()

        paused.store.renew_leases = sleepy  # type: ignore[method-assign]
        async with asyncio.timeout(60):
            await asleep.wait()
        await expire(postgresql_url, paused)
        async with server(postgresql_url, tmp_path, paused.host) as second:
            await second.until(lambda: second.is_served(job))
            with pytest.raises(Unavailable, match="Another control plane owns the job"):
                await paused.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
            awake.set()
            await paused.until(lambda: not paused.is_served(job))
            assert (await second.plane.update_requirements(job, RequirementsUpdate(BOUNDS))).version == 2
            assert not paused.driver.dead.is_set()


async def test_what_was_claimed_and_could_not_be_read_is_taken_up_later(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(postgresql_url, tmp_path) as first:
        job = await first.run()
    async with server(postgresql_url, tmp_path, first.host) as again:
        load = again.store.load_jobs
        failures = [StoreUnavailable("away"), RuntimeError("a defect")]

        async def flaky(job_ids: Any) -> Any:
            if failures:
                raise failures.pop()
            return await load(job_ids)

        monkeypatch.setattr(again.store, "load_jobs", flaky)
        await expire(postgresql_url, first)
        await again.until(lambda: again.is_served(job))
        assert failures == []


async def test_a_server_that_ends_in_order_hands_over_at_once(postgresql_url: str, tmp_path: Path) -> None:
    async with server(postgresql_url, tmp_path) as first:
        job = await first.run()
        await first.plane.close()
        assert await first.store.expire_leases() == 1
    async with server(postgresql_url, tmp_path, first.host) as again:
        assert again.plane.job(job).driver_pid == first.driver.ref.pid


async def test_jobs_of_another_data_directory_are_left_alone(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoints and the locks of its drivers are there: elsewhere the job would begin anew, beside its driver."""
    async with server(postgresql_url, tmp_path / "here") as first:
        job = await first.run()
    await expire(postgresql_url, first)
    async with server(postgresql_url, tmp_path / "there", FakeHost(), home="there") as other:
        looked = renewals(other, monkeypatch)
        await other.until(lambda: looked() > 2, "looks at the leases")
        with pytest.raises(Unavailable, match="not served by this control plane"):
            other.plane.job(job)
        assert other.host.drivers == []
        async with server(postgresql_url, tmp_path / "here", first.host) as again:
            assert again.plane.job(job).driver_pid == first.driver.ref.pid


async def test_on_sqlite_a_restart_takes_its_jobs_at_once(sqlite_url: str, tmp_path: Path) -> None:
    async with server(sqlite_url, tmp_path) as first:
        job = await first.run()
    async with server(sqlite_url, tmp_path / "there", FakeHost(), home="there") as other:
        assert not other.is_served(job), "another data directory, however it came to this database"
    async with server(sqlite_url, tmp_path, first.host) as again:
        assert again.plane.job(job).driver_pid == first.driver.ref.pid
        with pytest.raises(LeaseLost):
            await _write_as(sqlite_url, first, job)


async def test_jobs_of_servers_that_had_no_home_are_taken_up(database_url: str, tmp_path: Path) -> None:
    async with server(database_url, tmp_path, home="") as first:
        job = await first.run()
    await expire(database_url, first)
    async with server(database_url, tmp_path, first.host) as again:
        assert again.plane.job(job).epoch == 2


async def _write_as(url: str, rig: Rig, job: str) -> None:
    """Write in the name of a server that is over."""
    store = await Store.open(url, "late", durable=False)
    store._writer.owner = rig.store.owner
    try:
        await store.commit(UnitOfWork(job, 1).add(AddIdempotencyKey("late", "hash", 1, True, 0)))
    finally:
        await store.close()

"""What is too old, or too many, is removed: by the age of the settings and the size of each job's options."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.model.status import JobStatus
from app.store import AddIdempotencyKey, Store, StoreUnavailable, UnitOfWork
from app.worker import housekeeping
from app.worker.housekeeping import EVERY_S, FIRST_AFTER_S, RETRY_AFTER_S, Housekeeper
from app.worker.views import JobView
from tests.unit.store import samples
from tests.unit.worker.fakes import rig_on

DAY_MS = 24 * 60 * 60 * 1000
JOB, OTHER = samples.job_id(1), samples.job_id(2)


@dataclass
class Clock:
    at_ms: int = samples.NOW_MS

    def now_ms(self) -> int:
        return self.at_ms

    def not_before(self, at_ms: int) -> None:
        raise AssertionError("housekeeping never sets the clock")


@dataclass
class Sleeps:
    """A sleep that ends when the test says so."""

    asked_s: asyncio.Queue[float] = field(default_factory=asyncio.Queue)
    over: asyncio.Queue[None] = field(default_factory=asyncio.Queue)

    async def __call__(self, seconds: float) -> None:
        self.asked_s.put_nowait(seconds)
        await self.over.get()

    async def next(self) -> float:
        """How long is slept now."""
        return await asyncio.wait_for(self.asked_s.get(), 20)


def view(job_id: str, size: int) -> JobView:
    state = replace(samples.state(job_id), options=replace(samples.OPTIONS, rescale_history_size=size))
    return JobView(
        state=state, status=JobStatus.RUNNING, submitted_ms=0, ended_ms=None, submitted_by=None, epoch=1
    )


async def fill(store: Store, number: int, puts: int) -> None:
    """Records 1 to ``puts`` that ended a second apart, an open one, and as many versions and keys."""
    job = samples.job_id(number)
    await store.commit(samples.creation(number))
    for seq in range(2, puts + 2):
        await store.commit(samples.put(job, seq))
        key = AddIdempotencyKey(f"key-{seq}", "hash", seq, True, samples.NOW_MS + seq)
        await store.commit(UnitOfWork(job, 1).add(key))


async def numbers(store: Store, job: str = JOB) -> list[int]:
    return [record.number for record in await store.rescales(job)]


@asynccontextmanager
async def keeper_on(
    url: str, sizes: dict[str, int], days: int = 90, **options: Any
) -> AsyncIterator[tuple[Store, Clock, Housekeeper]]:
    store = await Store.open(url, "owner-1", durable=False)
    clock = Clock()
    views = [view(job, size) for job, size in sizes.items()]
    try:
        yield store, clock, Housekeeper(store, jobs=lambda: views, clock=clock, max_age_days=days, **options)
    finally:
        await store.close()


async def test_each_job_keeps_as_many_records_as_its_options_say(database_url: str) -> None:
    async with keeper_on(database_url, {JOB: 3, OTHER: 1000}) as (store, _, keeper):
        await fill(store, 1, 9)
        await fill(store, 2, 9)
        assert await keeper.tidy() == (7, 0)
        assert await numbers(store) == [10, 9, 8], "the open one counts, and stays"
        assert len(await numbers(store, OTHER)) == 10
        summary = await store.rescale_summary(JOB)
        assert sum(total.records for total in summary.totals.values()) == 9, "totals are of all time"
        assert await keeper.tidy() == (0, 0)


async def test_a_history_of_size_zero_keeps_the_open_record_only(database_url: str) -> None:
    async with keeper_on(database_url, {JOB: 0}) as (store, _, keeper):
        await fill(store, 1, 2)
        assert await keeper.tidy() == (2, 0)
        assert await numbers(store) == [3]
        assert await keeper.tidy() == (0, 0)


async def test_what_is_older_than_the_settings_allow_goes(database_url: str) -> None:
    async with keeper_on(database_url, {JOB: 2}, days=7) as (store, clock, keeper):
        await fill(store, 1, 2)
        before = await store.requirements(JOB)
        assert await keeper.tidy() == (1, 0)
        assert (await numbers(store), await store.requirements(JOB)) == ([3, 2], before)
        # Seven days after the second record ended: it is not older than that yet, a millisecond later it is.
        (ended,) = [record.end_ms for record in await store.rescales(JOB) if record.end_ms is not None]
        clock.at_ms = ended + 7 * DAY_MS
        await keeper.tidy()
        assert await numbers(store) == [3, 2]
        assert [one.version for one in await store.requirements(JOB)] == [3, 2], "the newest two stay"
        assert await store.answer(JOB, "key-2") is None
        clock.at_ms += 1
        assert await keeper.tidy() == (1, 0)
        assert await numbers(store) == [3]


async def test_much_is_removed_in_small_transactions(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_ROWS_PER_TRANSACTION", 4)
    async with keeper_on(database_url, {JOB: 1}) as (store, _, keeper):
        await fill(store, 1, 10)
        sizes: list[int] = []
        prune = store.prune

        async def counted(*args: Any, **kwargs: Any) -> int:
            sizes.append(await prune(*args, **kwargs))
            return sizes[-1]

        monkeypatch.setattr(store, "prune", counted)
        assert await keeper.tidy() == (10, 0)
        assert sizes == [4, 4, 2]
        assert await numbers(store) == [11]


async def test_nothing_is_written_where_nothing_is_to_be_removed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keeper_on(database_url, {JOB: 10}) as (store, _, keeper):
        await fill(store, 1, 9)

        async def unexpected(*_: Any, **__: Any) -> int:
            raise AssertionError("a job with nothing to remove was written")

        monkeypatch.setattr(store, "prune", unexpected)
        monkeypatch.setattr(store, "prune_requests", unexpected)
        assert await keeper.tidy() == (0, 0)


async def test_a_job_that_fails_does_not_hold_up_the_others_and_is_tried_again_soon(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps = Sleeps()
    async with keeper_on(database_url, {JOB: 1, OTHER: 1}, sleep=sleeps) as (store, _, keeper):
        await fill(store, 1, 3)
        await fill(store, 2, 3)
        prune = store.prune

        async def broken(job: str, **options: Any) -> int:
            if job == JOB:
                raise StoreUnavailable("The disk is full.")
            return await prune(job, **options)

        running = asyncio.create_task(keeper.run())
        assert await sleeps.next() == FIRST_AFTER_S
        assert len(await numbers(store, OTHER)) == 4, "nothing happens while the server starts"
        with monkeypatch.context() as patched:
            patched.setattr(store, "prune", broken)
            sleeps.over.put_nowait(None)
            assert await sleeps.next() == RETRY_AFTER_S
        assert (await numbers(store), await numbers(store, OTHER)) == ([4, 3, 2, 1], [4])
        sleeps.over.put_nowait(None)
        assert await sleeps.next() == EVERY_S
        assert await numbers(store) == [4]
        running.cancel()


@pytest.mark.parametrize("error", [StoreUnavailable("The server is away."), RuntimeError("a defect")])
async def test_a_pass_that_fails_is_tried_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    sleeps = Sleeps()
    async with keeper_on(sqlite_url, {JOB: 1}, sleep=sleeps) as (store, _, keeper):
        await fill(store, 1, 3)

        async def away(*_: Any, **__: Any) -> list[str]:
            raise error

        running = asyncio.create_task(keeper.run())
        await sleeps.next()
        with monkeypatch.context() as patched:
            patched.setattr(store, "prunable", away)
            sleeps.over.put_nowait(None)
            assert await sleeps.next() == RETRY_AFTER_S
        sleeps.over.put_nowait(None)
        assert await sleeps.next() == EVERY_S
        assert await numbers(store) == [4]
        running.cancel()


async def test_the_jobs_of_a_control_plane_are_kept_in_order(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run(**{"web.adaptive-scheduler.rescale-history.size": "0"})
        assert len(await rig.plane.rescales(job)) == 1
        keeper = Housekeeper(rig.store, jobs=rig.plane.jobs, clock=rig.clock, max_age_days=90)
        assert await keeper.tidy() == (1, 0)
        assert await rig.plane.rescales(job) == []
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        rig.clock.ahead_ms += 91 * DAY_MS
        await keeper.tidy()
        assert await rig.plane.rescales(job) == [], "jobs that have ended are looked after as well"

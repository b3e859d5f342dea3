"""What is too old, or too many, is removed: by the age of the settings and the size of each job's options."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.model.status import JobStatus
from app.settings import Settings
from app.store.errors import StoreUnavailable
from app.store.store import Store
from app.store.writes import AddIdempotencyKey, UnitOfWork
from app.worker.housekeeping import housekeeping
from app.worker.housekeeping.housekeeping import EVERY_S, FIRST_AFTER_S, RETRY_AFTER_S, Housekeeper
from app.worker.job.places import JobPlaces
from app.worker.views import JobView
from tests import stored
from tests.unit.store import samples
from tests.unit.worker.fakes import FakeClock, Rig, rig_on

DAY_MS = 24 * 60 * 60 * 1000
JOB, OTHER = samples.job_id(1), samples.job_id(2)


@dataclass
class Clock:
    at_ms: int = samples.NOW_MS

    def wall_ms(self) -> int:
        return self.at_ms

    def steady_ms(self) -> int:
        """The server has run all the time."""
        return self.at_ms

    def now_ms(self) -> int:
        raise AssertionError("ages are not told by the clock that only this process knows")


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
        async with asyncio.timeout(20):
            return await self.asked_s.get()


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


async def _forget_none(job_id: str) -> None:
    raise AssertionError(f"{job_id} is not to be forgotten")


async def _no_strays() -> int:
    return 0


def housekeeper(
    store: Store,
    jobs: Callable[[], Iterable[JobView]],
    clock: Clock | FakeClock,
    days: int = 90,
    *,
    places: JobPlaces = JobPlaces(Path("/nowhere"), Path("/nowhere/address"), 1),  # noqa: B008 - it is frozen
    forget: Callable[[str], Awaitable[None]] = _forget_none,
    drop_strays: Callable[[], Awaitable[int]] = _no_strays,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    **limits: int,
) -> Housekeeper:
    most = {"requests_max_count": 1000, "events_max_count": 1000, "ended_jobs_max_count": 1000}
    settings = Settings(history_max_age_days=days, **{**most, **limits})
    return Housekeeper(
        store, settings, places, clock, jobs=jobs, forget=forget, drop_strays=drop_strays, sleep=sleep
    )


@asynccontextmanager
async def keeper_on(
    url: str, sizes: dict[str, int], days: int = 90, **options: Any
) -> AsyncIterator[tuple[Store, Clock, Housekeeper]]:
    store = await Store.open(url, "owner-1", durable=False)
    clock = Clock()
    views = [view(job, size) for job, size in sizes.items()]
    try:
        yield store, clock, housekeeper(store, lambda: views, clock, days, **options)
    finally:
        await store.close()


async def test_each_job_keeps_as_many_records_as_its_options_say(database_url: str) -> None:
    async with keeper_on(database_url, {JOB: 3, OTHER: 1000}) as (store, _, keeper):
        await fill(store, 1, 9)
        await fill(store, 2, 9)
        assert await keeper.tidy() == (7, 0)
        assert await numbers(store) == [10, 9, 8], "the open one counts, and stays"
        assert len(await numbers(store, OTHER)) == 10
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
        before = await stored.requirements(store, JOB)
        assert await keeper.tidy() == (1, 0)
        assert (await numbers(store), await stored.requirements(store, JOB)) == ([3, 2], before)
        # Seven days after the second record ended: it is not older than that yet, a millisecond later it is.
        (ended,) = [record.end_ms for record in await store.rescales(JOB) if record.end_ms is not None]
        clock.at_ms = ended + 7 * DAY_MS
        await keeper.tidy()
        assert await numbers(store) == [3, 2]
        assert [one.version for one in await stored.requirements(store, JOB)] == [3, 2], "the newest two stay"
        assert await store.answer(JOB, "key-2") is None
        clock.at_ms += 1
        assert await keeper.tidy() == (1, 0)
        assert await numbers(store) == [3]


async def test_of_a_job_that_runs_for_ever_the_newest_keys_and_versions_are_kept(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_ROWS_PER_TRANSACTION", 2)
    async with keeper_on(database_url, {JOB: 1000, OTHER: 1000}, requests_max_count=3) as (store, _, keeper):
        await fill(store, 1, 9)
        await fill(store, 2, 2)
        sizes: list[int] = []
        for name in ("prune_idempotency_keys", "prune_versions"):
            prune = getattr(store, name)

            async def counted(*args: Any, prune: Any = prune, **kwargs: Any) -> int:
                sizes.append(await prune(*args, **kwargs))
                return sizes[-1]

            monkeypatch.setattr(store, name, counted)
        assert await keeper.tidy() == (13, 0)
        assert sizes == [2, 2, 2, 0, 2, 2, 2, 1], "in small transactions"
        assert [one.version for one in await stored.requirements(store, JOB)] == [10, 9, 8]
        kept = [seq for seq in range(2, 11) if await store.answer(JOB, f"key-{seq}") is not None]
        assert kept == [8, 9, 10]
        assert len(await stored.requirements(store, OTHER)) == 3
        assert await keeper.tidy() == (0, 0)


async def test_the_requirements_in_force_are_never_removed(database_url: str) -> None:
    async with keeper_on(database_url, {JOB: 0}, days=1, requests_max_count=1) as (store, clock, keeper):
        await fill(store, 1, 4)
        await keeper.tidy()
        clock.at_ms += 400 * DAY_MS
        await keeper.tidy()
        assert [one.version for one in await stored.requirements(store, JOB)] == [5]


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
        monkeypatch.setattr(store, "prune_idempotency_keys", unexpected)
        monkeypatch.setattr(store, "prune_versions", unexpected)
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
        keeper = housekeeper(rig.store, rig.plane.jobs, rig.clock, ended_jobs_max_age_days=365)
        assert await keeper.tidy() == (1, 0)
        assert await rig.plane.rescales(job) == []
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        rig.clock.ahead_ms += 91 * DAY_MS
        rig.clock.stopped_ms += 91 * DAY_MS
        await keeper.tidy()
        assert await rig.plane.rescales(job) == [], "jobs that have ended are looked after as well"


async def test_of_jobs_that_have_ended_the_newest_are_kept_up_to_the_number_allowed(sqlite_url: str) -> None:
    forgotten: list[str] = []

    async def forget(job_id: str) -> None:
        forgotten.append(job_id)

    async with keeper_on(sqlite_url, {}) as (store, clock, _):
        views = [replace(view(samples.job_id(n), 0), ended_ms=10**15 - n) for n in (2, 4, 1, 3)]
        views.append(view(samples.job_id(5), 0))
        await housekeeper(store, lambda: views, clock, forget=forget, ended_jobs_max_count=2).tidy()
    assert forgotten == [samples.job_id(3), samples.job_id(4)]


async def restarted(rig: Rig, times: int) -> str:
    """A job with so many dead attempts and a live one."""
    job = await rig.run(
        **{
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "100",
            "restart-strategy.fixed-delay.delay": "0 ms",
        }
    )
    for attempt in range(1, times + 1):
        rig.driver.die(-9)
        await rig.bring_up(job, attempt + 1)
    return job


def attempt_dirs(rig: Rig, job: str) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in rig.places.job_dir(job).glob("attempt-*"))


def secrets_of(rig: Rig, job: str) -> list[int]:
    """The attempts whose assignment is still there."""
    return [n for n in attempt_dirs(rig, job) if list(rig.places.attempt_dir(job, n).glob("spec-*"))]


async def test_of_dead_attempts_the_newest_are_kept_without_their_secrets(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "ATTEMPTS_KEPT", 2)
    monkeypatch.setattr(housekeeping, "_ROWS_PER_TRANSACTION", 2)
    async with rig_on(database_url, tmp_path) as rig:
        job = await restarted(rig, 5)
        keeper = housekeeper(rig.store, rig.plane.jobs, rig.clock, places=rig.places)
        removed, failed = await keeper.tidy()
        assert (removed, failed) == (4, 0)
        assert [(row.attempt, row.state) for row in await rig.store.attempts(job)] == [
            (5, "DEAD"),
            (6, "LIVE"),
        ]
        assert attempt_dirs(rig, job) == [4, 5, 6]
        assert secrets_of(rig, job) == [6], "that of the live one is needed"
        assert await keeper.tidy() == (0, 0)
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        await keeper.tidy()
        assert [row.attempt for row in await rig.store.attempts(job)] == [5, 6]
        assert (attempt_dirs(rig, job), secrets_of(rig, job)) == ([5, 6], [])


async def test_of_a_dead_attempt_only_its_files_are_kept(sqlite_url: str, tmp_path: Path) -> None:
    """Shuffle files, and hard links to results, of a driver that was killed."""
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await restarted(rig, 1)
        for attempt in (1, 2):
            view = rig.places.attempt_dir(job, attempt) / "region-0-1/views"
            view.mkdir(parents=True)
            (view / "part-00000").write_text("rows")
            (rig.places.attempt_dir(job, attempt) / "driver.log").write_text("what happened")
        await housekeeper(rig.store, rig.plane.jobs, rig.clock, places=rig.places).tidy()
        left = [sorted(path.name for path in rig.places.attempt_dir(job, n).iterdir()) for n in (1, 2)]
        assert left[0] == ["driver.log"]
        assert "region-0-1" in left[1], "that of the live one is in use"


async def test_results_of_a_job_that_has_ended_are_removed_if_the_server_was_killed_before(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await restarted(rig, 1)
        result = rig.places.job_dir(job) / "results/dataset/1/part-00000"
        result.parent.mkdir(parents=True)
        result.write_text("rows")
        keeper = housekeeper(rig.store, rig.plane.jobs, rig.clock, places=rig.places)
        await keeper.tidy()
        assert result.exists()
        # Not of type BATCH, so its end leaves them alone, as a server does that is killed then.
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        assert result.exists()
        await keeper.tidy()
        assert not (rig.places.job_dir(job) / "results").exists()


async def test_an_attempt_that_is_being_prepared_is_left_alone(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await restarted(rig, 1)
        ahead = rig.places.attempt_dir(job, 3)
        ahead.mkdir()
        (ahead / "spec-1.json").write_text("{}")
        await housekeeper(rig.store, rig.plane.jobs, rig.clock, places=rig.places).tidy()
        assert secrets_of(rig, job) == [2, 3]

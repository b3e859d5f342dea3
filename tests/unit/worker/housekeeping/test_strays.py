"""Files of jobs that the database does not know: a server refuses to start, or removes what a submission left."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.store import schema
from app.store.errors import JobsUnknown, OutcomeUnknown, StoreUnavailable
from app.store.store import Store
from app.worker.housekeeping.strays import UNTOUCHED_S, Strays, open_store
from app.worker.ownership.membership import Membership
from app.worker.refusals import Unavailable
from app.worker.requests import submission
from tests.unit.store import samples
from tests.unit.worker.fakes import graph, rig_on

pytestmark = pytest.mark.asyncio

JOB, OTHER = samples.job_id(1), samples.job_id(2)
YESTERDAY_S = 24 * 3600


async def opened(url: str, jobs_dir: Path) -> Store:
    membership = Membership(jobs_dir.parent, "home", None, url="http://127.0.0.1:1", version="1", slots=1)
    return await open_store(jobs_dir, url, membership, 15_000)


@asynccontextmanager
async def with_job(url: str, jobs_dir: Path) -> AsyncIterator[Store]:
    """A store with `JOB` in it, whose first attempt has begun."""
    store = await opened(url, jobs_dir)
    try:
        await store.commit(samples.creation())
        (jobs_dir / JOB / "attempt-1").mkdir(parents=True)
        yield store
    finally:
        await store.close()


def age(job_dir: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(job_dir, (then, then))


@pytest.mark.parametrize("left", ["attempt-1", "checkpoint", "artifacts"])
async def test_a_new_database_in_a_used_directory_is_refused_and_not_made(
    new_database_url: str, tmp_path: Path, left: str
) -> None:
    jobs_dir = tmp_path / "jobs"
    (jobs_dir / JOB / left).mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(
            JobsUnknown, match=f"is missing or empty, but {jobs_dir} .* {JOB}. Restore the database"
        ):
            await opened(new_database_url, jobs_dir)
        assert schema.is_new(new_database_url)
        assert not (tmp_path / "slotwise.db").exists()
    (jobs_dir / JOB).rename(tmp_path / JOB)
    await (await opened(new_database_url, jobs_dir)).close()


async def test_an_empty_file_is_a_missing_database(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "slotwise.db").touch()
    (tmp_path / "jobs" / JOB / "checkpoint").mkdir(parents=True)
    with pytest.raises(JobsUnknown, match="is missing or empty"):
        await opened(sqlite_url, tmp_path / "jobs")


@pytest.mark.parametrize("left", ["attempt-1", "checkpoint"])
async def test_the_database_of_other_jobs_is_refused(
    new_database_url: str, tmp_path: Path, left: str
) -> None:
    jobs_dir = tmp_path / "jobs"
    async with with_job(new_database_url, jobs_dir):
        pass
    (jobs_dir / OTHER / left).mkdir(parents=True)
    with pytest.raises(
        JobsUnknown, match=f"does not know all jobs, but .* one job that it should know: {OTHER}. "
    ):
        await opened(new_database_url, jobs_dir)
    (jobs_dir / OTHER).rename(tmp_path / OTHER)
    await (await opened(new_database_url, jobs_dir)).close()


async def test_what_is_no_lost_job_keeps_no_server_from_starting(
    new_database_url: str, tmp_path: Path
) -> None:
    """Its own jobs, a submission that was cut off, files of a forgotten job, and what people put there."""
    jobs_dir = tmp_path / "jobs"
    async with with_job(new_database_url, jobs_dir):
        pass
    (jobs_dir / OTHER / "artifacts").mkdir(parents=True)
    (jobs_dir / f".forgotten-{OTHER}" / "checkpoint").mkdir(parents=True)
    (jobs_dir / "moved-away" / OTHER / "checkpoint").mkdir(parents=True)
    (jobs_dir / samples.job_id(3)).touch()
    await (await opened(new_database_url, jobs_dir)).close()


async def test_what_a_submission_left_is_removed_when_it_is_old_and_was_seen_before(
    new_database_url: str, tmp_path: Path
) -> None:
    jobs_dir = tmp_path / "jobs"
    stray = jobs_dir / OTHER
    async with with_job(new_database_url, jobs_dir) as store:
        strays = Strays(store, jobs_dir)
        (stray / "artifacts").mkdir(parents=True)
        assert [await strays.drop(), await strays.drop()] == [0, 0], "it may be in flight"
        age(stray, UNTOUCHED_S + 60)
        assert await Strays(store, jobs_dir).drop() == 0, "a clock may have jumped"
        age(jobs_dir / JOB, YESTERDAY_S)
        assert await strays.drop() == 1
        assert sorted(path.name for path in jobs_dir.iterdir()) == [JOB]


async def test_where_an_attempt_has_run_nothing_is_removed(sqlite_url: str, tmp_path: Path) -> None:
    jobs_dir = tmp_path / "jobs"
    async with with_job(sqlite_url, jobs_dir) as store:
        (jobs_dir / OTHER / "checkpoint").mkdir(parents=True)
        age(jobs_dir / OTHER, YESTERDAY_S)
        strays = Strays(store, jobs_dir)
        assert [await strays.drop(), await strays.drop()] == [0, 0]
        assert (jobs_dir / OTHER / "checkpoint").exists()


async def test_a_job_that_is_stored_at_that_moment_keeps_its_files(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs_dir = tmp_path / "jobs"
    stray = jobs_dir / OTHER
    async with with_job(sqlite_url, jobs_dir) as store:
        (stray / "artifacts").mkdir(parents=True)
        age(stray, YESTERDAY_S)
        strays = Strays(store, jobs_dir)
        assert await strays.drop() == 0
        look = store.job_ids
        answers = [await look()]

        async def late() -> set[str]:
            if answers:
                return answers.pop()
            await store.commit(samples.creation(2))
            return await look()

        monkeypatch.setattr(store, "job_ids", late)
        assert await strays.drop() == 0
        assert (stray / "artifacts").exists()


async def test_a_submission_in_doubt_is_not_left_over(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the database is away."""
    monkeypatch.setattr(submission, "_DOUBT_RETRY_S", 0.01)
    async with rig_on(sqlite_url, tmp_path) as rig:
        rig.fail_commits(OutcomeUnknown("The connection was lost."))
        listed = replace(graph(), artifacts=("f.py",))
        submitting = asyncio.create_task(rig.plane.submit(listed, {"f.py": b""}))
        await rig.until(lambda: any(rig.places.jobs_dir.glob("*/artifacts/f.py")), "its files, all of them")
        (job_dir,) = rig.places.jobs_dir.iterdir()
        age(job_dir, YESTERDAY_S)
        await rig.until(lambda: time.time() - job_dir.stat().st_mtime < UNTOUCHED_S, "a touch")
        rig.fail_commits(StoreUnavailable("It is away."))
        with pytest.raises(Unavailable):
            await submitting
        assert job_dir.exists(), "it may be stored"

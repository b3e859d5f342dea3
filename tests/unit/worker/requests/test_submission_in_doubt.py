"""A job is submitted, and the database does not say whether it was stored."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from app.store.errors import JobExists, LeaseLost, OutcomeUnknown, StoreError, StoreUnavailable
from app.store.writes import AddSubmissionKey, UnitOfWork
from app.worker.ownership.leases import Ownership
from app.worker.refusals import InDoubt, Unavailable
from app.worker.requests import submission
from tests.unit.worker.fakes import Rig, graph, rig_on

LISTED = replace(graph(), artifacts=("f.py",))
AWAY = StoreUnavailable("The database is away.")
LOST = OutcomeUnknown("The connection was lost.")


async def in_doubt(rig: Rig, error: StoreError = AWAY, *, is_stored: bool) -> tuple[str, UnitOfWork]:
    """Submit a job whose commit is not answered, and fails after that: its id, and what was to be stored."""
    units = []

    async def commit(unit: UnitOfWork) -> None:
        units.append(unit)
        if is_stored:
            await rig._commit(unit)
        rig.fail_commits(error)
        raise LOST

    rig.store.commit = commit  # type: ignore[method-assign]
    with pytest.raises(InDoubt, match="not known whether job"):
        await rig.plane.submit(LISTED, {"f.py": b""})
    job = units[0].job_id
    assert (rig.places.artifacts_dir(job) / "f.py").exists(), "it may be stored, and run elsewhere"
    with pytest.raises(Unavailable):
        rig.plane.job(job)
    return job, units[0]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_with_a_key_a_submission_in_doubt_can_be_repeated(
    sqlite_url: str, tmp_path: Path, *, is_stored: bool
) -> None:
    key = AddSubmissionKey("me", "key", "document", "files")
    async with rig_on(sqlite_url, tmp_path) as rig:
        ids = []

        async def commit(unit: UnitOfWork) -> None:
            ids.append(unit.job_id)
            if is_stored:
                await rig._commit(unit)
            rig.fail_commits(AWAY)
            raise LOST

        async def submit() -> str:
            return await rig.plane.submit(graph(), {}, "me", key=key)

        rig.store.commit = commit  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match=r"not known whether job .* repeat the request") as refused:
            await rig.plane.submission.keys.once(key, submit)
        assert not isinstance(refused.value, InDoubt), "which is not to be tried again"
        rig.fail_commits(None)
        job = await rig.plane.submission.keys.once(key, submit)
        assert (job == ids[0]) == is_stored
        await rig.until(lambda: job in rig.plane._keeper.jobs, "the job is served")
        assert len(list(rig.plane.jobs())) == 1


@pytest.mark.parametrize("error", [AWAY, LeaseLost("1", "somebody", 1)], ids=["away", "lease lost"])
@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_submission_of_which_nobody_knows_whether_it_was_stored_is_answered_so(
    sqlite_url: str, tmp_path: Path, error: StoreError, *, is_stored: bool
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job, _ = await in_doubt(rig, error, is_stored=is_stored)
        rig.fail_commits(None)
        if is_stored:
            await rig.until(lambda: job in rig.plane._keeper.jobs, "the job is served")
            await rig.bring_up(job, 1)
        else:
            await rig.until(lambda: job not in rig.plane._keeper._loading, "the job was looked for")
            assert not list(rig.plane.jobs())


async def test_a_commit_that_is_made_after_the_job_was_looked_for_is_found_by_its_lease(
    database_url: str, tmp_path: Path
) -> None:
    async with rig_on(database_url, tmp_path) as rig:
        job, unit = await in_doubt(rig, is_stored=False)
        rig.fail_commits(None)
        await rig.until(lambda: job not in rig.plane._keeper._loading, "the job was looked for")
        await rig.store.commit(unit)
        await Ownership(rig.plane._keeper)._renew()
        await rig.bring_up(job, 1)


async def test_a_job_that_is_being_submitted_is_not_taken_up_by_a_look_at_the_leases(
    database_url: str, tmp_path: Path
) -> None:
    async with rig_on(database_url, tmp_path) as rig:
        real = rig.store.commit

        async def commit(unit: UnitOfWork) -> None:
            await real(unit)
            rig.fail_commits(None)
            await Ownership(rig.plane._keeper)._renew()
            assert not rig.plane.jobs()

        rig.store.commit = commit  # type: ignore[method-assign]
        await rig.bring_up(await rig.plane.submit(graph(), {}), 1)


async def test_a_job_that_was_stored_in_doubt_and_handed_over_since_is_served_as_it_is_stored(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        real = rig.store.commit

        async def commit(unit: UnitOfWork) -> None:
            await real(unit)
            # As if another one had taken it up and handed it back.
            assert (await rig.store.acquire_lease(unit.job_id)).epoch == 2
            rig.fail_commits(JobExists("A job with that id exists already."))
            raise LOST

        rig.store.commit = commit  # type: ignore[method-assign]
        job = await rig.plane.submit(graph(), {})
        rig.fail_commits(None)
        await rig.until(lambda: job in rig.plane._keeper.jobs, "the job is served")
        assert rig.plane.job(job).epoch == 2
        await rig.bring_up(job, 1)
        assert [spec["attempt"] for driver in rig.host.drivers for spec in driver.specs] == [1]


async def test_a_job_that_was_stored_in_doubt_and_is_another_ones_since_counts_as_submitted(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "_DOUBT_RETRY_S", 0.01)
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(rig_on(sqlite_url, tmp_path))
        rigs = [old]

        async def commit(unit: UnitOfWork) -> None:
            await old._commit(unit)
            if len(rigs) == 1:
                new = await stack.enter_async_context(rig_on(sqlite_url, tmp_path, host=old.host))
                rigs.append(new)
                await new.bring_up(unit.job_id, 1)
                raise LOST

        old.store.commit = commit  # type: ignore[method-assign]
        job = await old.plane.submit(graph(), {})
        assert job not in old.plane._keeper.jobs
        await old.until(lambda: job not in old.plane._keeper._loading, "the job was looked for")
        assert job in old.plane._keeper.elsewhere and job not in old.plane._keeper.jobs
        assert rigs[1].plane.job(job).epoch == 2

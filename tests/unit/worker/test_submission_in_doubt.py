"""A job is submitted, and the database does not say whether it was stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.store import OutcomeUnknown, StoreUnavailable, UnitOfWork
from app.store.errors import JobExists
from app.worker.views import Unavailable
from tests.unit.worker.fakes import graph, rig_on


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_submission_of_which_nobody_knows_whether_it_was_stored_is_answered_so(
    sqlite_url: str, tmp_path: Path, is_stored: bool
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        real = rig.store.commit

        async def commit(unit: UnitOfWork) -> None:
            if is_stored:
                await real(unit)
            rig.fail_commits(StoreUnavailable("The database is away."))
            raise OutcomeUnknown("The connection was lost.")

        rig.store.commit = commit  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match="not known whether job") as refusal:
            await rig.plane.submit(graph(), {})
        job = str(refusal.value).partition(" whether job ")[2].split()[0]
        rig.fail_commits(None)
        if is_stored:
            await rig.until(lambda: job in rig.plane._keeper.jobs, "the job is served")
            await rig.bring_up(job, 1)
        else:
            await rig.until(lambda: job not in rig.plane._keeper._loading, "the job was looked for")
            assert not list(rig.plane.jobs())


async def test_a_job_that_was_stored_in_doubt_and_written_to_since_counts_as_submitted(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        real = rig.store.commit

        async def commit(unit: UnitOfWork) -> None:
            await real(unit)
            rig.fail_commits(JobExists("A job with that id exists already."))
            raise OutcomeUnknown("The connection was lost.")

        rig.store.commit = commit  # type: ignore[method-assign]
        job = await rig.plane.submit(graph(), {})
        rig.fail_commits(None)
        assert await rig.store.load_job(job) is not None

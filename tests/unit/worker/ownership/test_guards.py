"""A control plane acts for a job only as its owner of now: not at an epoch that is over, nor when it cannot be sure."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.worker.ownership.leases import Ownership
from app.worker.views import Fenced, RequirementsUpdate, Unavailable
from tests.unit.worker.fakes import rig_on

BOUNDS = {name: (1, 4) for name in ("events", "counts", "store")}
LEASE_MS = 15_000


async def test_a_job_that_is_this_process_again_at_a_newer_epoch_is_taken_up_anew(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        # Taken by another one, and back: or an answer to a claim was lost.
        await rig.store.acquire_lease(job)
        await Ownership(rig.store, rig.plane._keeper)._renew()
        assert rig.plane._keeper.jobs[job].writer.epoch == 2
        result = await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        assert (result.version, len(rig.host.drivers)) == (2, 1), "its driver was adopted"


async def test_a_renewal_leaves_jobs_alone_whose_epoch_is_their_own(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        served = rig.plane._keeper.jobs[job]
        await Ownership(rig.store, rig.plane._keeper)._renew()
        assert rig.plane._keeper.jobs[job] is served


async def test_a_driver_of_a_newer_owner_is_told_to_ask_elsewhere_and_not_to_exit(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        for secret in ("that of an attempt which only the newer owner knows", None):
            with pytest.raises(Unavailable, match="A newer control plane owns job"):
                await rig.send(job, epoch=2, secret=secret)
        with pytest.raises(Fenced):
            await rig.send(job, epoch=1, secret="wrong")
        assert await rig.send(job, epoch=1) >= 0


async def test_who_may_have_lost_the_lease_sends_no_driver_away(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        lease_certainty = rig.plane._keeper.lease_certainty
        lease_certainty.renewed(lease_certainty.now_ms(), LEASE_MS)
        with pytest.raises(Fenced):
            await rig.send(job, epoch=1, secret="wrong")
        rig.clock.stopped_ms += LEASE_MS
        for secret in ("wrong", None):
            with pytest.raises(Unavailable, match="or may own it"):
                await rig.send(job, epoch=1, secret=secret)


async def test_one_that_is_stopping_sends_no_driver_away(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        await rig.plane.close()
        with pytest.raises(Unavailable, match="is stopping"):
            await rig.send(job, epoch=1, secret="wrong")

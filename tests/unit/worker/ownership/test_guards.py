"""A control plane acts for a job only as its owner of now: not at an epoch that is over, nor when it cannot be sure."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.store.writes import PutAttempt, SaveState, UnitOfWork
from app.worker.ownership.leases import Ownership
from app.worker.refusals import Fenced, Unavailable
from app.worker.views import RequirementsUpdate
from tests.unit.worker.fakes import Rig, graph, rig_on

BOUNDS = {name: (1, 4) for name in ("events", "counts", "store")}
LEASE_MS = 15_000


async def test_a_job_that_is_this_process_again_at_a_newer_epoch_is_taken_up_anew(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        # Taken by another one, and back: or an answer to a claim was lost.
        await rig.store.acquire_lease(job)
        await Ownership(rig.plane._keeper)._renew()
        assert rig.plane._keeper.jobs[job].writer.epoch == 2
        result = await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        assert (result.version, len(rig.host.drivers)) == (2, 1), "its driver was adopted"


async def test_a_renewal_leaves_jobs_alone_whose_epoch_is_their_own(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        served = rig.plane._keeper.jobs[job]
        await Ownership(rig.plane._keeper)._renew()
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


async def test_who_may_have_lost_the_lease_answers_nothing_that_no_write_has_checked(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        in_force = RequirementsUpdate({name: (1, 2) for name in BOUNDS})
        assert not (await rig.plane.update_requirements(job, in_force)).changed
        rig.plane._keeper.lease_certainty.renewed(-LEASE_MS, 0)
        with pytest.raises(Unavailable, match="is checking which jobs it still owns"):
            await rig.plane.update_requirements(job, in_force)


def stop_behind(rig: Rig, kind: type) -> None:
    """The process is stopped, for longer than its leases last, as soon as a write of this kind is durable."""
    certainty = rig.plane._keeper.lease_certainty
    certainty.renewed(certainty.now_ms(), LEASE_MS)
    durable = rig.store.commit

    async def commit(unit: UnitOfWork) -> None:
        await durable(unit)
        rig.clock.stopped_ms += LEASE_MS * any(isinstance(write, kind) for write in unit.writes)

    rig.store.commit = commit  # type: ignore[method-assign]


async def test_who_is_stopped_behind_a_write_leaves_its_effects_to_the_owner(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        stop_behind(rig, SaveState)
        await rig.plane.cancel(job)
        assert not rig.is_served(job), "it is to be loaded again"
        assert rig.driver.kills == 0
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as owner:
        await owner.until(lambda: owner.kind(job) == "Finished")
        assert rig.driver.dead.is_set()


async def test_a_job_that_is_loaded_again_gets_the_slots_that_it_declared_before(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        stop_behind(rig, SaveState)
        await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        assert not rig.is_served(job), "it is to be loaded again"
        rig.fail_commits(None)
        certainty = rig.plane._keeper.lease_certainty
        certainty.renewed(certainty.now_ms(), LEASE_MS)
        await rig.until(lambda: rig.is_served(job) and len(rig.plane.job(job).state.slots) == 4, "4 slots")


async def test_who_is_stopped_behind_the_record_of_an_attempt_does_not_start_it(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        stop_behind(rig, PutAttempt)
        await rig.plane.submit(graph(), {})
        await rig.until(lambda: rig.host.drivers and rig.driver.dead.is_set(), "the end of the process")
        assert rig.driver.spec is None, "it has no job"


async def test_one_that_is_stopping_sends_no_driver_away(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        await rig.plane.close()
        with pytest.raises(Unavailable, match="is stopping"):
            await rig.send(job, epoch=1, secret="wrong")

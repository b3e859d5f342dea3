"""Jobs that have ended long ago, or that are too many, are forgotten."""

from __future__ import annotations

from pathlib import Path

from app.worker.housekeeping.housekeeping import Housekeeper
from app.worker.refusals import Unavailable
from tests.unit.worker.fakes import Rig, rig_on
from tests.unit.worker.housekeeping.test_housekeeping import DAY_MS, housekeeper


async def run_another(rig: Rig) -> str:
    rig.host.drivers.clear()
    return await rig.run()


async def end_job(rig: Rig) -> str:
    job = await run_another(rig)
    await rig.plane.cancel(job)
    await rig.until_kind(job, "Finished")
    rig.clock.ahead_ms += 1000
    return job


async def test_ended_jobs_are_forgotten_when_they_are_too_old_or_too_many(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        first, second = [await end_job(rig) for _ in range(2)]
        # However slow the host is, the third one is a day old much later.
        rig.clock.ahead_ms += DAY_MS // 2
        third = await end_job(rig)
        running = await run_another(rig)

        def keeper(**limits: int) -> Housekeeper:
            plane = rig.plane
            return housekeeper(
                rig.store, plane.jobs, rig.clock, places=rig.places, forget=plane.forget, **limits
            )

        def shown() -> set[str]:
            return {one.state.job_id for one in rig.plane.jobs()}

        assert await keeper(ended_jobs_max_count=3).tidy() == (0, 0)
        assert shown() == {first, second, third, running}
        await keeper(ended_jobs_max_count=2).tidy()
        assert shown() == {second, third, running}
        assert await rig.store.load_job(first) is None and not rig.places.job_dir(first).exists()
        (ended_ms,) = [one.ended_ms for one in rig.plane.jobs() if one.state.job_id == second]
        assert ended_ms is not None
        rig.clock.ahead_ms += ended_ms + DAY_MS + 100 - rig.clock.now_ms()
        await keeper(ended_jobs_max_age_days=1).tidy()
        assert shown() == {third, running}
        rig.clock.ahead_ms += 10 * DAY_MS
        await keeper(ended_jobs_max_age_days=1).tidy()
        assert shown() == {third, running}, "no server has run for a day"
        await rig.store.advance_age_clock(rig.clock.now_ms())
        await keeper(ended_jobs_max_age_days=1).tidy()
        assert shown() == {running}, "however old, a job that has not ended stays"


async def test_an_ended_job_that_cannot_be_forgotten_does_not_keep_the_others(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        jobs = [await end_job(rig) for _ in range(2)]

        async def forget(job_id: str) -> None:
            if job_id == jobs[1]:
                raise Unavailable("The disk is full.")
            await rig.plane.forget(job_id)

        rig.clock.ahead_ms += 100 * DAY_MS
        keeper = housekeeper(rig.store, rig.plane.jobs, rig.clock, forget=forget)
        assert (await keeper.tidy())[1] == 1
        assert [one.state.job_id for one in rig.plane.jobs()] == [jobs[1]]

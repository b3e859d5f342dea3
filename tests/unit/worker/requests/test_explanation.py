"""What an explanation says of slots that a job was given a moment ago."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.store.writes import UnitOfWork
from tests.unit.worker.fakes import graph, rig_on


async def test_slots_that_the_state_does_not_tell_of_yet_are_not_those_of_other_jobs(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        pool, commit, may_go_on = rig.plane._keeper.broker.pool, rig.store.commit, asyncio.Event()

        async def late_commit(unit: UnitOfWork) -> None:
            if pool.free < pool.total:
                await may_go_on.wait()
            await commit(unit)

        rig.store.commit = late_commit  # type: ignore[method-assign]
        job = await rig.plane.submit(graph(2), {})
        await rig.until(lambda: pool.free < pool.total, "the grant")
        said = rig.plane.explanation(job).sentences
        may_go_on.set()
        await rig.assigned(1)
    assert (
        "The host has 8 slots: 0 held by this job, 0 by other jobs, 2 being given to this job, 6 free."
        in said
    )

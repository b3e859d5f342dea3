"""Reports that come in one call: what they tell of a job's load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.worker.fakes import rig_on

MINUTE_MS = 60_000


async def test_batches_of_one_call_are_shown_when_they_were(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        now_ms = rig.clock.now_ms() // MINUTE_MS * MINUTE_MS
        batches = [
            replace(
                rig.driver.report("batch", query_id="r", batch_id=number, plan_version=1, input_rows=60),
                started_ms=now_ms - (5 - number) * MINUTE_MS,
                at_ms=now_ms - (4 - number) * MINUTE_MS,
            )
            for number in range(5)
        ]
        await rig.send(job, *batches)
        steps = rig.plane.job(job).load.steps.read(MINUTE_MS, rig.clock.now_ms())
        assert len(steps.starts_ms) >= 5
        assert max(steps.rows_per_second) <= 1.1, "no two of them in a minute"

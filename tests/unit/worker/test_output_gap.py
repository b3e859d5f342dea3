"""What the control plane tells a driver and hears from it of the pause in its job's output."""

from __future__ import annotations

from pathlib import Path

from app.model.rescale import TerminalState
from tests.unit.worker.fakes import rig_on


async def test_a_driver_is_told_since_when_the_job_has_not_run(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        assert rig.driver.specs[0]["since_ms"] > 0
        rig.driver.die(-9)
        await rig.assigned(2)
        newest = (await rig.plane.rescales(job))[0]
        assert rig.driver.spec is not None and rig.driver.spec["since_ms"] == newest.start_ms
        await rig.register(job)
        await rig.report(job, "running", plan_version=rig.driver.spec["plan_version"])
        # Of several queries it is the first batch of one that completes the record.
        version = rig.driver.spec["plan_version"]
        await rig.report(job, "batch", query_id="q", plan_version=version, output_gap_ms=168_000)
        newest = (await rig.plane.rescales(job))[0]
        assert (newest.terminal_state, newest.output_gap_ms) == (TerminalState.COMPLETED, 168_000)

"""The worker as the API and drivers see it: submit, run, rescale in place, end; and what it says when it refuses."""

from __future__ import annotations

from pathlib import Path

from app.model.rescale import TerminalState, TriggerCause
from app.worker.views import RequirementsUpdate
from tests.unit.worker.fakes import rig_on


async def test_a_put_is_applied_in_place_and_its_record_completes(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run(parallelism=2)
        driver = rig.driver
        result = await rig.plane.update_requirements(
            job, RequirementsUpdate({name: (1, 4) for name in ("events", "counts", "store")})
        )
        assert (result.version, result.changed) == (2, True)
        await rig.until_kind(job, "Rescaling")
        orders = await rig.orders(job)
        assert set(orders.parallelism.values()) == {4}
        await rig.report(job, "plan-applied", plan_version=orders.plan_version, output_gap_ms=40)
        view = await rig.until_kind(job, "Executing")
        assert dict(view.state.plan.parallelism) == orders.parallelism  # type: ignore[union-attr]
        newest, first = await rig.plane.rescales(job)
        assert (newest.cause, newest.terminal_state, newest.output_gap_ms) == (
            TriggerCause.UPDATE_REQUIREMENT,
            TerminalState.COMPLETED,
            40,
        )
        assert (first.cause, first.terminal_state) == (
            TriggerCause.INITIAL_SCHEDULE,
            TerminalState.COMPLETED,
        )
        assert rig.host.drivers == [driver] and not driver.dead.is_set()

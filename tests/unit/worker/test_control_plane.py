"""The worker as the API and drivers see it: submit, run, rescale in place, end; and what it says when it refuses."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cluster.ports import Offer
from app.model.jobgraph import InPlace
from app.model.plan import Slot
from app.model.rescale import TerminalState, TriggerCause
from app.scheduler.adaptive.events import SlotsChanged
from app.store.errors import OutcomeUnknown, StoreUnavailable
from app.store.errors import StateConflict as StoreConflict
from app.worker.job.attempt_record import write_outcome
from app.worker.refusals import Fenced, StaleVersion, StateConflict, Unavailable
from app.worker.views import RequirementsUpdate
from tests.unit.worker.fakes import Rig, graph, rig_on


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


BOUNDS = {name: (1, 4) for name in ("events", "counts", "store")}
OTHER = {name: (1, 3) for name in ("events", "counts", "store")}


async def test_one_idempotency_key_is_one_update(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        update = RequirementsUpdate(BOUNDS, idempotency_key="k")
        answers = await asyncio.gather(*(rig.plane.update_requirements(job, update) for _ in range(5)))
        await rig.plane.update_requirements(job, RequirementsUpdate(OTHER))
        answers.append(await rig.plane.update_requirements(job, update))
        assert {(one.version, one.changed) for one in answers} == {(2, True)}
        assert rig.plane.job(job).state.requirements.version == 3
        with pytest.raises(StateConflict, match="used before for another request"):
            await rig.plane.update_requirements(job, RequirementsUpdate(OTHER, idempotency_key="k"))
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        result = await again.plane.update_requirements(job, update)
        assert (result.version, result.changed) == (2, True), "the key outlives the control plane"


async def test_a_refused_request_leaves_its_key_unused(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        with pytest.raises(StaleVersion):
            await rig.plane.update_requirements(
                job, RequirementsUpdate(BOUNDS, if_match=9, idempotency_key="k")
            )
        rig.fail_commits(StoreUnavailable("The disk is full."))
        with pytest.raises(Unavailable, match=r"The disk is full\. Nothing was changed; try again\."):
            await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS, idempotency_key="k"))
        rig.fail_commits(None)
        result = await rig.plane.update_requirements(job, RequirementsUpdate(OTHER, idempotency_key="k"))
        assert (result.version, result.changed) == (2, True)


async def test_a_report_is_acknowledged_when_it_is_durable(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.plane.submit(graph(), {})
        driver = await rig.assigned(1)
        await rig.register(job)
        running = driver.report("running", plan_version=1)
        rig.fail_commits(StoreUnavailable("The disk is full."))
        for _ in range(2):
            with pytest.raises(Unavailable):
                await rig.send(job, running)
        assert rig.kind(job) == "CreatingExecutionGraph"
        rig.fail_commits(None)
        assert await rig.send(job, running) == 1
        assert rig.kind(job) == "Executing"
        stored = await rig.store.load_job(job)
        assert stored is not None and stored.attempt is not None
        assert stored.attempt.acknowledged == 1


async def test_facts_outlast_a_store_that_is_away(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        rig.fail_commits(StoreUnavailable("The disk is full."))
        rig.driver.die(-9)
        with pytest.raises(Unavailable):
            await rig.plane.cancel(job)
        assert rig.kind(job) == "Executing"
        rig.fail_commits(None)
        await rig.bring_up(job, 2)
        assert rig.plane.job(job).state.recovery.num_restarts == 1


async def test_facts_that_could_not_be_written_keep_their_order(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        held = rig.plane.job(job).state.slots
        rig.fail_commits(StoreUnavailable("The disk is full."))
        for slots in ((*held, Slot("other-0", "other")), held):
            rig.plane._keeper.jobs[job].deliver(SlotsChanged(slots))
        with pytest.raises(Unavailable):
            await rig.plane.cancel(job)
        rig.fail_commits(None)
        await rig.plane._keeper.jobs[job].worker.settle()
        assert rig.plane.job(job).state.slots == held


async def test_a_put_that_could_not_be_written_is_not_made_later(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        rig.fail_commits(StoreUnavailable("The disk is full."))
        rig.driver.die(-9)
        with pytest.raises(Unavailable, match="Nothing was changed"):
            await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        rig.fail_commits(None)
        # The death of the driver, which could not be written with it, is.
        await rig.bring_up(job, 2)
        assert rig.plane.job(job).state.requirements.version == 1
        assert (await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))).version == 2


async def test_a_put_of_which_nobody_knows_whether_it_was_written_is_answered_so(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        rig.fail_commits(OutcomeUnknown("The connection was lost."))
        with pytest.raises(Unavailable, match="Read the job again to see whether it was") as refusal:
            await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        assert "Nothing was changed" not in str(refusal.value)
        rig.fail_commits(None)
        await rig.until(
            lambda: rig.plane.job(job).state.requirements.version == 2, "the same unit is tried again"
        )


async def test_a_state_of_somebody_else_is_loaded(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        driver = rig.driver
        rig.fail_commits(StoreConflict("State 9 cannot be written."))
        with pytest.raises(Unavailable, match="loaded again"):
            await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        with pytest.raises(Unavailable):
            rig.plane.job(job)
        with pytest.raises(Unavailable):
            await rig.orders(job)
        rig.fail_commits(None)
        await rig.until(lambda: rig.is_served(job), "the job is served again")
        assert (await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))).version == 2
        assert rig.plane.job(job).driver_pid == driver.ref.pid, "its driver was adopted"


async def test_a_lost_lease_ends_the_work_on_the_job(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as old:
        job = await old.run()
        async with rig_on(sqlite_url, tmp_path, host=old.host) as new:
            with pytest.raises(Unavailable, match="Another control plane owns the job"):
                await old.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
            with pytest.raises(Unavailable):
                await old.orders(job)
            assert not old.is_served(job)
            assert not old.driver.dead.is_set()
            assert (await new.plane.update_requirements(job, RequirementsUpdate(BOUNDS))).version == 2


async def test_an_overtaken_control_plane_sends_no_driver_away(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as old:
        job = await old.run()
        async with rig_on(sqlite_url, tmp_path, host=old.host) as new:
            old.driver.die(1)
            driver = await new.assigned(2)
            assert driver.spec is not None and driver.spec["epoch"] == 2
            await new.register(job)
            with pytest.raises(Unavailable):
                await old.register(job)


async def test_who_is_over_or_nobody_is_fenced(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        first = rig.driver
        assert first.spec is not None
        for attempt, secret in ((1, "wrong"), (2, first.spec["secret"])):
            with pytest.raises(Fenced):
                await rig.plane.driver_reports(job, attempt, secret, 1, [])
        with pytest.raises(Fenced):
            await rig.plane.driver_reports("f" * 32, 1, "any", 1, [])
        first.die(-9)
        await rig.assigned(2)
        with pytest.raises(Fenced):
            await rig.plane.driver_reports(job, 1, first.spec["secret"], 1, [])


async def test_cancel_while_a_driver_is_being_started(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        rig.host.hold_acquire = asyncio.Event()
        job = await rig.plane.submit(graph(), {})
        await rig.until_kind(job, "CreatingExecutionGraph")
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        rig.host.hold_acquire.set()
        assert rig.plane.job(job).status == "CANCELED"
        assert not any(driver.spec for driver in rig.host.drivers)


async def test_cancel_while_a_driver_gets_ready(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        rig.host.prepare = lambda driver: setattr(driver, "hold_assign", asyncio.Event())
        job = await rig.plane.submit(graph(), {})
        await rig.until(lambda: rig.plane.job(job).driver_pid is not None)
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        assert rig.driver.dead.is_set() and rig.driver.spec is None
        assert [row.state for row in await rig.store.attempts(job)] == ["DEAD"]


async def test_the_next_driver_waits_until_the_last_one_is_gone(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        first = rig.driver
        first.hold_kill = asyncio.Event()
        await rig.report(job, "failed", error="A function raised ValueError.")
        await rig.until(lambda: first.kills > 0)
        assert (rig.kind(job), rig.host.drivers) == ("Restarting", [first])
        first.hold_kill.set()
        assert await rig.assigned(2) is not first


async def restarting(rig: Rig, **config: Any) -> str:
    """A job whose query is being restarted, since one of its vertices cannot change in place."""
    made = graph(**config)
    vertices = tuple(replace(vertex, in_place=InPlace.QUERY_RESTART) for vertex in made.vertices)
    job = await rig.plane.submit(replace(made, vertices=vertices), {})
    await rig.bring_up(job, 1)
    bounds = {name: (1, 4 if name == "counts" else 2) for name in ("events", "counts", "store")}
    await rig.plane.update_requirements(job, RequirementsUpdate(bounds))
    await rig.report(job, "batch", query_id="q", batch_id=1, plan_version=1)
    await rig.until_kind(job, "Restarting")
    return job


async def test_a_driver_that_is_being_killed_gets_no_other_attempt(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        hold = asyncio.Event()
        rig.host.prepare = lambda driver: setattr(driver, "hold_kill", hold)
        job = await restarting(rig, **{"slotwise.driver.stop-timeout": "50 ms"})
        first = rig.driver
        await rig.until(lambda: first.kills > 0)
        # It was on its way when the signal was sent: the queries are stopped, the process waits for its next attempt.
        await rig.report(job, "stopped", driver_alive=True)
        hold.set()
        assert await rig.assigned(2) is not first
        await rig.bring_up(job, 2)


async def test_a_driver_that_died_while_it_said_that_it_waits_gets_no_other_attempt(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        hold = asyncio.Event()
        rig.host.prepare = lambda driver: setattr(driver, "hold_kill", hold)
        job = await restarting(rig)
        first = rig.driver
        # Its JVM is still there for a moment when the report arrives.
        first.die(-9)
        await rig.until(lambda: first.kills > 0)
        await rig.report(job, "stopped", driver_alive=True)
        assert rig.kind(job) == "Restarting", "something of it may still write"
        hold.set()
        assert await rig.assigned(2) is not first
        await rig.bring_up(job, 2)
        assert not rig.plane.job(job).state.recovery.failures


async def test_a_driver_that_dies_while_it_waits_gets_no_other_attempt(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        hold = asyncio.Event()
        rig.host.prepare = lambda driver: setattr(driver, "hold_kill", hold)
        job = await restarting(rig)
        first = rig.driver
        # It waits for its next attempt, which cannot be begun before its end is written.
        rig.fail_commits(StoreUnavailable("The disk is full."))
        with pytest.raises(Unavailable):
            await rig.report(job, "stopped", driver_alive=True)
        first.die(-9)
        await rig.until(lambda: first.kills > 0)
        rig.fail_commits(None)
        await rig.until_kind(job, "CreatingExecutionGraph")
        assert rig.host.drivers == [first], "something of it may still write"
        hold.set()
        assert await rig.assigned(2) is not first
        await rig.bring_up(job, 2)
        assert not rig.plane.job(job).state.recovery.failures


async def test_the_last_word_that_nobody_took_is_read_when_the_driver_is_gone(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        await rig.plane.stop(job)
        # It drained and wrote down how it ended, having reached nobody.
        word = rig.driver.report("stopped", drained=True, driver_alive=False, location="/checkpoint")
        write_outcome(rig.places.attempt_dir(job, 1), word)
        rig.driver.die(0)
        view = await rig.until_kind(job, "Finished")
        assert (view.status.value, view.state.recovery.failures, len(rig.host.drivers)) == ("FINISHED", (), 1)


async def test_a_launch_that_fails_is_tried_again(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        rig.host.refuse = "No memory for a driver."
        job = await rig.plane.submit(graph(), {})
        await rig.until(lambda: rig.plane.job(job).state.recovery.failures)
        rig.host.refuse = None
        await rig.until(lambda: rig.host.drivers, "another try")
        assert rig.plane.job(job).state.recovery.failures[0][0].error == "No memory for a driver."


async def test_slots_that_come_change_the_job_in_place(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path, slots=2) as rig:
        job = await rig.run(parallelism=4)
        rig.plane.take_offer(Offer(tuple({"host": 2, "other": 2}.items())))
        await rig.until_kind(job, "Rescaling")
        assert set((await rig.orders(job)).parallelism.values()) == {4}


async def test_a_repeated_stop_is_answered_alike_when_the_job_has_ended(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        assert await rig.plane.stop(job, trigger_id="once") == "once"
        await rig.report(job, "stopped", drained=True, location="checkpoint")
        rig.driver.die(0)
        await rig.until_kind(job, "Finished")
        assert await rig.plane.stop(job, trigger_id="once") == "once"
        with pytest.raises(StateConflict, match="terminal state FINISHED: it cannot be stopped"):
            await rig.plane.stop(job, trigger_id="another")
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        assert await again.plane.stop(job, trigger_id="once") == "once"


async def test_a_host_without_descriptors_costs_a_job_no_attempt(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.worker.job.drivers._DESCRIPTORS_RETRY_S", 0.001)
    async with rig_on(sqlite_url, tmp_path) as rig:
        rig.host.fail_acquire = OSError(errno.EMFILE, "Too many open files")
        job = await rig.plane.submit(graph(), {})
        await rig.until(lambda: rig.host.failed_acquires > 50, "many tries")
        assert rig.kind(job) == "CreatingExecutionGraph"
        rig.host.fail_acquire = None
        await rig.assigned(1)


@pytest.mark.parametrize(
    ("config", "expected"),
    [({}, None), ({"slotwise.source.spread": "false"}, False)],
    ids=["by-sink", "false"],
)
async def test_a_driver_is_told_whether_rows_of_sources_may_be_spread(
    sqlite_url: str, tmp_path: Path, config: dict[str, str], expected: bool | None
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        await rig.run(**config)
        assert rig.driver.spec is not None and rig.driver.spec["spread_sources"] is expected

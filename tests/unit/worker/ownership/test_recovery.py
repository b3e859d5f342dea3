"""A control plane that starts on the database of one that was killed: what lives is adopted, the rest is done again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.model.rescale import TerminatedReason
from app.store.store import Store
from app.worker.job import stored_jobs
from app.worker.job.job import Job
from app.worker.job.orders import implied_effects
from app.worker.slots.broker import OwnBroker
from app.worker.views import RequirementsUpdate
from tests.unit.worker.fakes import Rig, graph, rig_on

BOUNDS = {name: (1, 4) for name in ("events", "counts", "store")}


async def test_a_live_driver_is_adopted_and_the_rescale_goes_on(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        await rig.until_kind(job, "Rescaling")
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        assert again.plane.job(job).driver_pid == rig.driver.ref.pid
        orders = await again.orders(job)
        assert (set(orders.parallelism.values()), orders.epoch) == ({4}, 2)
        await again.report(job, "plan-applied", plan_version=orders.plan_version)
        await again.until_kind(job, "Executing")
        newest = (await again.plane.rescales(job))[0]
        assert newest.reason is TerminatedReason.SUCCEEDED
        assert len(again.host.drivers) == 1 and rig.driver.kills == 0


async def test_reports_that_were_taken_down_before_do_not_count_again(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        batch = rig.driver.report("batch", query_id="q", batch_id=1, plan_version=1)
        await rig.send(job, batch)
        # What follows makes its number durable.
        await rig.plane.update_requirements(job, RequirementsUpdate(BOUNDS))
        stored = await rig.store.load_job(job)
        assert stored is not None and stored.attempt is not None and stored.attempt.acknowledged == batch.seq
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        # Its answer was lost with the control plane, so the driver sends it again.
        assert await again.send(job, batch) == batch.seq
        assert again.plane.job(job).last_batches == {}, "a batch of before counts as one of now"
        assert again.plane.explanation(job).last_batch_ms is None
        later = again.driver.report("batch", query_id="q", batch_id=2, plan_version=1)
        assert await again.send(job, batch, later) == later.seq
        assert again.plane.job(job).last_batches == {"q": later}


async def test_a_driver_that_died_meanwhile_is_replaced(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
    rig.driver.die(-9)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.bring_up(job, 2)
        assert again.plane.job(job).state.recovery.num_restarts == 1


@pytest.mark.parametrize("written_by", ["driver", "control plane"])
async def test_the_last_word_of_a_driver_counts(sqlite_url: str, tmp_path: Path, written_by: str) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        if written_by == "control plane":
            assert await rig.report(job, "finished") > 0
            assert rig.kind(job) == "Executing", "its process lives"
        else:
            words = {
                "seq": 0,
                "at_ms": 1,
                "type": "finished",
                "drained": False,
                "location": None,
                "error": None,
            }
            (rig.places.attempt_dir(job, 1) / "outcome.json").write_text(json.dumps(words))
    rig.driver.die(0)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.until(lambda: again.kind(job) == "Finished")
        assert again.plane.job(job).status == "FINISHED"


FAILED_WORDS = {
    "seq": 0,
    "at_ms": 1,
    "type": "failed",
    "error": "Vertex counts failed at code.py:3: KeyError: 'k'",
    "stack": "Traceback",
    "vertex": "counts",
    "recoverable": False,
}


async def test_a_failure_that_nobody_heard_is_the_one_that_counts(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        (rig.places.attempt_dir(job, 1) / "outcome.json").write_text(json.dumps(FAILED_WORDS))
    rig.driver.die(4)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.until(lambda: again.kind(job) == "Finished")
        assert again.plane.job(job).status == "FAILED", "it said that another attempt would fail as well"
        ((failure,),) = again.plane.job(job).state.recovery.failures
        assert (failure.error, failure.vertex) == (FAILED_WORDS["error"], "counts")
        assert failure.stack == "Traceback"


async def test_a_failure_that_was_reported_before_is_not_told_twice(sqlite_url: str, tmp_path: Path) -> None:
    words = {**FAILED_WORDS, "recoverable": True}
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        rig.driver.hold_kill = asyncio.Event()
        await rig.report(
            job, **{k: v for k, v in words.items() if k not in ("seq", "at_ms", "type")}, kind="failed"
        )
        await rig.until_kind(job, "Restarting")
        (rig.places.attempt_dir(job, 1) / "outcome.json").write_text(json.dumps(words))
    rig.driver.die(4)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.bring_up(job, 2)
        state = again.plane.job(job).state
        assert [len(entry) for entry in state.recovery.failures] == [1]
        assert state.recovery.num_restarts == 1


async def test_an_adopted_driver_that_said_it_ends_is_waited_for(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        await rig.report(job, "finished")
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        assert again.kind(job) == "Executing"
        rig.driver.die(None)
        await again.until(lambda: again.kind(job) == "Finished")
        assert again.plane.job(job).status == "FINISHED"


async def test_a_job_that_was_submitted_and_not_begun_is_begun(sqlite_url: str, tmp_path: Path) -> None:
    store = await Store.open(sqlite_url, "killed", durable=False)
    rig = Rig(store, tmp_path)
    job = await rig.plane.submit(graph(), {})
    # Killed here: the event that begins the scheduling was in memory only.
    await rig.plane.close()
    await store.close()
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.bring_up(job, 1)


async def test_slots_that_became_free_meanwhile_are_granted(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path, slots=2) as rig:
        first = await rig.run(parallelism=2)
        second = await rig.plane.submit(graph(2), {})
        await rig.until_kind(second, "WaitingForResources")
        await rig.until(lambda: rig.plane.job(second).state.supply.declared == 2)
    assert first != second
    async with rig_on(sqlite_url, tmp_path, host=rig.host, slots=4) as again:
        await again.assigned(1)
        await again.until_kind(second, "CreatingExecutionGraph")


async def test_a_parked_driver_cannot_be_used_again_and_is_ended(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        # So long that nothing is started here any more; the clock of the next one is ahead of it.
        job = await rig.run(**{"restart-strategy.exponential-delay.initial-backoff": "30 s"})
        parked = rig.driver
        await rig.report(job, "stopped", driver_alive=True)
        await rig.until_kind(job, "Restarting")
        row = (await rig.store.attempts(job))[0]
        assert row.state == "DEAD" and not parked.dead.is_set()
    async with rig_on(sqlite_url, tmp_path, host=rig.host, ahead_ms=60_000) as again:
        await again.until(lambda: len(again.host.drivers) > 1 and again.driver.spec, "a new driver")
        assert parked.dead.is_set(), "it holds the lock of the checkpoint until it is gone"


async def test_a_job_of_a_server_whose_clock_was_ahead_goes_on_by_that_time_and_others_by_their_own(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path, ahead_ms=3_600_000) as rig:
        job = await rig.run()
        before_ms = rig.plane.job(job).state.phase_since_ms
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        other = await again.plane.submit(graph(2), {})
        assert again.plane.job(job).ahead_ms > 3_500_000
        assert again.plane.job(other).ahead_ms == 0
        assert again.plane.job(other).state.phase_since_ms < before_ms


async def test_a_running_job_implies_nothing(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        assert implied_effects(rig.plane.job(job).state) == ()


def unbuildable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on jobs of this name cannot be built, as if another version had stored them."""

    def java_options(job: Job) -> tuple[str, ...]:
        if job.state.graph.name == name:
            raise ValueError("No closing quotation")
        return ()

    monkeypatch.setattr(Job, "java_options", property(java_options))


async def test_a_job_that_cannot_be_built_is_left_alone_and_the_others_are_served(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        broken = await rig.run()
        good = await rig.plane.submit(graph(name="others"), {})
    unbuildable(monkeypatch, "counts")
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        assert not again.is_served(broken)
        assert again.is_served(good)
        assert again.driver.kills == 0, "its driver runs on"


async def test_a_job_that_cannot_be_built_is_not_stored(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        unbuildable(monkeypatch, "counts")
        with pytest.raises(ValueError, match="No closing quotation"):
            await rig.plane.submit(graph(), {})
        assert await rig.store.list_jobs() == []


class Flaky:
    """Stands in for a function: fails the first ``times`` times with ``error``."""

    def __init__(self, real: Callable[..., Any], times: int, error: Exception) -> None:
        self.real, self.left, self.error = real, times, error

    def __call__(self, *args: Any) -> Any:
        if self.left:
            self.left -= 1
            raise self.error
        return self.real(*args)


NO_FILES = OSError(24, "Too many open files")
DISK_FULL = OSError(28, "No space left on device")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.worker.retrying._AFTER_S", 0.001)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("error", [NO_FILES, DISK_FULL, RuntimeError("a defect")])
async def test_a_job_that_cannot_be_taken_up_now_is_tried_again(
    sqlite_url: str, tmp_path: Path, error: Exception
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        other = await rig.plane.submit(graph(), {})
        await rig.until_kind(other, "CreatingExecutionGraph")
    flaky = Flaky(rig.host.adopt, 3, error)
    rig.host.adopt = flaky  # type: ignore[method-assign]
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.until(lambda: again.is_served(job) and again.is_served(other), "both jobs")
        assert flaky.left == 0
        assert again.plane.job(job).driver_pid == rig.host.drivers[0].ref.pid
        assert rig.host.drivers[0].kills == 0


@pytest.mark.usefixtures("soon")
async def test_a_full_disk_keeps_one_job_from_being_served_and_not_for_ever(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.plane.submit(replace(graph(), artifacts=("f.py",)), {"f.py": b"x = 1\n"})
        await rig.bring_up(job, 1)
        other = await rig.plane.submit(graph(), {})
    file = rig.places.artifacts_dir(job) / "f.py"
    file.unlink()
    full = Flaky(stored_jobs.write_artifacts, 10**6, DISK_FULL)
    monkeypatch.setattr(stored_jobs, "write_artifacts", full)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        assert again.is_served(other) and not again.is_served(job)
        await again.until(lambda: full.left < 10**6 - 3, "three more tries")
        assert not again.is_served(job)
        full.left = 0
        await again.until(lambda: again.is_served(job), "the job")
        assert file.read_bytes() == b"x = 1\n"


async def test_a_job_whose_slots_cannot_be_read_keeps_no_other_from_being_served(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        unknown = await rig.run()
        other = await rig.plane.submit(graph(1), {})

    async def look_up(_self: OwnBroker, job_ids: Sequence[str]) -> set[str]:
        return {unknown} & set(job_ids)

    monkeypatch.setattr(OwnBroker, "look_up", look_up)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        assert again.is_served(other) and not again.is_served(unknown)
        assert not rig.host.drivers[0].dead.is_set(), "its driver is left alone"

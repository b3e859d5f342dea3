"""A server that finds drivers of an earlier one which had another cluster in its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cluster.ports import Offer
from app.model.rescale import TerminatedReason, TriggerCause
from app.settings import load_settings
from app.worker.job.places import misplaced, place_of
from app.worker.views import RequirementsUpdate
from tests.unit.worker.fakes import Rig, graph, rig_on

OLD, NEW = "spark://old:7077", "spark://new:7077"
WORKERS = Offer((("worker-1", 4),))


async def moved(again: Rig, job: str) -> None:
    """The driver that was adopted is told to stop at a boundary, does so, and another one gets the job."""
    before = again.driver
    await again.until(lambda: again.kind(job) == "Restarting", "the move")
    assert (await again.orders(job)).stop == "boundary"
    assert not before.dead.is_set(), "it ends at a batch boundary, not in a batch"
    await again.report(job, "stopped", drained=True, driver_alive=True)
    await again.until(before.dead.is_set, "the end of the old driver")
    await again.bring_up(job, 2)
    assert again.driver is not before


@pytest.mark.parametrize(("before", "after"), [("", NEW), (OLD, NEW), (OLD, "")])
async def test_a_running_job_goes_on_where_the_settings_say(
    database_url: str, tmp_path: Path, before: str, after: str
) -> None:
    async with rig_on(database_url, tmp_path, runs_on=before) as rig:
        job = await rig.run(**{"restart-strategy.type": "none"})
        assert [one.runs_on for one in await rig.store.attempts(job)] == [before]
    async with rig_on(database_url, tmp_path, host=rig.host, runs_on=after, offer=WORKERS) as again:
        await moved(again, job)
        state = again.plane.job(job).state
        assert {slot.task_manager_id for slot in state.slots} == {"worker-1"}
        assert [one.runs_on for one in await again.store.attempts(job)] == [before, after]
        newest = (await again.plane.rescales(job))[0]
        assert (newest.cause, newest.reason) == (
            TriggerCause.RECOVERABLE_FAILOVER,
            TerminatedReason.SUCCEEDED,
        )
        words = newest.message or ""
        assert all((place or "the server's host") in words for place in (before, after)), words
        assert state.recovery.failures == (), "nobody failed, so no restart strategy was asked"


async def test_a_rescale_that_was_under_way_is_completed_there(database_url: str, tmp_path: Path) -> None:
    async with rig_on(database_url, tmp_path, runs_on=OLD) as rig:
        job = await rig.run()
        wider = {name: (1, 4) for name in ("events", "counts", "store")}
        await rig.plane.update_requirements(job, RequirementsUpdate(wider))
        await rig.until_kind(job, "Rescaling")
    async with rig_on(database_url, tmp_path, host=rig.host, runs_on=NEW, offer=WORKERS) as again:
        await moved(again, job)
        newest = (await again.plane.rescales(job))[0]
        assert (newest.cause, newest.reason) == (TriggerCause.UPDATE_REQUIREMENT, TerminatedReason.SUCCEEDED)
        assert NEW in (newest.message or "") and {one.post for one in newest.vertices} == {4}


async def test_a_driver_that_is_being_started_is_killed_and_another_one_started(
    database_url: str, tmp_path: Path
) -> None:
    async with rig_on(database_url, tmp_path, runs_on=OLD) as rig:
        job = await rig.plane.submit(graph(2), {})
        first = await rig.assigned(1)
        await rig.until(lambda: rig.plane.job(job).driver_pid is not None)
    async with rig_on(database_url, tmp_path, host=rig.host, runs_on=NEW, offer=WORKERS) as again:
        await again.bring_up(job, 2)
        assert first.dead.is_set() and again.driver is not first
        assert NEW in ((await again.plane.rescales(job))[0].message or "")


async def test_a_driver_that_drains_ends_where_it_is(database_url: str, tmp_path: Path) -> None:
    async with rig_on(database_url, tmp_path, runs_on=OLD) as rig:
        job = await rig.run()
        await rig.plane.stop(job)
        await rig.until_kind(job, "StopWithSavepoint")
    async with rig_on(database_url, tmp_path, host=rig.host, runs_on=NEW, offer=WORKERS) as again:
        assert (await again.orders(job)).stop == "drain"
        await again.report(job, "stopped", drained=True, location="/checkpoint")
        again.driver.die(0)
        await again.until(lambda: again.kind(job) == "Finished")
        assert (again.plane.job(job).status, len(again.host.drivers)) == ("FINISHED", 1)


async def test_one_whose_drain_fails_is_moved_then(database_url: str, tmp_path: Path) -> None:
    async with rig_on(database_url, tmp_path, runs_on=OLD) as rig:
        job = await rig.run()
        await rig.plane.stop(job)
        await rig.until_kind(job, "StopWithSavepoint")
    async with rig_on(database_url, tmp_path, host=rig.host, runs_on=NEW, offer=WORKERS) as again:
        await again.report(job, "stopped", driver_alive=True, error="the disk is full")
        await moved(again, job)


async def test_a_job_stays_where_it_is_until_the_new_cluster_is_seen(
    database_url: str, tmp_path: Path
) -> None:
    blind = Offer((), unreachable=True, why=("The Spark master cannot be asked.",))
    async with rig_on(database_url, tmp_path, runs_on=OLD) as rig:
        job = await rig.run()
    async with rig_on(database_url, tmp_path, host=rig.host, runs_on=NEW, offer=blind) as again:
        await again.until(
            lambda: again.plane.job(job).state.cluster_unreachable, "the news that the cluster is away"
        )
        orders = await again.orders(job)
        assert await again.report(job, "batch", query_id="q", batch_id=1, plan_version=orders.plan_version)
        assert (again.kind(job), orders.stop) == ("Executing", "none")
        again.plane.take_offer(WORKERS)
        await moved(again, job)


@pytest.mark.parametrize("after", [OLD, "spark://OLD:7077", "spark://one:7077,old:7077"])
async def test_a_driver_of_the_same_cluster_is_adopted(database_url: str, tmp_path: Path, after: str) -> None:
    async with rig_on(database_url, tmp_path, runs_on=OLD, offer=WORKERS) as rig:
        job = await rig.run()
    async with rig_on(database_url, tmp_path, host=rig.host, runs_on=after, offer=WORKERS) as again:
        orders = await again.orders(job)
        assert (again.kind(job), orders.stop) == ("Executing", "none")
        assert again.plane.job(job).state.recovery.num_restarts == 0 and rig.driver.kills == 0


async def test_a_driver_that_died_meanwhile_is_replaced_there(database_url: str, tmp_path: Path) -> None:
    async with rig_on(database_url, tmp_path, runs_on=OLD) as rig:
        job = await rig.run()
    rig.driver.die(-9)
    async with rig_on(database_url, tmp_path, host=rig.host, runs_on=NEW, offer=WORKERS) as again:
        await again.bring_up(job, 2)
        assert [one.runs_on for one in await again.store.attempts(job)] == [OLD, NEW]


def test_the_name_of_a_place(tmp_path: Path) -> None:
    kubernetes = {
        "cluster_kind": "kubernetes",
        "cluster_master": "k8s://https://api:6443",
        "cluster_image": "image",
        "cluster_slots": 8,
        "cluster_driver_host": "10.0.0.5",
    }
    names = [
        place_of(load_settings(data_dir=tmp_path, **settings))  # type: ignore[arg-type]
        for settings in (
            {},
            {**kubernetes, "cluster_namespace": "jobs"},
            {**kubernetes, "cluster_namespace": "others"},
        )
    ]
    assert names[0] == "" and len(set(names)) == 3
    assert misplaced(names[1], names[2]) and not misplaced(names[1], names[1])
    assert "cluster_kind embedded" in (misplaced(names[1], "") or "")

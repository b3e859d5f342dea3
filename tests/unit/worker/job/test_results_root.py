"""Where drivers are told to leave results, and who removes them when a job is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.documents.graph import parse_document
from tests.unit.worker.fakes import FakeDriver, Rig, rig_on

REMOTE = "hdfs://name/results"
GRAPH = parse_document(
    {
        "name": "totals",
        "type": "BATCH",
        "vertices": [
            {"name": "orders", "source": {"format": "parquet", "path": "/orders"}},
            {"name": "totals", "inputs": ["orders"], "sql": "SELECT count(*) AS n FROM orders"},
            {
                "name": "store",
                "inputs": [{"vertex": "totals", "exchange": "BLOCKING"}],
                "sink": {"format": "noop"},
            },
        ],
    }
)


async def running(rig: Rig) -> tuple[str, FakeDriver]:
    job = await rig.plane.submit(GRAPH, {})
    driver = await rig.assigned(1)
    await rig.register(job)
    await rig.report(job, "running", plan_version=driver.specs[-1]["plan_version"])
    await rig.until_kind(job, "Executing")
    return job, driver


@pytest.mark.parametrize("root", [None, "/results", REMOTE])
async def test_a_driver_is_told_a_directory_of_its_job(
    sqlite_url: str, tmp_path: Path, root: str | None
) -> None:
    async with rig_on(sqlite_url, tmp_path, results_root=root) as rig:
        job, driver = await running(rig)
        expected = str(tmp_path / "jobs" / job / "results") if root is None else f"{root}/{job}"
        assert driver.specs[-1]["results_dir"] == expected


async def test_a_local_folder_is_emptied_when_the_job_is_over(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path, results_root=str(tmp_path / "results")) as rig:
        job, driver = await running(rig)
        left = Path(driver.specs[-1]["results_dir"]) / "dataset" / "1"
        left.mkdir(parents=True)
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        await rig.until(lambda: not left.parent.parent.exists(), "the removal")
        # What comes after that goes when the job is forgotten.
        left.mkdir(parents=True)
        await rig.plane.forget(job)
        await rig.until(lambda: not left.parent.parent.exists(), "the removal")


async def test_a_driver_may_remove_what_nobody_else_can_before_it_is_killed(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path, results_root=REMOTE) as rig:
        job, driver = await running(rig)
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Canceling")
        orders = await rig.orders(job)
        assert (orders.stop, orders.results, driver.kills) == ("kill", (), 0)
        await rig.report(job, "stopped")
        driver.die(0)
        view = await rig.until_kind(job, "Finished")
        assert (view.status.value, view.state.recovery.failures) == ("CANCELED", ())


async def test_a_driver_that_does_not_end_is_killed(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.worker.job.job._TIDY_UP_S", 0.05)
    async with rig_on(sqlite_url, tmp_path, results_root=REMOTE) as rig:
        job, driver = await running(rig)
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        assert driver.kills == 1


async def test_the_next_driver_hears_which_jobs_have_ended(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path, results_root=REMOTE) as rig:
        first, driver = await running(rig)
        assert driver.specs[-1]["ended_results"] == []
        driver.die(-9)
        await rig.plane.cancel(first)
        await rig.until_kind(first, "Finished")
        await rig.plane.submit(GRAPH, {})
        await rig.until(lambda: rig.driver is not driver and rig.driver.specs, "the next assignment")
        assert rig.driver.specs[-1]["ended_results"] == [f"{REMOTE}/{first}"]

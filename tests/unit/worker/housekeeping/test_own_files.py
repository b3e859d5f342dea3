"""Jobs that have files in their working directories are forgotten by request only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.worker.job.places import JobPlaces
from tests.unit.store import samples
from tests.unit.worker.housekeeping.test_housekeeping import housekeeper, keeper_on, view


async def test_a_job_with_files_of_its_own_is_not_forgotten_by_age_or_number(
    sqlite_url: str, tmp_path: Path
) -> None:
    forgotten: list[str] = []

    async def forget(job_id: str) -> None:
        forgotten.append(job_id)

    places = JobPlaces(tmp_path / "jobs", tmp_path / "address", 1)
    ids = [samples.job_id(n) for n in range(1, 5)]
    for job_id in ids:
        (places.own_working_dir(job_id) / "spark-warehouse").mkdir(parents=True)
    for old in (ids[1], ids[3]):
        (places.own_working_dir(old) / "checkpoint").mkdir()
        (places.own_working_dir(old) / "checkpoint" / "metadata").touch()
    async with keeper_on(sqlite_url, {}) as (store, clock, _):
        ends_ms = (1, 2, 10**15, 10**15 + 1)
        views = [replace(view(job_id, 0), ended_ms=ms) for job_id, ms in zip(ids, ends_ms, strict=True)]
        keeper = housekeeper(
            store, lambda: views, clock, places=places, forget=forget,
            ended_jobs_max_age_days=1, ended_jobs_max_count=1,
        )  # fmt: skip
        await keeper.tidy()
    assert forgotten == [ids[2], ids[0]]

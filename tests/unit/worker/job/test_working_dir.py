"""The working directory of a job: which one it is, for jobs of today and for those that ran before each had its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.documents.program import parse_program
from app.model.graphdoc_program import graph_of, grown
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from app.worker.job.files import has_files, make_working_dir
from app.worker.job.own_checkpoints import checkpoints_of
from app.worker.job.places import JobPlaces
from tests.unit.worker.fakes import rig_on

JOB = "1" * 32


@pytest.fixture
def places(tmp_path: Path) -> JobPlaces:
    return JobPlaces(tmp_path / "jobs", tmp_path / "address", 2, shared_working_dir=tmp_path / "run")


def test_a_job_that_has_not_run_yet_gets_one_of_its_own(places: JobPlaces) -> None:
    (places.artifacts_dir(JOB)).mkdir(parents=True)
    own = places.job_dir(JOB) / "home"
    assert places.working_dir(JOB) == own
    make_working_dir(own)
    places.attempt_dir(JOB, 1).mkdir()
    assert places.working_dir(JOB) == own
    make_working_dir(own)
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("left", ["checkpoint", "attempt-12"])
def test_a_job_that_ran_in_the_directory_of_all_goes_on_there(places: JobPlaces, left: str) -> None:
    (places.job_dir(JOB) / left).mkdir(parents=True)
    assert places.working_dir(JOB) == places.shared_working_dir
    assert places.working_dir("2" * 32) == places.job_dir("2" * 32) / "home"


async def test_each_attempt_of_a_job_is_told_the_same(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path, shared_working_dir=tmp_path / "run") as rig:
        job = await rig.run()
        home = rig.places.job_dir(job) / "home"
        assert home.is_dir() and rig.host.homes == [home]
        rig.driver.die(-9)
        await rig.bring_up(job, 2)
        told = [
            json.loads(path.read_text())["working_dir"]
            for path in rig.places.job_dir(job).glob("attempt-*/spec-*")
        ]
        assert rig.host.homes == [home, home] and set(told) == {str(home)}
        assert rig.plane.working_dir(job) == home

        home.rmdir()
        rig.driver.die(-9)
        await rig.bring_up(job, 3)
        assert rig.host.homes[-1] == tmp_path / "run", "as a job that was begun by an earlier version"


def test_empty_directories_are_no_files(tmp_path: Path) -> None:
    assert not has_files(tmp_path / "none")
    (tmp_path / "spark-warehouse" / "t").mkdir(parents=True)
    assert not has_files(tmp_path)
    (tmp_path / "spark-warehouse" / "t" / "part-0").touch()
    assert has_files(tmp_path)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no", "down"), FileNotFoundError(2, "gone", "down"), OSError(116, "stale")]
)
def test_what_cannot_be_read_may_be_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    (tmp_path / "deep" / "down").mkdir(parents=True)
    usual = os.scandir

    def scandir(path: str) -> Any:
        if path.endswith("down"):
            raise error
        return usual(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert has_files(tmp_path)


def test_relative_checkpoints_of_two_jobs_are_two(tmp_path: Path) -> None:
    document = {"name": "p", "script": "p.py", "artifacts": ["p.py"]}
    source = PlannedVertex("events", Role.SOURCE, "source rate")
    sink = PlannedVertex("store", Role.SINK, "sink parquet", ("events",), checkpoint="state/../ckpt")
    graph = graph_of(parse_program(document))
    assert checkpoints_of(graph, tmp_path) == {}
    graph = grown(graph, (source, sink))
    assert checkpoints_of(graph, tmp_path / "a") == {str(tmp_path / "a" / "ckpt"): "store"}
    assert checkpoints_of(graph, tmp_path / "b") == {str(tmp_path / "b" / "ckpt"): "store"}

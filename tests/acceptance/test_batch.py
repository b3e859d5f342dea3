"""Batch jobs with real processes: from submission to the answer, and with the driver killed on the way."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.tpch import answers, generate, graphs

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    generate("0.01", directory)
    return directory


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("batch"), warm_drivers=1) as made:
        made.start(with_points=False)
        yield made


def submitted(deployment: Deployment, document: dict[str, Any]) -> None:
    response = deployment.call("POST", "/jobs", json=document)
    assert response.is_success, response.text
    deployment.job_id = response.json()["jobid"]


def finished_regions(deployment: Deployment) -> list[tuple[str, int]]:
    """Status and number of runs of each region."""
    ((text,),) = deployment.query("SELECT state FROM job_states WHERE job_id = ?", deployment.job_id)
    batch = json.loads(text)["batch"]
    return [(one["status"], one["run"]) for one in batch["regions"]] if batch else []


def test_a_job_ends_with_the_right_answer(deployment: Deployment, data: Path, tmp_path: Path) -> None:
    config = {
        "slotwise.batch.parallelism-decider": "even-data",
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "16 kb",
    }
    submitted(deployment, graphs.document("q5", data, tmp_path / "out", upper=8, config=config))
    deployment.await_status("FINISHED")
    assert answers.found(tmp_path / "out") == answers.expected("q5", data)
    assert {run for _, run in finished_regions(deployment)} == {1}, "nothing ran twice"
    results = deployment.data_dir / "jobs" / deployment.job_id / "results"
    wait_for("no result is left", lambda: not any(results.glob("*/*")))


def test_a_killed_driver_costs_no_finished_region(deployment: Deployment, data: Path, tmp_path: Path) -> None:
    submitted(deployment, graphs.document("q9", data, tmp_path / "out", upper=4))
    wait_for("a region is finished", lambda: ("FINISHED", 1) in finished_regions(deployment))
    os.kill(int(deployment.job()["driverPid"]), signal.SIGKILL)
    before = finished_regions(deployment)
    deployment.await_status("FINISHED")
    assert answers.found(tmp_path / "out") == answers.expected("q9", data)
    for (status, runs), (_, runs_after) in zip(before, finished_regions(deployment), strict=True):
        assert status != "FINISHED" or runs_after == runs, "a finished region ran again"

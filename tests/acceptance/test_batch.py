"""Batch jobs on real Spark: TPC-H queries as graphs of durable results, compared with DuckDB; and kills."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.acceptance.deployment import ROOT, Deployment, deployed, wait_for

pytestmark = pytest.mark.timeout(600)

SCALE = "0.01"


def example(name: str) -> ModuleType:
    """A module of examples/tpch, which is no package."""
    spec = importlib.util.spec_from_file_location(f"tpch_{name}", ROOT / f"examples/tpch/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


graphs, answers = example("graphs"), example("answers")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).with_name("tpchgen-cli")
    command = [str(program), "parquet", "-s", SCALE, f"--output-dir={directory}"]
    subprocess.run(command, check=True, capture_output=True)
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


@pytest.mark.parametrize("rule", ["flip-187", "even-data"])
@pytest.mark.parametrize("query", sorted(graphs.GRAPHS))
def test_the_answer_is_that_of_duckdb(
    deployment: Deployment, data: Path, tmp_path: Path, query: str, rule: str
) -> None:
    # Little data for each task, so that there are several.
    config = {
        "slotwise.batch.parallelism-decider": rule,
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "16 kb",
    }
    submitted(deployment, graphs.document(query, data, tmp_path / "out", upper=8, config=config))
    deployment.await_status("FINISHED")
    assert answers.found(tmp_path / "out") == answers.expected(query, data)
    assert {run for _, run in finished_regions(deployment)} == {1}, "nothing ran twice"
    results = deployment.data_dir / "jobs" / deployment.job_id / "results"
    assert [path for path in results.glob("*/*")] == [], "results are gone with the last who read them"


def test_a_killed_driver_costs_no_finished_region(deployment: Deployment, data: Path, tmp_path: Path) -> None:
    submitted(deployment, graphs.document("q9", data, tmp_path / "out", upper=4))
    wait_for("a region is finished", lambda: ("FINISHED", 1) in finished_regions(deployment))
    os.kill(int(deployment.job()["driverPid"]), signal.SIGKILL)
    before = finished_regions(deployment)
    deployment.await_status("FINISHED")
    assert answers.found(tmp_path / "out") == answers.expected("q9", data)
    for (status, runs), (_, runs_after) in zip(before, finished_regions(deployment), strict=True):
        assert status != "FINISHED" or runs_after == runs, "a finished region ran again"

"""A rescale that makes the job crash: its sink refuses a third connection. The job runs as before within the watch."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.deployment import ROOT, Deployment, counting, deployed, wait_for

pytestmark = pytest.mark.timeout(600)

SINK = ROOT / "tests/acceptance/connections.py"
WATCH_S = 60
TAKEN_BACK = 3
REFUSED = "the store takes 2 connections"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("rollback"), warm_drivers=1) as made:
        made.start(with_points=False)
        submit(made)
        yield made


def document(directory: Path) -> dict[str, Any]:
    """Numbers to a store that takes two connections."""
    whole = counting(directory)
    numbers, _, _, store = whole["vertices"]
    store |= {"inputs": ["numbers"], "sink": {"python": "connections:store"}}
    config = {**whole.get("config", {}), "spark.ui.enabled": "true"}
    vertices = [numbers, store]
    return {**whole, "name": "connections", "artifacts": [SINK.name], "vertices": vertices, "config": config}


def submit(deployment: Deployment) -> None:
    files = {
        "graph": ("graph.json", json.dumps(document(deployment.directory)).encode(), "application/json"),
        "files": (SINK.name, SINK.read_bytes(), "application/octet-stream"),
    }
    response = deployment.call("POST", "/jobs", files=files)
    assert response.is_success, response.text
    deployment.job_id = response.json()["jobid"]
    deployment.await_settled()


def require(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`slotwise require --wait`, as somebody types it."""
    address = (deployment.data_dir / "address").read_text(encoding="utf-8").strip()
    command = [sys.executable, "-m", "app.cli", "require", "connections", *arguments, "--wait"]
    return subprocess.run(
        [*command, "--server", address],
        env=deployment.environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@contextlib.contextmanager
def followed(deployment: Deployment) -> Iterator[subprocess.Popen[str]]:
    """`slotwise logs -f` of the attempt that runs, as somebody types it."""
    address = (deployment.data_dir / "address").read_text(encoding="utf-8").strip()
    attempt = str(deployment.job()["attempt"])
    command = [sys.executable, "-m", "app.cli", "logs", "connections", "-f", "--attempt", attempt]
    with subprocess.Popen(
        [*command, "--server", address],
        env=deployment.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def explained(deployment: Deployment) -> Any:
    return deployment.get(f"/jobs/{deployment.job_id}/explanation")


def committed_rows(deployment: Deployment) -> int:
    try:
        return deployment.committed_rows()
    except ValueError:  # no batch yet
        return 0


def await_rows(deployment: Deployment) -> None:
    before = committed_rows(deployment)
    wait_for("more rows are committed", lambda: committed_rows(deployment) > before)


def test_spark_has_a_page_for_this_host_alone(deployment: Deployment) -> None:
    page = deployment.job()["sparkUi"]
    (attempt,) = deployment.get(f"/jobs/{deployment.job_id}/attempts")["attempts"]
    assert attempt["sparkUi"] == page and page.startswith("http://127.0.0.1:")
    (application,) = httpx.get(f"{page}/api/v1/applications", trust_env=False, timeout=60).json()
    assert application["name"] == "connections"
    port = int(page.rpartition(":")[2])
    listening = {
        each.laddr.ip
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    }
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"} and listening


def test_the_job_runs_as_before_within_the_watch_and_says_so(deployment: Deployment) -> None:
    await_rows(deployment)
    with followed(deployment) as log:
        outcome = require(deployment, "store=:4")
        printed, _ = log.communicate(timeout=120)
    assert REFUSED in printed and log.returncode == 0, "it ends with the attempt, and has the error"
    second, first = deployment.get(f"/jobs/{deployment.job_id}/attempts")["attempts"]
    assert first["ending"] == "FAILED" and REFUSED in first["message"], first
    assert first["log"]["sizeInBytes"] >= len(printed) / 2 and first["sparkVersion"] == second["sparkVersion"]

    assert outcome.returncode == TAKEN_BACK, outcome
    assert "The rescale was taken back" in outcome.stderr and REFUSED in outcome.stderr.replace("\n  ", " ")
    assert deployment.job()["state"] == "RUNNING"
    assert deployment.parallelism() == {"numbers": 2, "store": 2}
    await_rows(deployment)

    back, tried = deployment.history()[:2]
    assert back["endTimestampInMillis"] - tried["startTimestampInMillis"] < WATCH_S * 1000
    assert (tried["triggerCause"], tried["terminalState"]) == ("UPDATE_REQUIREMENT", "FAILED")
    assert tried["terminatedReason"] == "EXCEPTION_OCCURRED" and tried["rung"] == "in-place"
    assert tried["message"].startswith("Taken back, to numbers 2, store 2:") and REFUSED in tried["message"]
    assert (back["triggerCause"], back["terminalState"]) == ("RECOVERABLE_FAILOVER", "COMPLETED")
    assert back["rollbackOf"] == tried["number"]
    assert f"Takes back rescale {tried['number']} (store 2 to 4)" in back["message"]

    assert deployment.requirements()[1] == {"numbers": (1, 2), "store": (1, 4)}, "what was declared stays"
    said = explained(deployment)
    assert said["rollback"]["rescale"] == tried["number"] and REFUSED in said["rollback"]["reason"]
    words = " ".join(said["sentences"])
    assert f"Rescale {tried['number']} (store 2 to 4) was taken back" in words
    assert "slotwise require --retry" in words
    deployment.check_ends()


def test_a_server_that_is_killed_does_not_forget_it(deployment: Deployment) -> None:
    records, driver = len(deployment.history()), deployment.job()["driverPid"]
    deployment.kill_server()
    # The next failure is one of a driver that was not warm.
    deployment.warm_drivers = 0
    deployment.start(with_points=False)
    wait_for("the job is served", lambda: deployment.job()["state"] == "RUNNING")
    await_rows(deployment)
    assert explained(deployment)["rollback"] is not None
    assert deployment.parallelism() == {"numbers": 2, "store": 2}
    assert (len(deployment.history()), deployment.job()["driverPid"]) == (records, driver)


@pytest.mark.long
def test_it_is_tried_again_when_asked_for_and_only_then(deployment: Deployment) -> None:
    same = require(deployment, "store=:4")
    assert (same.returncode, "nothing changed" in same.stdout) == (0, True), same
    again = require(deployment, "store=:4", "--retry")
    assert again.returncode == TAKEN_BACK, again
    assert deployment.parallelism() == {"numbers": 2, "store": 2}
    assert sum(one["rollbackOf"] is not None for one in deployment.history()) == 2
    less = require(deployment, "store=:1")
    assert less.returncode == 0, less
    assert deployment.parallelism() == {"numbers": 2, "store": 1}
    assert explained(deployment)["rollback"] is None
    deployment.stop()
    deployment.check_ends()

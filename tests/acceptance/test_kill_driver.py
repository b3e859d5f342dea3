"""kill -9 of the driver at named points of a micro-batch.

After each: one failover of its own in the history, a new driver without anybody's help, never two writers, and a sink
that is exact at every instant that is looked at.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.deployment import ROOT, Deployment, counting, deployed, is_alive, wait_for
from tests.numbers import HAS_RATE

pytestmark = pytest.mark.timeout(900)

PROBE = ROOT / "tests/acceptance/probe.py"
PLANNED = pytest.mark.skipif(not HAS_RATE, reason="sources of Spark have no planner process")
# In the order in which a batch passes them.
POINTS = (
    pytest.param("planner-offset", marks=(pytest.mark.long, PLANNED)),
    pytest.param("planner-partitions", marks=(pytest.mark.long, PLANNED)),
    pytest.param("batch-top", marks=pytest.mark.long),
    "stateful-task",
    "sink-uncommitted",
    "sink-committed",
    pytest.param("spark-committed", marks=pytest.mark.long),
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("driver")
    with deployed(directory, points_in_drivers=True) as made:
        made.start(with_points=True)
        made.submit(counting(directory, probe=True, ours=True), PROBE)
        yield made


@pytest.fixture
def running(deployment: Deployment) -> Deployment:
    deployment.kills.disarm()
    deployment.await_settled()
    return deployment


def kill_at(deployment: Deployment, point: str) -> int:
    """Wait until the driver has killed itself at ``point``; its process id."""
    pid = int(deployment.job()["driverPid"])
    deployment.kills.arm(point)
    wait_for(f"{point} is reached", lambda: deployment.kills.fired(point))
    wait_for("the driver is dead", lambda: not is_alive(pid))
    return pid


def writers(deployment: Deployment) -> list[dict[str, Any]]:
    log = deployment.directory / "writers.jsonl"
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def check_one_writer_at_a_time(deployment: Deployment) -> None:
    """By what the drivers noted: whoever claimed the checkpoint was alone, and no older one wrote after that."""
    lines = writers(deployment)
    assert [line for line in lines if line.get("predecessor_lives")] == []
    assert [line["attempt"] for line in lines] == sorted(line["attempt"] for line in lines)
    owner_file = deployment.data_dir / "jobs" / deployment.job_id / "checkpoint" / "owner.json"
    owner = json.loads(owner_file.read_text(encoding="utf-8"))
    (live,) = deployment.query(
        "SELECT attempt, lock_file FROM attempts WHERE job_id = ? AND state = 'LIVE'", deployment.job_id
    )
    assert (owner["attempt"], owner["lock_file"]) == live


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_a_batch(running: Deployment, point: str) -> None:
    known = {one["rescaleUuid"] for one in running.history()}
    lost = kill_at(running, point)
    running.await_progress()
    running.await_settled()

    assert running.job()["driverPid"] != lost
    (failover,) = (one for one in running.history() if one["rescaleUuid"] not in known)
    assert failover["triggerCause"] == "RECOVERABLE_FAILOVER"
    assert (failover["terminalState"], failover["rung"]) == ("COMPLETED", "new-driver")
    assert str(lost) in failover["message"], failover["message"]
    running.check_ends()
    check_one_writer_at_a_time(running)
    running.await_progress()


def test_after_all_of_them_the_output_is_exact(running: Deployment) -> None:
    running.stop()
    running.check_ends()
    assert running.rows() == running.committed_rows() > 0


def test_killed_while_idle(deployment: Deployment) -> None:
    """The source is at its end and everything is written: the next driver finds nothing to do, and finishes."""
    directory = deployment.directory / "idle"
    directory.mkdir()
    (deployment.directory / "writers.jsonl").unlink(missing_ok=True)
    deployment.kills.arm("idle")
    deployment.submit(counting(directory, rows=3_000, probe=True), PROBE)
    wait_for("the driver was idle", lambda: deployment.kills.fired("idle"))
    deployment.await_status("FINISHED")

    assert deployment.rows() == 3_000
    causes = [(one["triggerCause"], one["terminalState"]) for one in deployment.history()]
    assert [cause for cause, _ in causes] == ["RECOVERABLE_FAILOVER", "INITIAL_SCHEDULE"]
    deployment.check_ends()
    lines = writers(deployment)
    assert {line["attempt"] for line in lines} == {1, 2}
    assert [line for line in lines if line.get("predecessor_lives")] == []


def test_ready_is_said_in_one_write() -> None:
    """Its reader closes the pipe at the word: a line break that came apart would kill the driver."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        subprocess.run(
            [sys.executable, "-c", "from app.driver.process import _say_ready; _say_ready()"],
            stdout=theirs,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)},
            check=True,
        )
        assert ours.recv(100) == b"READY\n"


def test_the_points_are_in_no_file_of_the_program() -> None:
    """What kills is in the tests alone."""
    found = [path for path in Path(ROOT / "app").rglob("*.py") if "ACCEPTANCE_" in path.read_text("utf-8")]
    assert found == []

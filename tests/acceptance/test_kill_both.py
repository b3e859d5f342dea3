"""Server and driver killed together; the server away while the driver finishes; an orderly end; a second server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.deployment import OK, Deployment, counting, deployed, is_alive, wait_for
from tests.acceptance.own_database import is_shared

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("both")
    with deployed(directory) as made:
        made.start(with_points=True)
        made.submit(counting(directory))
        made.await_settled()
        yield made


@pytest.fixture
def running(deployment: Deployment) -> Deployment:
    """With a server, whatever the test before left."""
    if deployment.server is None:
        deployment.start(with_points=True)
    return deployment


def test_an_orderly_end_leaves_the_driver_running(running: Deployment) -> None:
    pid, attempt = running.job()["driverPid"], running.job()["attempt"]
    records = len(running.history())
    assert running.terminate_server() == 0
    running.await_progress()
    assert is_alive(pid)
    running.start(with_points=True)
    running.await_settled()
    assert (running.job()["driverPid"], running.job()["attempt"]) == (pid, attempt)
    assert len(running.history()) == records
    running.await_progress()


@pytest.mark.skipif(is_shared(), reason="several servers may use one PostgreSQL database")
def test_a_second_server_on_the_data_directory_is_refused(running: Deployment) -> None:
    assert running.server is not None
    address = (running.data_dir / "address").read_text(encoding="utf-8")
    second = subprocess.run(
        running.command(with_points=False),
        env=running.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert second.returncode == 1
    sentence = second.stderr.strip().splitlines()[-1]
    assert f"{running.data_dir} is in use by another server" in sentence
    assert f"pid {running.server.pid}" in sentence
    assert "Traceback" not in second.stderr
    assert (running.data_dir / "address").read_text(encoding="utf-8") == address
    running.await_progress()


def test_both_are_killed_in_the_middle_of_a_rescale(running: Deployment) -> None:
    lost = running.job()["driverPid"]
    version, bounds = running.requirements()
    wanted = {**bounds, "counts": (1, 4), "numbers": (1, 4)}
    running.kills.arm("put-answered")
    assert running.put(wanted, "both").status_code == OK
    wait_for("the driver's orders are held back", lambda: running.kills.held("put-answered"))
    os.kill(lost, signal.SIGKILL)
    running.kill_server()

    running.start(with_points=True)
    running.await_settled()
    assert running.requirements() == (version + 1, wanted)
    assert running.job()["driverPid"] != lost
    asked, failover = (
        [one for one in running.history() if one["triggerCause"] == cause]
        for cause in ("UPDATE_REQUIREMENT", "RECOVERABLE_FAILOVER")
    )
    assert len(asked) == len(failover) == 1
    assert failover[0]["terminalState"] == "COMPLETED"
    running.check_ends()
    running.await_progress()
    running.stop()
    running.check_ends()
    assert running.rows() == running.committed_rows() > 0


@pytest.mark.parametrize("when", [pytest.param("long before", marks=pytest.mark.long), "at its last report"])
def test_the_server_is_dead_when_the_driver_finishes(running: Deployment, tmp_path: Path, when: str) -> None:
    """The end is told by what the driver left behind."""
    rows = 6_000
    at_its_last_report = when == "at its last report"
    if at_its_last_report:
        # Before there are rows: all may be in the second batch.
        running.kills.arm("finished-received")
    running.submit(counting(tmp_path, rows=rows))
    ((pid,),) = running.query("SELECT pid FROM attempts WHERE job_id = ?", running.job_id)
    if not at_its_last_report:
        running.kill_server()
    else:
        assert running.await_end() == -signal.SIGKILL
    wait_for("the driver has ended", lambda: not is_alive(pid))
    assert running.rows() == rows

    running.start(with_points=True)
    running.await_status("FINISHED")
    assert running.job()["attempt"] == 1, "nothing was run again"
    running.check_ends()
    assert running.rows() == rows

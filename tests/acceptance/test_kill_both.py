"""Server and driver killed together; the server away while the driver finishes; an orderly end; a second server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.deployment import OK, Deployment, counting, deployed, is_alive, wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("both")
    with deployed(directory) as made:
        made.start(with_points=True)
        made.submit(counting(directory))
        made.await_settled()
        yield made


def test_an_orderly_end_leaves_the_driver_running(deployment: Deployment) -> None:
    pid, attempt = deployment.job()["driverPid"], deployment.job()["attempt"]
    records = len(deployment.history())
    assert deployment.terminate_server() == 0
    deployment.await_progress()
    assert is_alive(pid)
    deployment.start(with_points=True)
    deployment.await_settled()
    assert (deployment.job()["driverPid"], deployment.job()["attempt"]) == (pid, attempt)
    assert len(deployment.history()) == records
    deployment.await_progress()


def test_a_second_server_on_the_data_directory_is_refused(deployment: Deployment) -> None:
    assert deployment.server is not None
    address = (deployment.data_dir / "address").read_text(encoding="utf-8")
    second = subprocess.run(
        deployment.command(with_points=False),
        env=deployment.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert second.returncode == 1
    sentence = second.stderr.strip().splitlines()[-1]
    assert f"{deployment.data_dir} is in use by another server" in sentence
    assert f"pid {deployment.server.pid}" in sentence
    assert "Traceback" not in second.stderr
    assert (deployment.data_dir / "address").read_text(encoding="utf-8") == address
    deployment.await_progress()


def test_both_are_killed_in_the_middle_of_a_rescale(deployment: Deployment) -> None:
    lost = deployment.job()["driverPid"]
    version, bounds = deployment.requirements()
    wanted = {**bounds, "counts": (1, 4), "numbers": (1, 4)}
    deployment.kills.arm("put-answered")
    assert deployment.put(wanted, "both").status_code == OK
    wait_for("the driver's orders are held back", lambda: deployment.kills.held("put-answered"))
    os.kill(lost, signal.SIGKILL)
    deployment.kill_server()

    deployment.start(with_points=True)
    deployment.await_settled()
    assert deployment.requirements() == (version + 1, wanted)
    assert deployment.job()["driverPid"] != lost
    asked, failover = (
        [one for one in deployment.history() if one["triggerCause"] == cause]
        for cause in ("UPDATE_REQUIREMENT", "RECOVERABLE_FAILOVER")
    )
    assert len(asked) == len(failover) == 1
    assert failover[0]["terminalState"] == "COMPLETED"
    deployment.check_ends()
    deployment.await_progress()
    deployment.stop()
    deployment.check_ends()
    assert deployment.rows() == deployment.committed_rows() > 0


@pytest.mark.parametrize("when", ["long before", "at its last report"])
def test_the_server_is_dead_when_the_driver_finishes(
    deployment: Deployment, tmp_path: Path, when: str
) -> None:
    """The end is told by what the driver left behind."""
    if deployment.server is None:
        deployment.start(with_points=True)
    rows = 6_000
    deployment.submit(counting(tmp_path, rows=rows))
    pid = deployment.job()["driverPid"]
    if when == "long before":
        deployment.kill_server()
    else:
        deployment.kills.arm("finished-received")
        assert deployment.await_end() == -signal.SIGKILL
    wait_for("the driver has ended", lambda: not is_alive(pid))
    assert deployment.rows() == rows

    deployment.start(with_points=True)
    deployment.await_status("FINISHED")
    assert deployment.job()["attempt"] == 1, "nothing was run again"
    deployment.check_ends()
    assert deployment.rows() == rows

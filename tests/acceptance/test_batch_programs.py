"""An ordinary PySpark batch program as a job: slots come and go while it runs, and it is killed once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.acceptance import batch_programs
from tests.acceptance.batch_programs import rescale, rows, tasks_done
from tests.acceptance.clusters import on_cluster
from tests.acceptance.deployment import Deployment, deployed, is_alive, wait_for
from tests.acceptance.programs import printed
from tests.acceptance.test_standalone_cluster import executors

# An executor takes seconds to come.
SLOWLY = ("--lookup-ms", "100")

pytestmark = pytest.mark.timeout(900)


def test_slots_come_and_go_under_a_batch_program_that_is_killed_once(tmp_path: Path) -> None:
    batch_programs.write_input(tmp_path / "in")
    (tmp_path / "slotwise").mkdir()
    with deployed(tmp_path / "slotwise") as deployment:
        deployment.start(with_points=False)
        batch_programs.submit(deployment, tmp_path / "in", tmp_path / "ours", "1:2")
        wait_for("some of its tasks are done", lambda: tasks_done(deployment) > 2)
        rescale(deployment, 4)
        rescale(deployment, 1)
        pid = int(deployment.job()["driverPid"])

        # The server goes, the program does not.
        deployment.kill_server()
        deployment.start(with_points=False)
        wait_for("it is heard of again", lambda: tasks_done(deployment) > 0)
        assert int(deployment.job()["driverPid"]) == pid

        os.kill(pid, signal.SIGKILL)
        wait_for("the driver is dead", lambda: not is_alive(pid))
        wait_for("there is another", lambda: deployment.job().get("driverPid") not in (None, pid))
        wait_for("another has begun anew", lambda: tasks_done(deployment) > 2)
        rescale(deployment, 3)
        refused_stop(deployment)
        rescale(deployment, 4)
        deployment.await_status("FINISHED")
        alone = batch_programs.plain_run(tmp_path / "in", tmp_path / "alone")
        assert batch_programs.results(printed(deployment)) == alone != []
    assert rows(tmp_path / "ours") == rows(tmp_path / "alone")
    assert len(rows(tmp_path / "ours")) == batch_programs.ORDERS


@pytest.mark.long
def test_executors_come_and_go_under_a_batch_program_that_is_killed_once(tmp_path: Path) -> None:
    batch_programs.write_input(tmp_path / "in")
    with on_cluster(tmp_path / "slotwise") as (deployment, cluster):

        def rescale_to(slots: int) -> None:
            began = time.monotonic()
            rescale(deployment, slots)
            wait_for(f"there are {slots} executors", lambda: executors(cluster) == slots)
            print(f"{slots} executors after {time.monotonic() - began:.1f} s")

        batch_programs.submit(deployment, tmp_path / "in", tmp_path / "ours", "1:1", *SLOWLY)
        wait_for("some of its tasks are done", lambda: tasks_done(deployment) > 2)
        for slots in (3, 1, 4):
            rescale_to(slots)
        pid = int(deployment.job()["driverPid"])
        os.kill(pid, signal.SIGKILL)
        wait_for("there is another driver", lambda: deployment.job().get("driverPid") not in (None, pid))
        wait_for("another has begun anew", lambda: tasks_done(deployment) > 2)
        rescale_to(2)
        rescale_to(4)
        deployment.await_status("FINISHED")
        alone = batch_programs.plain_run(tmp_path / "in", tmp_path / "alone")
        assert batch_programs.results(printed(deployment)) == alone != []
    assert rows(tmp_path / "ours") == rows(tmp_path / "alone")
    assert len(rows(tmp_path / "ours")) == batch_programs.ORDERS


def refused_stop(deployment: Deployment) -> None:
    """It has no boundary between two batches."""
    answer = deployment.call("POST", f"/jobs/{deployment.job_id}/stop", json={"drain": False})
    assert answer.status_code == 409, answer.text
    assert "cancel it instead" in answer.text

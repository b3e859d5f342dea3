"""A warm-up ends with its server, and a job that comes meanwhile does not wait for it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from app.cli.demo.server import drivers_of
from tests.acceptance.deployment import counting_in_place, deployed, wait_for

# A JVM that waits for a debugger before it begins: the warm-up of its driver never gets further.
WAITS = "-agentlib:jdwp=transport=dt_socket,server=y,suspend=y,address=127.0.0.1:0"
# Within which a driver has not given up its JVM.
SOON_S = 40.0

pytestmark = pytest.mark.timeout(900)


def test_servers_that_are_killed_leave_no_warm_up(tmp_path: Path) -> None:
    with deployed(tmp_path, warm_drivers=1, settings={"driver_java_options": WAITS}) as deployment:
        for _ in range(3):
            deployment.start(with_points=False)
            wait_for("a driver and its JVM are there", lambda: len(drivers_of(deployment.data_dir)) == 2)
            deployment.kill_server()
            wait_for("nothing of them lives", lambda: not drivers_of(deployment.data_dir), SOON_S)


@pytest.mark.long
def test_a_job_that_comes_in_the_middle_of_a_warm_up_runs_and_survives_its_server(tmp_path: Path) -> None:
    with deployed(tmp_path, warm_drivers=1) as deployment:
        deployment.start(with_points=False)
        (warming,) = wait_for("a driver warms up", deployment.driver_locks)
        deployment.submit(counting_in_place(tmp_path, 2, 2))
        pid = deployment.job()["driverPid"]
        lock_file = psutil.Process(pid).environ()["_SLOTWISE_DRIVER_LOCK"]
        assert lock_file != warming
        deployment.kill_server()
        wait_for("the job's driver is the only one", lambda: deployment.driver_locks() == {lock_file})
        deployment.await_progress()
        deployment.start(with_points=False)
        assert deployment.job()["driverPid"] == pid
        deployment.stop()
        assert deployment.rows() == deployment.committed_rows() > 0

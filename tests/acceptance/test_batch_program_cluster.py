"""A batch program on a real Spark standalone cluster: executors come and go while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cluster.java import usable_java
from app.cluster.standalone.daemons import DevCluster
from tests.acceptance import batch_programs
from tests.acceptance.batch_programs import rescale, rows, tasks_done
from tests.acceptance.deployment import deployed, wait_for
from tests.acceptance.programs import printed

pytestmark = pytest.mark.timeout(900)


def test_executors_come_and_go_under_a_batch_program(tmp_path: Path) -> None:
    batch_programs.write_input(tmp_path / "in")
    (tmp_path / "slotwise").mkdir()
    (tmp_path / "cluster").mkdir()
    cluster = DevCluster(tmp_path / "cluster", java=usable_java())
    try:
        cluster.up()
        for _ in range(2):
            cluster.add(cores=2, memory_mb=1024)
        with deployed(tmp_path / "slotwise", cluster=cluster) as deployment:
            deployment.start(with_points=False)
            batch_programs.submit(deployment, tmp_path / "in", tmp_path / "ours", "1:1")
            wait_for("some of its tasks are done", lambda: tasks_done(deployment) > 2)

            def executors() -> int:
                return sum(one.cores for one in cluster.roster().applications)

            for slots in (3, 1, 4):
                rescale(deployment, slots)
                wait_for(f"there are {slots} executors", lambda slots=slots: executors() == slots)
            deployment.await_status("FINISHED")
            assert deployment.job()["attempt"] == 1
            alone = batch_programs.plain_run(tmp_path / "in", tmp_path / "alone")
            assert batch_programs.results(printed(deployment)) == alone != []
    finally:
        cluster.down()
    assert rows(tmp_path / "ours") == rows(tmp_path / "alone")

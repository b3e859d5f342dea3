"""A program on a Spark standalone cluster: executors come and go while it runs, its driver is killed, and its output is
that of a plain run."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cluster.java import usable_java
from app.cluster.standalone.daemons import DevCluster
from tests.acceptance.deployment import deployed, wait_for
from tests.acceptance.programs import Place, Program, run_plain, run_rescaled
from tests.acceptance.test_programs import FOLDERS, differences
from tests.acceptance.test_standalone_cluster import times_opened

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

RESCALES = 6
# A newcomer has all of its share after four.
SETTLING, STEADY = 6, 6


def batches(place: Place) -> int:
    return len(list((place.checkpoint / "commits").glob("[0-9]*")))


def await_batches(place: Place, count: int) -> None:
    end = batches(place) + count
    wait_for(f"{count} more batches are committed", lambda: batches(place) >= end, 300.0)


def test_a_program_on_a_cluster_has_the_output_of_a_plain_run(tmp_path: Path) -> None:
    program = Program("windowed_counts.py", FOLDERS)
    alone, ours = (Place(tmp_path / "input", tmp_path / run) for run in ("plain", "slotwise"))
    found: list[int] = []
    cluster = DevCluster(tmp_path / "cluster", java=usable_java())
    try:
        cluster.up()
        for _ in range(2):
            cluster.add(cores=2, memory_mb=1024)
        with deployed(tmp_path, cluster=cluster) as deployment:
            deployment.start(with_points=False)
            feeder = program.feeder(ours.input)
            feeder.write(10)
            feeder.start()

            def steady() -> None:
                await_batches(ours, SETTLING)
                before = times_opened(cluster)
                await_batches(ours, STEADY)
                found.append(times_opened(cluster) - before)

            outcome = run_rescaled(
                deployment, program, ours, feeder, rescales=RESCALES, seed=3, steady=steady
            )
        opened = times_opened(cluster)
    finally:
        cluster.down()
    run_plain(program, alone)

    rows = program.rows(ours)
    assert differences(rows, program.rows(alone)) == {} and all(rows.values())
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], 1)
    # State stays where it is.
    assert found == [0]
    print(
        f"OUTCOME on a cluster: {RESCALES} rescales in place, 1 kill, exact: {len(rows[''])} rows; state partitions "
        f"were opened {opened} times in {batches(ours)} batches, none of them in {STEADY} without a rescale"
    )

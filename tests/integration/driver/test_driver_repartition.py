"""Other numbers of state partitions on a real Spark: exact, also after a kill; a failure leaves the state as it was."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from app.driver.checkpoints import standing
from tests.integration.driver.documents import counting, expected_counts, stored_counts
from tests.integration.driver.harness import Bench, wait_for

pytestmark = pytest.mark.timeout(600)

HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def told(rig: Bench, number: int) -> bool:
    """Whether a driver has said that the state has so many partitions."""
    failed = rig.control_plane.of_type("failed")
    assert not failed, failed
    return any(
        set(one["state_partitions"].values()) == {number}
        for one in rig.control_plane.of_type("repartitioned")
    )


def checkpoint(rig: Bench) -> Path:
    (found,) = (path for path in rig.checkpoint_dir.iterdir() if path.is_dir() and "." not in path.name)
    return found


def files_of(directory: Path) -> dict[str, str]:
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in directory.rglob("*")
        if file.is_file() and not file.name.startswith("slotwise-")
    }


@pytest.mark.long
def test_more_and_fewer_partitions_are_exact(rig: Bench) -> None:
    eight = counting(rig.directory, rows=None, state_partitions=8)
    rig.start(eight, {"counts": 2})
    rig.wait_batches(3)
    rig.drivers[-1].kill()
    # A batch that is planned and not committed is run before the state is touched.
    planned = standing(checkpoint(rig))

    twelve = counting(rig.directory, rows=None, state_partitions=12)
    second = rig.start(twelve, {"counts": 12}, repartition=True)
    wait_for("12 partitions", lambda: told(rig, 12))
    rig.wait_batches(len(rig.control_plane.batches) + 3)
    assert min(one["batch_id"] for one in rig.control_plane.batches if one["attempt"] == 2) > planned.planned
    assert not (checkpoint(rig).parent / f"{checkpoint(rig).name}.slotwise-old").exists(), (
        "until the first batch"
    )
    rig.control_plane.order(stop="boundary")
    wait_for("the boundary", lambda: rig.control_plane.of_type("stopped"))

    six = counting(rig.directory, rows=None, state_partitions=6)
    second.assign(rig.spec(six, {"counts": 5}, repartition=True))
    wait_for("6 partitions", lambda: told(rig, 6))
    rig.wait_batches(len(rig.control_plane.batches) + 3)
    rig.control_plane.order(stop="drain")
    wait_for("the end", lambda: any(one["drained"] for one in rig.control_plane.of_type("stopped")))
    assert second.exit_status() == 0
    # The source numbers its rows, so what was counted of so many is known.
    rows = sum(count for count, _ in stored_counts(rig.directory).values())
    assert rows and stored_counts(rig.directory) == expected_counts(rows)
    assert standing(checkpoint(rig)).partitions == 6


def test_what_spark_refuses_leaves_the_state_as_it_was(rig: Bench) -> None:
    conf = {"spark.sql.streaming.stateStore.providerClass": HEAP}
    eight = counting(rig.directory, rows=None, ours=True, state_partitions=8)
    first = rig.start(eight, {"counts": 2}, spark_conf=conf)
    rig.wait_batches(3)
    rig.control_plane.order(stop="drain")
    wait_for("the drain", lambda: rig.control_plane.of_type("stopped"))
    first.exit_status()
    before = files_of(checkpoint(rig))

    twelve = counting(rig.directory, rows=None, ours=True, state_partitions=12)
    second = rig.start(twelve, {"counts": 12}, spark_conf=conf, repartition=True)
    (failed,) = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))
    assert failed["repartition_failed"] and failed["error"], failed
    second.exit_status()
    # A batch that was planned when the job stopped has been run.
    after = files_of(checkpoint(rig))
    assert before.items() <= after.items()
    assert {name.partition("/")[0] for name in after.keys() - before.keys()} <= {"commits", "state"}
    assert standing(checkpoint(rig)).partitions == 8
    assert [path.name for path in rig.checkpoint_dir.iterdir() if "." in path.name and path.is_dir()] == []

    rig.control_plane.reports.clear()
    rows = sum(count for count, _ in stored_counts(rig.directory).values()) + 20_000
    eight = counting(rig.directory, rows=rows, state_partitions=8)
    third = rig.start(eight, {"counts": 2}, spark_conf=conf)
    wait_for("the end", lambda: rig.control_plane.of_type("finished"))
    assert third.exit_status() == 0
    assert stored_counts(rig.directory) == expected_counts(rows)


@pytest.mark.long
def test_a_number_that_is_not_what_was_told_is_reported(rig: Bench) -> None:
    eight = counting(rig.directory, rows=None, state_partitions=8)
    rig.start(eight, {"counts": 2})
    rig.wait_batches(2)
    rig.drivers[-1].kill()
    rig.start(counting(rig.directory, rows=None, state_partitions=12), {"counts": 2})
    wait_for("8 partitions", lambda: told(rig, 8))

"""The state of a program's query gets other partitions: exact, also behind Spark's own file sink and its log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.driver.checkpoints import standing
from app.model.planned import PlannedVertex
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import (
    COUNTS,
    KEYS,
    ROWS_PER_BATCH,
    SOURCE,
    START,
    STORED,
    WINDOWS,
    conf,
    counted,
    job,
    the_end,
)

pytestmark = pytest.mark.timeout(600)

OWN = 'query = windows.writeStream.queryName("windows").option("checkpointLocation", sys.argv[1] + "-own/it")'


def document(rig: Bench, text: str, partitions: int) -> dict[str, Any]:
    """The stored document, its state being told to have so many partitions."""
    vertices: tuple[PlannedVertex, ...] = (SOURCE, replace(COUNTS, state_partitions=partitions), STORED[-1])
    return job(rig, text, vertices)


def told(rig: Bench, number: int) -> bool:
    failed = rig.control_plane.of_type("failed")
    assert not failed, failed
    return any(
        set(one["state_partitions"].values()) == {number}
        for one in rig.control_plane.of_type("repartitioned")
    )


def settings(heap: bool = False) -> dict[str, Any]:
    # A log that is compacted soon and often: each redistribution has to be in it.
    found = {**conf()["spark_conf"], "spark.sql.streaming.fileSink.log.compactInterval": "3"}
    if heap:
        provider = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        found["spark.sql.streaming.stateStore.providerClass"] = provider
    return {"spark_conf": found}


def test_more_and_fewer_partitions_are_exact_behind_a_file_sink(rig: Bench) -> None:
    text = (
        WINDOWS
        + OWN
        + START.replace("query = windows.writeStream", "\nquery = query")
        + ("query.awaitTermination()")
    )
    rig.start(document(rig, text, 8), {"aggregate": 2}, **settings())
    rig.wait_batches(4)
    rig.drivers[-1].kill()
    # A batch that is planned and not committed is run before the state is touched.
    place = rig.directory / "out-own" / "it"
    planned = standing(place)

    twelve = document(rig, text, 12)
    second = rig.start(twelve, {"aggregate": 12}, repartition=True, **settings())
    wait_for("12 partitions", lambda: told(rig, 12))
    kinds = [each["type"] for each in rig.control_plane.reports if each["attempt"] == 2]
    assert [kind for kind in kinds if kind != "executors"][:3] == ["begun", "query-started", "repartitioned"]
    rig.wait_batches(len(rig.control_plane.batches) + 5)
    ours = [one for one in rig.control_plane.batches if one["attempt"] == 2]
    assert min(one["batch_id"] for one in ours) > planned.planned
    assert not any(one["reprocessed"] for one in ours)
    parallelism = {
        vertex["parallelism"] for one in ours for vertex in one["vertices"] if vertex["tasks"] == 12
    }
    assert parallelism == {12}
    assert [each.name for each in place.parent.iterdir()] == ["it"], "no copy is left"
    rig.control_plane.order(stop="boundary")
    the_end(rig, "stopped")

    # Once more without a batch in between, and a driver that is not told finds it.
    six = document(rig, text, 6)
    second.assign(rig.spec(six, {"aggregate": 5}, repartition=True, **settings()))
    wait_for("6 partitions", lambda: told(rig, 6))
    rig.wait_batches(len(rig.control_plane.batches) + 4)
    second.kill()
    rig.control_plane.reports.clear()
    third = rig.start(twelve, {"aggregate": 5}, **settings())
    wait_for("6 partitions are found", lambda: told(rig, 6))
    rig.wait_batches(3)
    rig.control_plane.order(stop="drain")
    assert the_end(rig, "stopped")["drained"]
    assert third.exit_status() == 0
    counts = counted(rig.directory / "out")
    assert len(counts) > 12 * KEYS
    assert all(each == [ROWS_PER_BATCH // KEYS] for each in counts.values()), counts


@pytest.mark.long
def test_what_spark_refuses_leaves_the_state_as_it_was(rig: Bench) -> None:
    text = f"{WINDOWS}{START}query.awaitTermination()"
    first = rig.start(document(rig, text, 8), **settings(heap=True))
    rig.wait_batches(3)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    first.exit_status()
    second = rig.start(document(rig, text, 12), {"aggregate": 12}, repartition=True, **settings(heap=True))
    (failed,) = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))
    assert failed["repartition_failed"] and failed["error"], failed
    assert second.exit_status() == 4
    rig.control_plane.reports.clear()
    third = rig.start(document(rig, text, 8), **settings(heap=True))
    rig.wait_batches(3)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    assert third.exit_status() == 0
    assert all(each == [ROWS_PER_BATCH // KEYS] for each in counted(rig.directory / "out").values())

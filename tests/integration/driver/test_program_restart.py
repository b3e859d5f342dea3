"""Queries of a program that are stopped between two batches and start again in the same process, with other numbers and
other state partitions, while the program runs on and hears nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import (
    KEYS,
    ROWS_PER_BATCH,
    START,
    WINDOWS,
    conf,
    counted,
    job,
    the_end,
)
from tests.integration.driver.test_program_late_query import PROGRAM as LATE
from tests.integration.driver.test_program_late_query import vertices
from tests.integration.driver.test_program_repartition import document, told

pytestmark = pytest.mark.timeout(600)

PROGRAM = f"""{WINDOWS}
import json, pathlib, threading

with open(sys.argv[1] + "-runs", "a") as runs:
    print("the program ran", file=runs)
again = len(pathlib.Path(sys.argv[1] + "-runs").read_text().splitlines()) > 1
{START}
first = query.id
assert spark.conf.get("spark.sql.streaming.noDataProgressEventInterval") == "10000ms"
while query.lastProgress is None:
    query.awaitTermination(0.1)

def woken(how, wait):
    wait()
    print("woken:", how)

def offset(text):
    known = json.loads(text)
    return known["offset"] if known else 0

def looks():
    while True:
        assert query.isActive and query.exception() is None and query.id == first
        assert len(spark.streams.active) == 1 and spark.streams.get(first) is not None
        assert query.lastProgress["runId"] and query.status
        # Each batch began where the one before had ended, none is missing, and Spark keeps a hundred.
        recent = query.recentProgress
        told = [each["sources"][0] for each in recent]
        starts, ends = ([offset(each[name]) for each in told] for name in ("startOffset", "endOffset"))
        assert starts[1:] == ends[:-1] and (starts[0] == 0 or len(recent) == 100 or again), (starts, ends)
        assert sum(each["numInputRows"] for each in recent) == ends[-1] - starts[0], (starts, ends)
        assert query.awaitTermination(0.2) is False
        pathlib.Path(sys.argv[1] + "-seen").write_text(str(query.runId))

for how, wait in {{"looks": looks, "query": query.awaitTermination}}.items():
    threading.Thread(target=woken, args=(how, wait), daemon=True).start()
spark.streams.awaitAnyTermination()
print("woken: any")
"""


def stop(rig: Bench, attempt: int) -> bool:
    """Stop attempt ``attempt`` between two batches; whether its driver waits for another one."""
    rig.control_plane.order(stop="boundary")

    def stopped() -> list[bool]:
        assert not rig.control_plane.of_type("failed"), rig.control_plane.of_type("failed")
        ends = rig.control_plane.of_type("stopped")
        return [bool(each["driver_alive"]) for each in ends if each["attempt"] == attempt]

    return bool(wait_for("the stop", stopped)[0])


@pytest.mark.long
def test_the_program_waits_on_while_its_queries_start_again(rig: Bench) -> None:
    driver = rig.start(document(rig, PROGRAM, 8), {"aggregate": 2}, **conf())
    rig.wait_batches(3)
    for attempt, partitions in ((1, 12), (2, 12), (3, 6)):
        assert stop(rig, attempt), "it waits for another assignment"
        again = document(rig, PROGRAM, partitions)
        driver.assign(rig.spec(again, {"aggregate": partitions}, repartition=True, **conf()))
        wait_for(f"{partitions} partitions", lambda partitions=partitions: told(rig, partitions))
        rig.wait_batches(len(rig.control_plane.batches) + 3)
        ours = [one for one in rig.control_plane.batches if one["attempt"] == attempt + 1]
        tasks = {vertex["tasks"] for one in ours for vertex in one["vertices"]}
        assert partitions in tasks and not any(one["reprocessed"] for one in ours)
        run_id = ours[-1]["run_id"]
        seen = Path(f"{rig.directory}/out-seen")
        wait_for("the program has the new run", lambda run_id=run_id, seen=seen: seen.read_text() == run_id)
    assert len({one["run_id"] for one in rig.control_plane.batches}) == 4
    assert len({one["query_id"] for one in rig.control_plane.batches}) == 1
    assert len({one["pid"] for one in rig.control_plane.registrations}) == 1

    # Killed in a further restart, it has an exact successor in another process.
    assert stop(rig, 4)
    driver.assign(rig.spec(document(rig, PROGRAM, 12), {"aggregate": 3}, repartition=True, **conf()))
    wait_for("the redistribution", lambda: list(rig.checkpoint_dir.glob("*.slotwise-*")))
    driver.kill()
    last = rig.start(document(rig, PROGRAM, 12), {"aggregate": 3}, repartition=True, **conf())
    rig.wait_batches(len(rig.control_plane.batches) + 3)
    rig.control_plane.order(stop="drain")
    wait_for("the end", lambda: any(one["drained"] for one in rig.control_plane.of_type("stopped")))
    assert last.exit_status() == 0
    assert Path(f"{rig.directory}/out-runs").read_text().splitlines() == ["the program ran"] * 2
    assert "woken" not in driver.log + last.log and "Error" not in driver.log
    counts = counted(rig.directory / "out")
    assert len(counts) > 12 * KEYS
    assert all(each == [ROWS_PER_BATCH // KEYS] for each in counts.values()), counts


def test_a_program_that_has_not_started_all_of_its_queries_has_a_new_process(rig: Bench) -> None:
    text = LATE.replace("first.awaitTermination()", "first.awaitTermination(); import time; time.sleep(600)")
    driver = rig.start(job(rig, text, vertices(8)), **conf())
    rig.wait_batches(1)
    assert not stop(rig, 1)
    assert driver.exit_status() == 0


@pytest.mark.long
def test_what_spark_cannot_redistribute_ends_the_process(rig: Bench) -> None:
    provider = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    settings = {
        "spark_conf": {**conf()["spark_conf"], "spark.sql.streaming.stateStore.providerClass": provider}
    }
    driver = rig.start(document(rig, PROGRAM, 8), **settings)
    rig.wait_batches(2)
    assert stop(rig, 1)
    driver.assign(rig.spec(document(rig, PROGRAM, 12), repartition=True, **settings))
    assert the_end(rig, "failed")["repartition_failed"]
    assert driver.exit_status() == 4
    assert "woken" not in driver.log

"""Of several queries of a program one fails: it is started again alone, and the program does not hear of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.model.graphdoc import read_graph
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import conf, job
from tests.outputs import rows_of

pytestmark = pytest.mark.timeout(600)

PROGRAM = """
import pathlib, sys, threading
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("mine").getOrCreate()
out = pathlib.Path(sys.argv[1])
rows = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 200).option("numPartitions", 8).load()
)

@F.udf("bigint")
def same(value):
    if (out.parent / "broken").exists():
        raise RuntimeError("the flag is up")
    return value

def store(frame, batch_id):
    frame.write.mode("append").json(str(out / f"stored-{batch_id}"))

writer = rows.select("value").writeStream.queryName("counts").foreachBatch(store)
counts = writer.start()
# The writer is used again: what it was asked before stays with the query of before.
raw = (
    rows.select(same("value").alias("value")).writeStream.queryName("raw").format("json")
    .option("path", str(out / "raw")).start()
)
ids = raw.id, counts.id

def woken(how, wait):
    wait()
    print("woken:", how)

def looks():
    while True:
        assert raw.isActive and raw.exception() is None and (raw.id, counts.id) == ids
        assert len(spark.streams.active) == 2 and spark.streams.get(raw.id).name == "raw"
        assert raw.awaitTermination(0.5) is False and raw.status
        progress = raw.lastProgress
        if progress and progress["batchId"] != looks.batch:
            looks.batch = progress["batchId"]
            print("run", raw.runId, len(raw.recentProgress) > 0)

looks.batch = -1

for how, wait in {"query": raw.awaitTermination, "looks": looks, "other": counts.awaitTermination}.items():
    threading.Thread(target=woken, args=(how, wait), daemon=True).start()
spark.streams.awaitAnyTermination()
print("woken: any")
"""
VERTICES = (
    PlannedVertex("rate-micro-batch", Role.SOURCE, "rate-micro-batch"),
    PlannedVertex("counts", Role.SINK, "foreachBatch", ("rate-micro-batch",)),
    PlannedVertex("rate-micro-batch 2", Role.SOURCE, "rate-micro-batch"),
    PlannedVertex("raw", Role.SINK, "json", ("rate-micro-batch 2",)),
)


def flag(rig: Bench) -> Path:
    return rig.directory / "broken"


def key_of(document: dict[str, Any], name: str) -> str:
    return next(each.id for each in read_graph(document).vertices if each.name == name)


def runs(rig: Bench, document: dict[str, Any], name: str) -> list[str]:
    """The run ids of a sink's query, in the order of their first batches."""
    key = key_of(document, name)
    found = (
        each["run_id"]
        for each in rig.control_plane.batches
        if key in {vertex["vertex_id"] for vertex in each["vertices"]}
    )
    return list(dict.fromkeys(found))


def failures(rig: Bench, count: int) -> list[dict[str, Any]]:
    def enough() -> list[dict[str, Any]] | None:
        assert not rig.control_plane.of_type("failed"), rig.control_plane.of_type("failed")
        found = rig.control_plane.of_type("query-failed")
        return found if len(found) >= count else None

    found: list[dict[str, Any]] = wait_for(f"failure {count} of the query", enough)
    return found


def written(directory: Path) -> list[int]:
    return sorted(row["value"] for row in rows_of(directory))


def test_the_query_is_started_again_and_the_program_waits_on(rig: Bench) -> None:
    document = job(rig, PROGRAM, VERTICES)
    driver = rig.start(document, local_failover=True, **conf())
    wait_for("each query runs", lambda: len(rig.wait_batches(4)) and runs(rig, document, "raw"))
    flag(rig).touch()
    (first,) = failures(rig, 1)
    assert (first["query"], first["run"]) == (key_of(document, "raw"), 1)
    assert first["user_error"] == "RuntimeError at job.py:14" and first["recoverable"] is True, first
    (other,) = runs(rig, document, "counts")
    done = len([each for each in rig.control_plane.batches if each["run_id"] == other])
    wait_for(
        "the other query goes on",
        lambda: len([each for each in rig.control_plane.batches if each["run_id"] == other]) >= done + 2,
    )

    # The same batch fails again: the number of a new run's first batch is that of its checkpoint.
    rig.control_plane.order(restarts={first["query"]: 1})
    second = failures(rig, 2)[1]
    assert (second["run"], second["batch_id"]) == (2, first["batch_id"])
    assert first["batch_id"] > 0 and second["run_id"] != first["run_id"]

    flag(rig).unlink()
    rig.control_plane.order(restarts={first["query"]: 2})
    (recovered,) = wait_for("its recovery", lambda: rig.control_plane.of_type("query-recovered"))
    assert recovered["run"] == 2 and recovered["run_id"] not in (first["run_id"], second["run_id"])

    plan = {vertex.name: 3 for vertex in VERTICES} | {"rate-micro-batch 2": 5, "raw": 2}
    rig.change_plan(document, 1_000, plan)
    wait_for(
        "the plan in force in the new run too",
        lambda: [each for each in rig.control_plane.of_type("plan-applied") if each["plan_version"] == 1_000],
    )
    wait_for("the program has seen the new run", lambda: f"run {recovered['run_id']} True" in driver.log)
    rig.control_plane.order(stop="drain")
    wait_for("the end", lambda: rig.control_plane.of_type("stopped"))
    assert driver.exit_status() == 0
    assert "woken" not in driver.log and "Traceback" not in driver.log.partition("looks")[2], driver.log
    assert runs(rig, document, "counts") == [other], "the other query was never restarted"
    raw = written(rig.directory / "out" / "raw")
    assert raw and raw == list(range(len(raw)))
    assert {each["pid"] for each in rig.control_plane.registrations} == {driver.process.pid}


@pytest.mark.long
def test_a_stop_does_not_wait_for_a_query_that_is_held(rig: Bench) -> None:
    document = job(rig, PROGRAM, VERTICES)
    driver = rig.start(document, local_failover=True, **conf())
    flag(rig).touch()
    failures(rig, 1)
    rig.control_plane.order(stop="boundary")
    wait_for("the stop", lambda: rig.control_plane.of_type("stopped"))

    # It starts again with all others, in the same process.
    flag(rig).unlink()
    before = set(runs(rig, document, "raw"))
    driver.assign(rig.spec(document, local_failover=True, **conf()))
    wait_for("its next run", lambda: rig.wait_batches(1) and set(runs(rig, document, "raw")) - before)
    rig.control_plane.order(stop="drain")
    assert driver.exit_status() == 0 and "woken" not in driver.log


@pytest.mark.long
def test_a_memory_table_begins_anew_alone_and_with_all_others(rig: Bench) -> None:
    """Spark continues none that is not complete."""
    to_files = '.format("json")\n    .option("path", str(out / "raw")).start()'
    assert to_files in PROGRAM
    text = PROGRAM.replace(to_files, '.format("memory").start()')
    document = job(rig, text, (*VERTICES[:3], replace(VERTICES[3], operator="memory")))
    driver = rig.start(document, local_failover=True, **conf())
    wait_for("each query runs", lambda: len(rig.wait_batches(4)) and runs(rig, document, "raw"))
    flag(rig).touch()
    (first,) = failures(rig, 1)
    flag(rig).unlink()
    rig.control_plane.order(restarts={first["query"]: 1})
    wait_for("its recovery", lambda: rig.control_plane.of_type("query-recovered"))

    rig.control_plane.order(stop="boundary")
    wait_for("the stop", lambda: rig.control_plane.of_type("stopped"))
    before = set(runs(rig, document, "raw"))
    driver.assign(rig.spec(document, local_failover=True, **conf()))
    wait_for("its next run", lambda: rig.wait_batches(1) and set(runs(rig, document, "raw")) - before)
    rig.control_plane.order(stop="drain")
    assert driver.exit_status() == 0 and "woken" not in driver.log, driver.log


@pytest.mark.long
def test_a_final_error_fails_in_the_program_and_ends_the_attempt(rig: Bench) -> None:
    flag(rig).touch()
    rig.start(
        job(rig, PROGRAM, VERTICES),
        local_failover=True,
        final_exceptions=["builtins.RuntimeError"],
        **conf(),
    )
    (failed,) = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))
    assert failed["recoverable"] is False and not rig.control_plane.of_type("query-failed")

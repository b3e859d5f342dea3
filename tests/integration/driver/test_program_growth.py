"""The graph of a program grows with the queries that it starts: later than others, again and again, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.model.fromjson import from_json
from app.model.graphdoc import read_graph, to_document
from app.model.graphdoc_program import grown
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
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
from tests.integration.driver.test_program_restart import stop

pytestmark = pytest.mark.timeout(600)


def of_type(rig: Bench, kind: str, attempt: int = 0) -> list[dict[str, Any]]:
    failed = rig.control_plane.of_type("failed")
    assert not failed, failed[0]["error"] + failed[0]["stack"]
    return [each for each in rig.control_plane.of_type(kind) if attempt in (0, each["attempt"])]


def names(report: dict[str, Any]) -> list[str]:
    return [vertex["name"] for vertex in report["planned"]]


def grown_by(document: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    """The document of the job once its control plane has heard of a query."""
    planned = tuple(from_json(PlannedVertex, each) for each in report["planned"])
    return to_document(grown(read_graph(document), planned))


SUPERVISOR = f"""{WINDOWS}
import pathlib, time
{START}
out = pathlib.Path(sys.argv[1])
late = None
while True:
    if late is None and pathlib.Path(f"{{out}}-go").exists():
        late = windows.writeStream.queryName("late").format("parquet").start(f"{{out}}-late")
    time.sleep(0.2)
"""


def tasks_of(rig: Bench, vertex_ids: set[str]) -> set[int]:
    """How many tasks these vertices had in the batches of the last attempt."""
    batches = [each for each in rig.control_plane.batches if each["attempt"] == rig._attempt]
    return {
        vertex["tasks"]
        for each in batches
        for vertex in each["vertices"]
        if vertex["vertex_id"] in vertex_ids
    }


def of_late(rig: Bench, vertex_ids: set[str]) -> list[dict[str, Any]]:
    """The batches with these vertices."""
    batches = rig.control_plane.batches
    return [one for one in batches if any(vertex["vertex_id"] in vertex_ids for vertex in one["vertices"])]


def test_a_query_that_a_supervisor_adds_is_rescaled_started_again_and_outlives_its_driver(rig: Bench) -> None:
    document = job(rig, SUPERVISOR)
    rig.start(document, {"aggregate": 3}, **conf())
    rig.wait_batches(2)
    (first,) = of_type(rig, "query-started")
    assert names(first) == ["rate-micro-batch", "aggregate", "windows"]
    assert sorted(first["parallelism"].values()) == [1, 1, 3]

    Path(f"{rig.directory}/out-go").touch()
    late = wait_for("the second query", lambda: of_type(rig, "query-started")[1:])[0]
    assert names(late) == ["rate-micro-batch 2", "aggregate 2", "late"]
    assert late["parallelism"] == dict.fromkeys(late["parallelism"], 3), "the largest of the plan"
    assert [each["state_partitions"] for each in late["planned"]] == [None, 8, None]
    ids = set(late["parallelism"])
    wait_for("a batch of it", lambda: 3 in tasks_of(rig, ids))

    # An order of before it was heard of leaves it as it is.
    rig.change_plan(document, 101, {"aggregate": 4})
    wait_for("101", lambda: [e for e in of_type(rig, "plan-applied") if e["plan_version"] == 101])
    more = grown_by(document, late)
    assert {each.id for each in read_graph(more).vertices} == ids | set(first["parallelism"])
    rig.change_plan(more, 102, {"aggregate 2": 7})
    wait_for("102", lambda: [e for e in of_type(rig, "plan-applied") if e["plan_version"] == 102])
    wait_for("seven tasks", lambda: 7 in tasks_of(rig, ids))

    # In the same process, which knows more than its assignment.
    assert stop(rig, 1), "it waits for another assignment"
    rig.drivers[-1].assign(rig.spec(document, {"aggregate": 2}, **conf()))
    wait_for("both again", lambda: len(of_type(rig, "query-started", 2)) == 2)
    wait_for("the end of its start", lambda: of_type(rig, "begun", 2))
    wait_for("a batch of each", lambda: len({e["query_id"] for e in rig.control_plane.batches[-4:]}) == 2)
    assert not of_type(rig, "query-ended")
    wait_for("the number of an assignment without it", lambda: tasks_of(rig, ids) >= {2})

    rig.drivers[-1].kill()
    last_ms = of_late(rig, ids)[-1]["at_ms"]
    Path(f"{rig.directory}/out-go").unlink()
    begun = len(rig.control_plane.batches)
    rig.start(more, {"aggregate 2": 5}, **conf())
    rig.wait_batches(begun + 4)
    Path(f"{rig.directory}/out-go").touch()
    wait_for("the second one again", lambda: len(of_type(rig, "query-started", 3)) == 2)
    rig.change_plan(more, 301, {"aggregate 2": 6})
    (applied,) = wait_for(
        "301", lambda: [e for e in of_type(rig, "plan-applied", 3) if e["plan_version"] == 301]
    )
    pause_ms = next(each["at_ms"] for each in of_late(rig, ids) if each["attempt"] == 3) - last_ms
    assert applied["output_gap_ms"] < pause_ms / 2, "the program, and not the plan, held it up"
    assert len({each["query_id"] for each in rig.control_plane.batches}) == 2, "a checkpoint was not found"
    again = of_type(rig, "query-started", 3)
    assert [names(each) for each in again] == [names(first), names(late)]
    assert not any(each["begins_anew"] for each in again)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    assert rig.drivers[-1].exit_status() == 0
    for folder in ("out", "out-late"):
        counts = counted(rig.directory / folder)
        assert counts and all(each == [ROWS_PER_BATCH // KEYS] for each in counts.values()), folder


LOOPS = """
import gc, json, pathlib, sys
from pyspark.sql import SparkSession

out = pathlib.Path(sys.argv[1])
folder = pathlib.Path(f"{out}-in")
folder.mkdir()
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
lines = spark.readStream.schema("value STRING").text(str(folder))
told = []

def note(frame, batch_id):
    told.append([batch_id, sorted(map(list, frame.collect()))])

def counts():
    return lines.groupBy("value").count().writeStream.outputMode("complete").foreachBatch(note)

for name in ("kept", "anew"):
    for turn in range(3):
        (folder / f"{name}-{turn}.txt").write_text("a\\n")
        writer = counts().trigger(availableNow=True)
        if name == "kept":
            writer = writer.option("checkpointLocation", f"{out}-kept")
        query = writer.start()
        query.awaitTermination()
        told.append([name, query.isActive, len(spark.streams.active), query.exception()])
for turn in range(3):
    query = counts().queryName("looped").option("checkpointLocation", f"{out}-looped").start()
    query.processAllAvailable()
    told.append(query.awaitTermination(0.5))
    try:
        lines.writeStream.format("noop").queryName("looped").start()
    except Exception as error:
        told.append(type(error).__name__)
    query.stop()
    told.append(spark.streams.awaitAnyTermination(1))
    spark.streams.resetTerminated()
    (folder / f"looped-{turn}.txt").write_text("b\\n")
if (driver := sys.modules.get("app.driver.program.attempt")) is not None:
    driver.ENDED_KEPT = 2
for name in ("first", "second", "third", "fourth", "fifth", "first", "second"):
    (folder / f"more-{len(told)}.txt").write_text("c\\n")
    writer = counts().queryName(name).trigger(availableNow=True)
    if name != "first":
        writer = writer.option("checkpointLocation", f"{out}-{name}")
    query = writer.start()
    query.awaitTermination()
    told.append(query.isActive)
del query, writer
gc.collect()
for kind in ("StartedQuery", "Asked"):
    kept = [each for each in gc.get_objects() if type(each).__name__ == kind]
    print(f"{kind} that are kept:", len(kept))
pathlib.Path(f"{out}-told").write_text(json.dumps(told))
"""
READS_RATE = PlannedVertex("rate-micro-batch", Role.SOURCE, "rate-micro-batch")
READS = PlannedVertex("out-in", Role.SOURCE, "text")
KEPT = (
    READS,
    PlannedVertex("aggregate", Role.OPERATOR, "Aggregate", ("out-in",), stateful=True, state_partitions=2),
)


def by_plain_python(rig: Bench) -> Any:
    directory = rig.directory / "plain"
    directory.mkdir()
    with open(rig.directory / "plain.log", "wb") as log:
        subprocess.run(
            [sys.executable, rig.artifacts_dir / "job.py", directory / "out"],
            cwd=directory,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )
    return json.loads((directory / "out-told").read_text())


@pytest.mark.long
def test_a_query_that_is_started_again_and_again_is_one_query(rig: Bench) -> None:
    sink = PlannedVertex(
        "foreachBatch", Role.SINK, "foreachBatch", ("aggregate",), checkpoint=f"{rig.directory}/out-kept"
    )
    driver = rig.start(job(rig, LOOPS, (*KEPT, sink)), {"aggregate": 2})
    the_end(rig, "finished")
    assert driver.exit_status() == 0
    assert json.loads(Path(f"{rig.directory}/out-told").read_text()) == by_plain_python(rig), driver.log

    started = of_type(rig, "query-started")
    sinks = [names(each)[-1] for each in started]
    (refused,) = {each for each in sinks if each.startswith("looped ")}
    # Nothing but the names of those two was kept: one begins anew, and one goes on from its checkpoint.
    new = ["first", "second", "third", "fourth", "fifth", "first", "second"]
    assert sinks == ["foreachBatch"] * 3 + ["foreachBatch 2"] * 3 + ["looped", refused] * 3 + new
    planned = {names(each)[-1]: (each["planned"], each["parallelism"]) for each in started}
    assert all((each["planned"], each["parallelism"]) == planned[names(each)[-1]] for each in started)
    runs = [
        each["query"] + each["type"]
        for each in rig.control_plane.reports
        if each["type"] in ("query-started", "query-ended")
    ]
    for key in {each["query"] for each in started[:-7]}:
        own = [each for each in runs if each.startswith(key)]
        kinds = [each.removeprefix(key) for each in own]
        # The last run may be over together with the program.
        assert len(kinds) in (5, 6) and kinds == (["query-started", "query-ended"] * 3)[: len(kinds)]
    for kind in ("StartedQuery", "Asked"):
        kept = int(driver.log.split(f"{kind} that are kept: ")[1].split()[0])
        assert kept <= 4, f"{kind}: the last one of each of the last queries"


@pytest.mark.long
@pytest.mark.parametrize("how", ["while query.isActive: time.sleep(0.5)", "query.awaitTermination()"])
def test_a_query_that_does_not_come_again_is_no_failure(rig: Bench, how: str) -> None:
    document = job(rig, f"import time\n{WINDOWS}{START}{how}", vertices(8))
    driver = rig.start(document, {"aggregate": 2}, **conf())
    rig.wait_batches(2)
    rig.change_plan(document, 101, {"aggregate": 4, "aggregate 2": 4})
    wait_for("the plan", lambda: [e for e in of_type(rig, "plan-applied") if e["plan_version"] == 101])
    assert stop(rig, 1), "what is not there does not hinder it"
    driver.assign(rig.spec(document, {"aggregate": 3}, **conf()))
    wait_for("it runs again", lambda: of_type(rig, "query-started", 2))
    rig.wait_batches(len(rig.control_plane.batches) + 2)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    assert driver.exit_status() == 0


@pytest.mark.long
def test_a_query_that_has_ended_is_not_started_again_with_the_others(rig: Bench) -> None:
    driver = rig.start(job(rig, LATE, vertices(8)), **conf())
    ended = wait_for("the end of the first", lambda: of_type(rig, "query-ended"))
    rig.wait_batches(3)
    assert stop(rig, 1), "what has ended does not hinder it"
    driver.assign(rig.spec(job(rig, LATE, vertices(12)), repartition=True, **conf()))
    (told,) = wait_for("the answer", lambda: of_type(rig, "repartitioned", 2))
    assert sorted(told["state_partitions"].values()) == [8, 12], "that of the one that has ended is told too"
    begun = len(rig.control_plane.batches)
    rig.wait_batches(begun + 2)
    late = {each["query_id"] for each in rig.control_plane.batches if each["attempt"] == 2}
    assert len(late) == 1 and of_type(rig, "query-ended") == ended
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    assert driver.exit_status() == 0


def test_a_query_starts_while_the_control_plane_is_away_and_is_told_before_its_batches(rig: Bench) -> None:
    rig.start(job(rig, SUPERVISOR), **conf())
    rig.wait_batches(2)
    rig.control_plane.go_away()
    Path(f"{rig.directory}/out-go").touch()
    log = rig.directory / "out-late" / "_spark_metadata"
    wait_for("its batches", lambda: log.is_dir() and len(list(log.iterdir())) > 2)
    rig.control_plane.come_back()
    late = wait_for("the second query", lambda: of_type(rig, "query-started")[1:])[0]
    batches = wait_for(
        "a batch of it",
        lambda: [
            each
            for each in rig.control_plane.batches
            if {vertex["vertex_id"] for vertex in each["vertices"]} & set(late["parallelism"])
        ],
    )
    assert late["seq"] < batches[0]["seq"]


AGAIN = f"""{WINDOWS}
@F.udf("bigint")
def refused(value):
    raise ValueError("never")

writer = rows.select(refused("value").alias("v")).writeStream.queryName("windows").format("noop")
for turn in range(100):
    query = writer.start()
    try:
        query.awaitTermination()
    except Exception:
        print("caught", turn)
"""


def test_of_a_failed_query_that_the_program_starts_again_the_restart_strategy_decides(rig: Bench) -> None:
    stored = (READS_RATE, PlannedVertex("windows", Role.SINK, "noop", (READS_RATE.name,)))
    driver = rig.start(job(rig, AGAIN, stored), **conf())
    assert "never" in the_end(rig, "failed")["error"]
    assert driver.exit_status() == 4
    assert len(rig.control_plane.of_type("query-started")) == 1
    assert not rig.control_plane.of_type("query-ended")


@pytest.mark.long
def test_a_plan_is_in_force_while_no_query_runs(rig: Bench) -> None:
    text = LATE.replace("first.awaitTermination()", "first.awaitTermination(); import time; time.sleep(600)")
    document = job(rig, text)
    driver = rig.start(document, **conf())
    wait_for("the end of it", lambda: of_type(rig, "query-ended"))
    rig.change_plan(document, 101, {"aggregate": 4})
    wait_for("the plan", lambda: [e for e in of_type(rig, "plan-applied") if e["plan_version"] == 101])
    rig.control_plane.order(stop="drain")
    assert the_end(rig, "stopped")["drained"]
    assert driver.exit_status() == 0


IDLE = """
import pathlib, sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
out = pathlib.Path(sys.argv[1])
rows = spark.readStream.schema("k long").json(f"{out}-in")
first = rows.writeStream.queryName("first").format("noop").start()
while first.lastProgress is None or not first.status["message"].startswith("Waiting for data"):
    time.sleep(0.1)
# Time in which it is seen to be idle.
time.sleep(1.0)
print("idle", flush=True)
second = rows.writeStream.queryName("second").format("noop").start()
spark.streams.awaitAnyTermination()
"""


@pytest.mark.long
def test_a_plan_is_said_to_be_in_force_when_the_first_query_of_several_is_idle(rig: Bench) -> None:
    folder = rig.directory / "out-in"
    folder.mkdir()
    (folder / "1.json").write_text('{"k": 1}\n', encoding="utf-8")
    rig.start(job(rig, IDLE), **conf())
    wait_for("a plan in force", lambda: of_type(rig, "plan-applied"))
    assert of_type(rig, "query-started")

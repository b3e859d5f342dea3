"""A plan waits for a long batch: it is cancelled, and runs again at the plan, with the same rows and once."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.driver.interruption import NOTE
from tests.integration.driver.documents import slow_files
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import conf, job
from tests.outputs import rows_of

pytestmark = pytest.mark.timeout(600)

FILES, ROWS = 20, 30
ALL = list(range(FILES * ROWS))
PROGRAM = """
import pathlib, sys, threading, time
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("mine").getOrCreate()
out = pathlib.Path(sys.argv[1])
slow = F.udf(lambda v: (time.sleep(0.05), v)[1], "long")
rows = spark.readStream.schema("v LONG").json(str(out.parent / "in")).select(slow("v").alias("v"))

def store(frame, batch_id):
    frame.write.mode("overwrite").json(str(out / f"stored-{batch_id}"))

query = rows.writeStream.queryName("store").foreachBatch(store).start()
ids = query.id
while True:
    assert query.isActive and query.exception() is None and query.id == ids
    assert query.awaitTermination(0.5) is False and len(spark.streams.active) == 1
"""


def fill(rig: Bench) -> None:
    source = rig.directory / "in"
    source.mkdir()
    for number in range(FILES):
        values = ALL[number * ROWS : (number + 1) * ROWS]
        (source / f"{number}.json").write_text("".join(json.dumps({"v": v}) + "\n" for v in values), "utf-8")


def document(rig: Bench, sink: dict[str, Any]) -> dict[str, Any]:
    """A batch of 600 rows that take 50 ms each: 30 s in one task."""
    return slow_files(rig.directory, rig.artifacts_dir, sink, row_s=0.05)


def note(rig: Bench, name: str) -> Path | None:
    """That of the job's only query."""
    return next(iter(rig.checkpoint_dir.glob(f"*/{name}")), None)


def begun_ns(rig: Bench) -> int:
    found = note(rig, "slotwise-begun")
    return 0 if found is None else found.stat().st_mtime_ns


def applied(rig: Bench, version: int) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        for bad in ("failed", "query-failed"):
            told = rig.control_plane.of_type(bad)
            assert not told, told[0]["error"] + "\n" + str(told[0]["stack"])
        return [one for one in rig.control_plane.of_type("plan-applied") if one["plan_version"] == version]

    return wait_for(f"plan {version}", found)[0]


def check_interrupted(rig: Bench, told: dict[str, Any]) -> None:
    assert told["reprocessed_records"] == len(ALL)
    assert told["interrupted"].startswith("A batch of store that had run for "), told
    (batch,) = [one for one in rig.control_plane.batches if one["input_rows"]]
    assert (batch["batch_id"], batch["input_rows"], batch["reprocessed"]) == (0, len(ALL), True)
    assert not rig.control_plane.of_type("query-recovered"), "it has not failed"
    assert len({one["pid"] for one in rig.control_plane.registrations}) == 1


@pytest.mark.long
def test_a_long_batch_runs_again_at_the_new_parallelism(rig: Bench) -> None:
    fill(rig)
    job = document(rig, {"format": "parquet", "path": str(rig.directory / "out")})
    driver = rig.start(job, rescale_max_wait_ms=2_000)
    begun = wait_for("the batch", lambda: begun_ns(rig))
    four = {"files": 4, "work": 4, "store": 4}
    rig.change_plan(job, 1_000, four)
    wait_for("the same batch once more", lambda: begun_ns(rig) > begun)
    # It is waited for now, however long it takes: the rows are 7 s in four tasks.
    rig.change_plan(job, 2_000, {name: 2 for name in four})
    told = applied(rig, 2_000)
    check_interrupted(rig, told)
    (batch,) = [one for one in rig.control_plane.batches if one["input_rows"]]
    ids = {vertex.name: vertex.id for vertex in parse_document(job).vertices}
    assert batch["plan_version"] == 1_000
    tasks = {one["vertex_id"]: one["tasks"] for one in batch["vertices"]}
    assert tasks[ids["work"]] == 4
    kept = note(rig, NOTE)
    assert kept is not None and kept.read_text() == "0"
    assert sorted(row["v"] for row in rows_of(rig.directory / "out")) == ALL
    # The next change is one between two batches.
    rig.change_plan(job, 3_000, four)
    told = applied(rig, 3_000)
    assert (told["reprocessed_records"], told["interrupted"]) == (0, "")
    rig.control_plane.order(stop="drain")
    assert wait_for("the end", lambda: rig.control_plane.of_type("stopped"))[0]["drained"]
    assert driver.exit_status() == 0


@pytest.mark.parametrize("form", ["sqlite", pytest.param("noop", marks=pytest.mark.long)])
def test_so_does_that_of_a_sink_of_another_kind(rig: Bench, form: str) -> None:
    """A database gets its rows from the driver, and Spark writes a table by its second API."""
    fill(rig)
    database = rig.directory / "out.db"
    sink: dict[str, Any] = {"format": "noop"}
    if form == "sqlite":
        sink = {"format": "sqlite", "path": str(database), "options": {"table": "numbers", "mode": "append"}}
    job = document(rig, sink)
    rig.start(job, rescale_max_wait_ms=1_000)
    wait_for("the batch", lambda: begun_ns(rig))
    rig.change_plan(job, 1_000, {"files": 4, "work": 4, "store": 4})
    check_interrupted(rig, applied(rig, 1_000))
    if form == "sqlite":
        connection = sqlite3.connect(database)
        assert [row[0] for row in connection.execute("SELECT v FROM numbers ORDER BY v")] == ALL
        connection.close()


def test_a_program_that_asks_for_it_does_not_notice(rig: Bench) -> None:
    fill(rig)
    document = job(rig, PROGRAM, ())
    rig.start(document, {"job": 1}, rescale_max_wait_ms=1_000, batch_interruptible=True, **conf())
    wait_for("the batch", lambda: begun_ns(rig))
    (started,) = wait_for("the query", lambda: rig.control_plane.of_type("query-started"))
    rig.control_plane.order(plan_version=1_000, parallelism=dict.fromkeys(started["parallelism"], 4))
    check_interrupted(rig, applied(rig, 1_000))
    assert not rig.control_plane.of_type("query-ended")
    assert sorted(row["v"] for row in rows_of(rig.directory / "out" / "stored-0")) == ALL


@pytest.mark.long
def test_a_stop_goes_before_an_interruption(rig: Bench) -> None:
    fill(rig)
    job = document(rig, {"format": "parquet", "path": str(rig.directory / "out")})
    driver = rig.start(job, rescale_max_wait_ms=1_000)
    wait_for("the batch", lambda: begun_ns(rig))
    rig.change_plan(job, 1_000, {"files": 4, "work": 4, "store": 4})
    wait_for("the interruption", lambda: note(rig, NOTE))
    rig.control_plane.order(stop="boundary")
    assert wait_for("the end", lambda: rig.control_plane.of_type("stopped"))
    assert not rig.control_plane.of_type("failed")
    driver.kill()
    rig.start(job, {"files": 4, "work": 4, "store": 4}, attempt=2)
    (batch,) = rig.wait_batches(1)[:1]
    assert batch["reprocessed"] and batch["input_rows"] == len(ALL)
    assert sorted(row["v"] for row in rows_of(rig.directory / "out")) == ALL

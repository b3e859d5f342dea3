"""An attempt of a program: valves in the plans of its queries, its ends, and a successor that goes on where it was."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from app.model.graphdoc import read_graph, to_document
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.integration.driver.harness import Bench, wait_for
from tests.outputs import rows_of
from tests.program_graphs import grown_program

pytestmark = pytest.mark.timeout(600)

STATE_PARTITIONS = 8
ROWS_PER_BATCH = 200
KEYS = 10

WINDOWS = """
import sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("mine").getOrCreate()
rows = (
    spark.readStream.format("rate-micro-batch")
    .option("rowsPerBatch", 200).option("numPartitions", 8).option("advanceMillisPerBatch", 1000)
    .load()
)
windows = (
    rows.withWatermark("timestamp", "1 second")
    .groupBy(F.window("timestamp", "1 second"), (F.col("value") % 10).alias("key"))
    .count()
)
"""
START = """
query = windows.writeStream.queryName("windows").format("parquet").option("path", sys.argv[1]).start()
"""
SOURCE = PlannedVertex("rate-micro-batch", Role.SOURCE, "rate-micro-batch")
COUNTS = PlannedVertex(
    "aggregate",
    Role.OPERATOR,
    "Aggregate",
    ("rate-micro-batch",),
    stateful=True,
    state_partitions=STATE_PARTITIONS,
)
STORED = (SOURCE, COUNTS, PlannedVertex("windows", Role.SINK, "parquet", ("aggregate",)))


def job(rig: Bench, text: str, vertices: tuple[PlannedVertex, ...] = STORED, **more: Any) -> dict[str, Any]:
    """The stored document of a program that has had queries with ``vertices``."""
    (rig.artifacts_dir / "job.py").write_text(dedent(text), encoding="utf-8")
    document = {
        "name": "job",
        "script": "job.py",
        "args": [str(rig.directory / "out")],
        "artifacts": ["job.py"],
    }
    return to_document(grown_program({**document, **more}, vertices))


def conf() -> dict[str, Any]:
    return {"spark_conf": {"spark.sql.shuffle.partitions": str(STATE_PARTITIONS)}}


def the_end(rig: Bench, kind: str) -> dict[str, Any]:
    def reported() -> list[dict[str, Any]]:
        failed = rig.control_plane.of_type("failed")
        assert kind == "failed" or not failed, failed[0]["error"]
        return rig.control_plane.of_type(kind)

    return wait_for(kind, reported)[-1]  # type: ignore[no-any-return]


def counted(directory: Path) -> dict[tuple[Any, int], list[int]]:
    """What the sink has: the counts that were written for each window and key."""
    found: dict[tuple[Any, int], list[int]] = {}
    for row in rows_of(directory):
        found.setdefault((row["window"]["start"], row["key"]), []).append(row["count"])
    return found


@pytest.mark.long
def test_numbers_change_in_place_and_a_killed_driver_has_an_exact_successor(rig: Bench) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    document = job(rig, f"{WINDOWS}{START}query.awaitTermination()")
    names = {vertex.id: vertex.name for vertex in read_graph(document).vertices}
    driver = rig.start(document, {"aggregate": 4}, **conf())
    rig.wait_batches(2)
    for version in range(1_000, 1_008):
        plan = {
            "rate-micro-batch": rng.randint(1, 8),
            "aggregate": rng.randint(1, 8),
            "windows": rng.randint(1, 8),
        }
        rig.change_plan(document, version, plan)
        wait_for(
            f"plan {version}",
            lambda version=version: [
                each for each in rig.control_plane.of_type("plan-applied") if each["plan_version"] == version
            ],
        )
        batch = wait_for(
            "a batch of which everything is known",
            lambda version=version: [
                each
                for each in rig.control_plane.batches
                if each["plan_version"] == version and all(v["tasks"] for v in each["vertices"])
            ],
        )[0]
        assert {names[v["vertex_id"]]: v["tasks"] for v in batch["vertices"]} == plan
    assert len({each["run_id"] for each in rig.control_plane.batches}) == 1
    assert {each["pid"] for each in rig.control_plane.registrations} == {driver.process.pid}

    driver.kill()
    before = len(rig.control_plane.batches)
    rig.start(document, {"aggregate": 3}, **conf())
    rig.wait_batches(before + 3)
    assert len({each["query_id"] for each in rig.control_plane.batches}) == 1, "the checkpoint was not found"
    rig.control_plane.order(stop="drain")
    assert the_end(rig, "stopped")["drained"]
    assert rig.drivers[-1].exit_status() == 0
    counts = counted(rig.directory / "out")
    assert len(counts) > 8 * KEYS
    assert all(each == [ROWS_PER_BATCH // KEYS] for each in counts.values())


def test_a_stop_and_sigterm_come_between_two_batches_of_which_none_is_done_twice(rig: Bench) -> None:
    document = job(rig, f"{WINDOWS}{START}query.awaitTermination()")
    rig.start(document, **conf())
    rig.wait_batches(3)
    rig.control_plane.order(stop="boundary")
    assert the_end(rig, "stopped")["driver_alive"]
    begun = len(rig.control_plane.batches)
    rig.drivers[0].assign(rig.spec(document, **conf()))
    rig.wait_batches(begun + 2)
    assert not any(each["reprocessed"] for each in rig.control_plane.batches)
    ids = [each["batch_id"] for each in rig.control_plane.batches]
    assert ids == list(range(len(ids)))

    driver = rig.drivers[0]
    driver.process.send_signal(signal.SIGTERM)
    assert driver.exit_status() == 4
    # That is no end of the job.
    (failed,) = rig.control_plane.of_type("failed")
    assert failed["outside"] and failed["recoverable"]


def test_a_program_that_ends_when_its_query_has_ended_is_finished(rig: Bench) -> None:
    source = rig.directory / "in"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.txt").write_text("a\nb\n")
    text = """
    import sys
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.getOrCreate()
    lines = spark.readStream.text(sys.argv[1].replace("out", "in"))
    query = lines.writeStream.trigger(availableNow=True).start(path=sys.argv[1], format="json")
    query.awaitTermination()
    print("written:", spark.read.schema("value STRING").json(sys.argv[1]).count(), query.isActive)
    """
    vertices = (
        PlannedVertex("in", Role.SOURCE, "text"),
        PlannedVertex("out", Role.SINK, "json", ("in",)),
    )
    driver = rig.start(job(rig, text, vertices), **conf())
    the_end(rig, "finished")
    assert driver.exit_status() == 0
    assert "written: 6 False" in driver.log


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            f"{WINDOWS}{START}raise ValueError('boom')",
            "job.py, line 18: ValueError: boom",
            id="raises while its query runs",
        ),
        pytest.param(
            f"{WINDOWS}{START}query.stop()\nspark.stop()\nsys.exit(3)",
            "sys.exit(3)",
            id="exits with a status",
            marks=pytest.mark.long,
        ),
        pytest.param(
            f"{WINDOWS}{START}",
            "ended while its query of windows was running",
            id="does not wait for its query",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_program_that_fails_says_where(rig: Bench, text: str, sentence: str) -> None:
    driver = rig.start(job(rig, text), **conf())
    failed = the_end(rig, "failed")
    assert sentence in failed["error"], failed["error"]
    assert driver.exit_status() == 4


@pytest.mark.long
def test_a_fenced_driver_begins_no_further_batch(rig: Bench) -> None:
    driver = rig.start(job(rig, f"{WINDOWS}{START}query.awaitTermination()"), **conf())
    rig.wait_batches(2)
    rig.control_plane.fenced = True
    assert driver.exit_status() == 3

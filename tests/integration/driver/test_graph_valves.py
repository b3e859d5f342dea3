"""Every vertex of a graph changes in place, wherever it stands: Spark's task counts are those of the plan."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from app.documents.graph import parse_document
from tests.integration.driver.harness import Bench, wait_for
from tests.outputs import rows_of

CODE = """
from pyspark.sql import functions as F

def firsts(rows):
    return rows.withWatermark("timestamp", "5 seconds").dropDuplicatesWithinWatermark(["value"])

def counts(rows):
    by = F.window("timestamp", "10 seconds"), (F.col("value") % 10).alias("k")
    return rows.groupBy(*by).agg(F.count("*").alias("n")).select(F.col("window.start").alias("at"), "k", "n")

def ranked(rows):
    def of_window(part):
        return part.assign(place=part["k"].rank().astype("int64"))
    return rows.groupBy("at").applyInPandas(of_window, "at timestamp, k bigint, n bigint, place bigint")
"""


def document(directory: Path) -> dict[str, Any]:
    """Two sources, an inner vertex with state and one behind it; then one that takes its rows by a key, one that
    shuffles by itself, and one that reads a side table. A window of ten seconds has 2,000 rows of each source."""
    (directory / "side.csv").write_text("".join(f"{k},name {k}\n" for k in range(10)), encoding="utf-8")
    rows = {"rowsPerBatch": "500", "advanceMillisPerBatch": "2500", "numPartitions": "4"}
    side = {"format": "csv", "path": str(directory / "side.csv"), "schema": "k BIGINT, name STRING"}
    target = {"format": "json", "path": str(directory / "out"), "outputMode": "append"}
    vertices: list[dict[str, Any]] = [
        {"name": "left", "source": {"format": "rate-micro-batch", "options": rows}},
        {"name": "right", "source": {"format": "rate-micro-batch", "options": rows}},
        {
            "name": "both",
            "inputs": ["left", "right"],
            "sql": "SELECT timestamp, value FROM left UNION ALL SELECT timestamp, -1 - value AS value FROM right",
        },
        {"name": "firsts", "inputs": ["both"], "python": "code:firsts", "stateful": True},
        {"name": "counts", "inputs": ["firsts"], "python": "code:counts", "stateful": True},
        {
            "name": "keyed",
            "inputs": [{"vertex": "counts", "partitioner": "HASH", "keys": ["at"]}],
            "sql": "SELECT at, abs(k) AS k, n FROM counts",
        },
        {"name": "ranked", "inputs": ["keyed"], "python": "code:ranked"},
        {"name": "names", "source": {**side, "static": True}},
        {
            "name": "named",
            "inputs": ["ranked", {"vertex": "names", "partitioner": "BROADCAST"}],
            "sql": "SELECT at, k, n, place, name FROM ranked JOIN names USING (k)",
        },
        {"name": "stored", "inputs": ["named"], "sink": target},
    ]
    for vertex in vertices:
        vertex["parallelism"] = 4
        if vertex.get("stateful"):
            vertex["maxParallelism"] = 4
    return {"name": "valves", "type": "STREAMING", "artifacts": ["code.py"], "vertices": vertices}


@pytest.mark.timeout(900)
def test_every_vertex_runs_as_many_tasks_as_each_plan_says(rig: Bench) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (rig.artifacts_dir / "code.py").write_text(CODE, encoding="utf-8")
    graph = document(rig.directory)
    streaming = {v.name: v.id for v in parse_document(graph).vertices if v.name != "names"}
    driver = rig.start(graph, dict.fromkeys(streaming, 2))
    rig.wait_batches(2)
    plans = [dict.fromkeys(streaming, 1), dict.fromkeys(streaming, 4)]
    plans += [{name: rng.randint(1, 4) for name in streaming} for _ in range(3)]
    for version, plan in enumerate(plans, start=1_000):
        rig.change_plan(graph, version, plan)
        batch = wait_for(
            f"a batch at plan {version}",
            lambda version=version: [
                b for b in rig.control_plane.batches if b["plan_version"] == version and b["whole_plan"]
            ],
        )[0]
        found = {v["vertex_id"]: (v["parallelism"], v["tasks"]) for v in batch["vertices"]}
        assert found == {streaming[name]: (number, number) for name, number in plan.items()}, (plan, batch)
    assert {b["run_id"] for b in rig.control_plane.batches} == {rig.control_plane.batches[0]["run_id"]}
    rig.control_plane.order(stop="drain")
    wait_for("the end", lambda: rig.control_plane.of_type("stopped"))
    assert driver.exit_status() == 0, driver.log
    windows: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(rig.directory / "out"):
        windows.setdefault(row["at"], []).append(row)
    whole = sorted(windows)[1:]  # the first begins before the first row
    assert whole
    for at in whole:
        assert sum(row["n"] for row in windows[at]) == 4_000, at
        assert all(row["name"] == f"name {row['k']}" for row in windows[at])


@pytest.mark.timeout(600)
def test_a_side_table_that_changes_is_read_by_later_batches(rig: Bench) -> None:
    side, target = rig.directory / "side", rig.directory / "out"
    side.mkdir()
    (side / "old.csv").write_text("0,old\n", encoding="utf-8")
    graph = {
        "name": "side",
        "type": "STREAMING",
        "vertices": [
            {"name": "numbers", "source": {"format": "rate-micro-batch", "options": {"rowsPerBatch": "1"}}},
            {
                "name": "names",
                "source": {
                    "format": "csv",
                    "path": str(side),
                    "schema": "k BIGINT, name STRING",
                    "static": True,
                },
            },
            {
                "name": "named",
                "inputs": ["numbers", "names"],
                "sql": "SELECT value, name FROM numbers JOIN names ON k = value % 1",
            },
            {"name": "stored", "inputs": ["named"], "sink": {"format": "json", "path": str(target)}},
        ],
    }
    rig.start(graph)
    rig.wait_batches(2)
    (side / ".new.csv").write_text("0,new\n", encoding="utf-8")
    (side / ".new.csv").rename(side / "new.csv")
    wait_for("the new name", lambda: {row["name"] for row in rows_of(target)} == {"old", "new"})
    assert not rig.control_plane.of_type("failed")
    assert len({batch["run_id"] for batch in rig.control_plane.batches}) == 1

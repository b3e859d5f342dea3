"""What a driver measures of the load of a job, against loads whose truth is known: within a tenth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from app.model.graphdoc import parse_document
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.sink_support import spark_session
from tests.integration.driver.valve_support import running, until

ROWS_PER_S = 2_000
ROWS_PER_BATCH = 160
KEYS = 40
SLEEP_S = 0.02
# How long it really slept is the truth, for a busy machine wakes late.
CODE = f"""
import time
from pyspark.sql import functions as F

@F.udf("bigint")
def slow(value):
    began = time.perf_counter()
    time.sleep({SLEEP_S})
    with open("SLEPT", "a") as file:
        file.write(f"{{value}} {{time.perf_counter() - began}}\\n")
    return value

def slowly(rows):
    return rows.select("timestamp", slow("value").alias("value"))
"""


def document(*, behind: bool) -> dict[str, Any]:
    """A quarter of the numbers goes through a slow function and is counted. ``behind``: batches take few rows."""
    options = {"rowsPerSecond": str(ROWS_PER_S)} | (
        {"maxRowsPerTrigger": str(ROWS_PER_BATCH)} if behind else {}
    )
    vertices: list[dict[str, Any]] = [
        {"name": "numbers", "source": {"format": "rate", "options": options}},
        {
            "name": "stamped",
            "inputs": ["numbers"],
            "sql": "SELECT timestamp, value + 0 AS value FROM numbers",
        },
        {"name": "quarter", "inputs": ["stamped"], "sql": "SELECT * FROM stamped WHERE value % 4 = 0"},
        {"name": "slow", "inputs": ["quarter"], "python": "code:slowly"},
        {
            "name": "counts",
            "inputs": ["slow"],
            "sql": f"SELECT value % {4 * KEYS} AS k, count(*) AS n FROM slow GROUP BY value % {4 * KEYS}",
            "stateful": True,
            "maxParallelism": 4,
        },
        {"name": "store", "inputs": ["counts"], "sink": {"format": "noop", "outputMode": "update"}},
    ]
    return {"name": "load", "type": "STREAMING", "artifacts": ["code.py"], "vertices": vertices}


def by_name(graph: dict[str, Any], batch: dict[str, Any]) -> dict[str, dict[str, Any]]:
    names = {vertex.id: vertex.name for vertex in parse_document(graph).vertices}
    return {names[each["vertex_id"]]: each for each in batch["vertices"]}


def slept_ms(file: Path, first: int, end: int) -> float:
    """With the values from ``first`` to ``end``."""
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return 1000 * sum(float(slept_s) for value, slept_s in lines if first <= int(value) < end)


def near(value: float) -> Any:
    return pytest.approx(value, rel=0.1)


@pytest.mark.timeout(600)
def test_the_load_of_a_job_that_falls_behind(rig: Bench) -> None:
    slept = rig.directory / "slept"
    (rig.artifacts_dir / "code.py").write_text(CODE.replace("SLEPT", str(slept)), encoding="utf-8")
    graph = document(behind=True)
    rig.start(graph, {name: 2 for name in ("numbers", "stamped", "quarter", "slow", "counts", "store")})
    batches = rig.wait_batches(8)[:8]
    read = 0
    for batch in batches:
        found = by_name(graph, batch)
        rows = found["numbers"]["records_in"]
        read += rows
        assert rows == batch["input_rows"] == ROWS_PER_BATCH
        flows = {name: (each["records_in"], each["records_out"]) for name, each in found.items()}
        quarter = rows // 4
        groups = min(quarter, KEYS)
        assert flows == {
            "numbers": (rows, rows),
            "stamped": (rows, rows),
            "quarter": (rows, quarter),
            "slow": (quarter, quarter),
            "counts": (quarter, groups),
            "store": (groups, None),
        }
        assert found["counts"]["state_rows"] == KEYS and found["counts"]["state_bytes"] > 0
        assert found["numbers"]["backlog_rows"] == batch["backlog_rows"]
        assert found["counts"]["longest_task_ms"] >= found["counts"]["median_task_ms"] >= 0
        assert found["counts"]["bytes_in"] > 0
        assert {"triggerExecution", "addBatch"} <= batch["phases_ms"].keys()
    # The first starts the workers.
    busy_ms = sum(by_name(graph, batch)["slow"]["busy_ms"] for batch in batches[1:])
    slept_for_ms = slept_ms(slept, ROWS_PER_BATCH, read)
    # On a machine that does other things too, tasks also wait for a core: no time is missing, and little is added.
    assert 0.9 * slept_for_ms <= busy_ms <= 1.3 * slept_for_ms
    (load,) = next(
        report["executor_loads"] for report in rig.control_plane.reports if report["executor_loads"]
    )
    assert load["executor_id"] == "driver" and load["cores"] == 8
    assert load["heap_max_bytes"] > load["heap_used_bytes"] > 0
    # What is due and not read yet waits.
    last = batches[-1]
    (start_ms,) = map(int, json.loads(offsets(rig.checkpoint_dir, graph)[-1]))
    due = (last["started_ms"] - start_ms) * ROWS_PER_S / 1000
    assert last["backlog_rows"] + read == near(due)


def offsets(checkpoint: Path, graph: dict[str, Any]) -> list[str]:
    sink = parse_document(graph).vertices[-1].id
    return (checkpoint / sink / "offsets" / "0").read_text(encoding="utf-8").splitlines()


@pytest.mark.timeout(600)
def test_the_rate_of_a_source_and_a_job_without_data(rig: Bench) -> None:
    def source(**options: str) -> dict[str, Any]:
        return {"source": {"format": "rate", "options": options}}

    # So long that a busy machine makes some batches of it.
    seconds = 20
    ends = source(rowsPerSecond=str(ROWS_PER_S), rowCount=str(seconds * ROWS_PER_S))
    union = "SELECT value FROM numbers UNION ALL SELECT value FROM never"
    graph = {
        "name": "union",
        "type": "STREAMING",
        "vertices": [
            {"name": "numbers", **ends},
            {"name": "never", **source(rowsPerSecond="0.0001")},
            {"name": "both", "inputs": ["numbers", "never"], "sql": union},
            {"name": "store", "inputs": ["both"], "sink": {"format": "noop"}},
        ],
    }

    def read() -> list[tuple[int, int]]:
        """When batches were begun, and how many rows had been read by then."""
        found, rows = [], 0
        for batch in list(rig.control_plane.batches):
            figures = by_name(graph, batch)
            assert figures["never"]["records_in"] == 0
            taken = figures["numbers"]["records_in"]
            assert (figures["both"]["records_in"], figures["store"]["records_in"]) == (taken, taken)
            rows += taken
            found.append((batch["started_ms"], rows))
        return found if rows == seconds * ROWS_PER_S else []

    rig.start(graph)
    # The first batch is begun long after it was planned, and what the last one has is not all that would have come.
    _, (begin_ms, first), *_, (end_ms, last), _ = [each for each in wait_for("the last row", read) if each[1]]
    assert (last - first) * 1000 / (end_ms - begin_ms) == near(ROWS_PER_S)
    # Nothing is left to do: that is told, without a batch.
    sink = parse_document(graph).vertices[-1].id
    wait_for("the job to say that it is idle", lambda: [
        report for report in rig.control_plane.of_type("executors") if report["idle_queries"] == [sink]
    ])  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def test_the_load_of_a_program(spark: SparkSession, tmp_path: Path) -> None:
    slept = tmp_path / "slept"

    @f.udf("bigint")
    def slow(value):  # type: ignore[no-untyped-def]
        began = time.perf_counter()
        time.sleep(SLEEP_S)
        with open(slept, "a", encoding="utf-8") as file:
            file.write(f"{value} {time.perf_counter() - began}\n")
        return value

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(ROWS_PER_BATCH))
    source = rows.option("advanceMillisPerBatch", "1000").option("numPartitions", "2").load()
    frame = (
        source.withWatermark("timestamp", "1 second")
        .where("value % 4 = 0")
        .select("timestamp", slow("value").alias("value"))
        .dropDuplicatesWithinWatermark(["value"])
        .where("value % 8 = 0")
    )
    writer = frame.writeStream.format("noop")
    with running(writer.option("checkpointLocation", str(tmp_path / "checkpoint"))) as query:
        ran = until(lambda: (ran := query.latest()) and ran.batch_id > 2 and ran, query.started)
    found = ran.vertices
    flows = {name: (each.records_in, each.records_out) for name, each in found.items()}
    first_row = ran.batch_id * ROWS_PER_BATCH
    quarter = ROWS_PER_BATCH // 4
    source_name, firsts, sink = flows
    assert flows == {
        source_name: (ROWS_PER_BATCH, quarter),
        firsts: (quarter, quarter // 2),
        sink: (quarter // 2, None),
    }
    # No upper bound here: the stage of a source also reads, and starts a Python worker with some PySparks.
    busy_ms = found[source_name].busy_ms
    assert busy_ms is not None
    assert busy_ms >= 0.9 * slept_ms(slept, first_row, first_row + ROWS_PER_BATCH)
    assert found[firsts].state_rows is not None and found[firsts].state_rows >= quarter

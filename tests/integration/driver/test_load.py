"""What a driver measures of the load of a job, against loads whose truth is known: within a tenth."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from app.documents.graph import parse_document
from app.driver.load import SparkFigures
from app.model.measured import ExecutorLoad
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.sink_support import spark_session
from tests.integration.driver.truths import by_name, compare
from tests.integration.driver.valve_support import running, until
from tests.integration.listeners import await_listeners

ROWS_PER_S = 2_000
ROWS_PER_BATCH = 160
KEYS = 40
# So long that what a task does beside it, such as to wake its Python worker, is little.
SLEEP_S = 0.1
# What the tasks themselves have measured is the truth, for a busy machine wakes late: from the first row of a task to
# the end of its last.
CODE = f"""
import time
from pyspark import TaskContext
from pyspark.sql import functions as F

@F.udf("bigint")
def slow(value):
    began = time.monotonic()
    time.sleep({SLEEP_S})
    task = TaskContext.get().partitionId()
    with open("WORKED", "a") as file:
        file.write(f"{{value}} {{task}} {{began}} {{time.monotonic()}}\\n")
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


def worked_ms(file: Path, first: int, end: int) -> float:
    """How long tasks worked at the values from ``first`` to ``end``, which are those of a batch."""
    times_s: dict[str, list[float]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        value, task, *both_s = line.split()
        if first <= int(value) < end:
            times_s.setdefault(task, []).extend(map(float, both_s))
    return 1000 * sum(max(each) - min(each) for each in times_s.values())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_load_of_a_job_that_falls_behind(rig: Bench) -> None:
    worked = rig.directory / "worked"
    (rig.artifacts_dir / "code.py").write_text(CODE.replace("WORKED", str(worked)), encoding="utf-8")
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
    first_rows = range(ROWS_PER_BATCH, read, ROWS_PER_BATCH)
    true_ms = sum(worked_ms(worked, first, first + ROWS_PER_BATCH) for first in first_rows)
    compare("busy time in ms", busy_ms, true_ms)
    (load,) = next(
        report["executor_loads"] for report in rig.control_plane.reports if report["executor_loads"]
    )
    assert load["executor_id"] == "driver" and load["cores"] == 8
    assert load["heap_max_bytes"] > load["heap_used_bytes"] > 0
    # What is due and not read yet waits.
    last = batches[-1]
    (start_ms,) = map(int, json.loads(offsets(rig.checkpoint_dir, graph)[-1]))
    due = (last["started_ms"] - start_ms) * ROWS_PER_S / 1000
    compare("backlog of rate in rows", last["backlog_rows"], due - read)


def offsets(checkpoint: Path, graph: dict[str, Any]) -> list[str]:
    sink = parse_document(graph).vertices[-1].id
    return (checkpoint / sink / "offsets" / "0").read_text(encoding="utf-8").splitlines()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_rate_of_a_source_and_a_job_without_data(rig: Bench) -> None:
    def source(**options: str) -> dict[str, Any]:
        return {"source": {"format": "rate", "options": options}}

    # So long that a busy machine makes some batches of it, though the first one takes half of it.
    seconds = 35
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

    # Batches that follow each other at once would tell no more.
    rig.start(graph, batch_interval_ms=1_000)
    # The first batch is begun long after it was planned, and what the last one has is not all that would have come.
    _, (begin_ms, first), *_, (end_ms, last), _ = [each for each in wait_for("the last row", read) if each[1]]
    compare("rows per second", (last - first) * 1000 / (end_ms - begin_ms), ROWS_PER_S)
    # Nothing is left to do: that is told, without a batch.
    sink = parse_document(graph).vertices[-1].id
    wait_for("the job to say that it is idle", lambda: [
        report for report in rig.control_plane.of_type("executors") if report["idle_queries"] == [sink]
    ])  # fmt: skip


@pytest.mark.timeout(600)
def test_files_that_wait(rig: Bench) -> None:
    folder = rig.directory / "in"
    folder.mkdir()
    files: list[tuple[int, int]] = []

    def come(rows: int) -> None:
        """A file of so many rows, younger than those before it."""
        name = f"{len(files):03}"
        text = "".join(f'{{"value": {1000 + row}}}\n' for row in range(rows))
        (folder / f".{name}").write_text(text, encoding="utf-8")
        os.utime(folder / f".{name}", (1_000_000 + len(files),) * 2)
        (folder / f".{name}").rename(folder / f"{name}.json")
        files.append((rows, len(text)))

    for number in range(8):
        come(20 + 10 * number)
    source = {"format": "json", "path": str(folder), "schema": "value BIGINT"}
    graph = {
        "name": "files",
        "type": "STREAMING",
        "vertices": [
            {"name": "files", "source": {**source, "options": {"maxFilesPerTrigger": "1"}}},
            {"name": "store", "inputs": ["files"], "sink": {"format": "noop"}},
        ],
    }
    rig.start(graph)
    for number, batch in enumerate(rig.wait_batches(8)[:8]):
        told, left = by_name(graph, batch)["files"], files[number + 1 :]
        waiting = told["backlog_files"], told["backlog_bytes"]
        assert waiting == (len(left), sum(size for _, size in left))
        # A look takes a moment, after which there is none for a while: what batches read is taken off.
        assert told["backlog_rows"] == batch["backlog_rows"]
        compare(f"rows in {len(left)} files", told["backlog_rows"], sum(rows for rows, _ in left))
    come(50)
    come(60)
    after = rig.wait_batches(10)[8:]
    assert [batch["input_rows"] for batch in after] == [50, 60]
    assert by_name(graph, after[-1])["files"]["backlog_files"] == after[-1]["backlog_rows"] == 0


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.mark.long
def test_the_load_of_a_program(spark: SparkSession, tmp_path: Path) -> None:
    worked = tmp_path / "worked"

    @f.udf("bigint")
    def slow(value):  # type: ignore[no-untyped-def]
        began = time.monotonic()
        time.sleep(SLEEP_S)
        with open(worked, "a", encoding="utf-8") as file:
            file.write(f"{value} {TaskContext.get().partitionId()} {began} {time.monotonic()}\n")
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
    assert busy_ms >= 0.9 * worked_ms(worked, first_row, first_row + ROWS_PER_BATCH)
    assert found[firsts].state_rows is not None and found[firsts].state_rows >= quarter


def test_what_an_executor_has_done_and_has_on_disk(spark: SparkSession) -> None:
    context = spark.sparkContext
    figures = SparkFigures(context)

    def told() -> ExecutorLoad:
        await_listeners(context)
        (driver,) = figures.executors()
        return driver

    before = told()
    spark.range(0, 4, 1, 4).collect()
    with pytest.raises(Exception, match="of this test"):
        spark.range(0, 1, 1, 1).selectExpr("raise_error('of this test')").collect()
    after = told()
    assert (after.tasks_done - before.tasks_done, after.tasks_failed - before.tasks_failed) == (4, 1)

    kept = spark.range(0, 60_000, 1, 3).selectExpr("id", "sha2(string(id), 256) AS text")
    kept.persist(StorageLevel.DISK_ONLY).count()
    assert told().disk_used_bytes > before.disk_used_bytes

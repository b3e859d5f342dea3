"""A graph document that goes on from the checkpoint of another job, or of a run without Slotwise. What a program does
too: test_job_origin.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.driver.documents import counting, expected_counts, stored_counts
from tests.integration.driver.harness import Bench, bench, wait_for
from tests.integration.driver.kinds import drained

pytestmark = pytest.mark.timeout(600)

PLAIN = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

folder, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 4).config(
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
).getOrCreate()
rows = spark.readStream.schema("value BIGINT").csv(folder)
counts = rows.groupBy((F.col("value") % 97).alias("k")).agg(F.count("*").alias("n"), F.sum("value").alias("total"))
query = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
"""
MORE = {"name": "more", "inputs": ["numbers"], "sink": {"format": "noop"}}


def stopped(rig: Bench) -> Path:
    """The checkpoint of a job that has counted for a while."""
    rig.start(counting(rig.directory, rows=None), {"counts": 2})
    rig.wait_batches(3)
    return drained(rig)


def numbered(folder: Path, first: int, end: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{first}.csv").write_text("".join(f"{value}\n" for value in range(first, end)))


@pytest.mark.long
def test_it_goes_on_from_a_run_without_slotwise(rig: Bench, tmp_path: Path) -> None:
    folder, origin, script = tmp_path / "in", tmp_path / "plain", tmp_path / "plain.py"
    numbered(folder, 0, 1_000)
    script.write_text(PLAIN)
    subprocess.run([sys.executable, script, folder, origin], check=True, capture_output=True)
    numbered(folder, 1_000, 1_500)
    document: dict[str, Any] = {**counting(rig.directory, rows=None), "from": str(origin)}
    document["vertices"][0]["source"] = {"format": "csv", "path": str(folder), "schema": "value BIGINT"}
    rig.start(document, {"counts": 3})
    rig.wait_batches(1)
    drained(rig)
    (told,) = rig.control_plane.of_type("repartitioned")
    assert list(told["state_partitions"].values()) == [4], "those of the checkpoint"
    # Only of the keys in the new rows anything is written, and all keys are.
    assert stored_counts(rig.directory) == expected_counts(1_500)


def refusal(other: Bench, document: dict[str, Any], **changes: Any) -> str:
    """Why a job does not begin, of which nothing was copied."""
    driver = other.start(document, **changes)
    (failed,) = wait_for("the failure", lambda: other.control_plane.of_type("failed"))
    assert driver.exit_status() == 4 and not failed["recoverable"]
    assert not [*other.checkpoint_dir.rglob("offsets")], "nothing was copied"
    return str(failed["error"])


@pytest.mark.long
def test_a_side_table_does_not_hide_that_the_state_is_another(rig: Bench, tmp_path: Path) -> None:
    origin = stopped(rig)
    (tmp_path / "next").mkdir()
    (tmp_path / "side.csv").write_text("1\n")
    with bench(tmp_path / "next") as other:
        document = {**counting(other.directory, rows=None), "from": str(origin)}
        side = {"format": "csv", "path": str(tmp_path / "side.csv"), "schema": "x BIGINT", "static": True}
        document["vertices"].append({"name": "side", "source": side})
        document["vertices"][1]["inputs"] = ["side", "numbers"]
        document["vertices"][1]["sql"] = (
            "SELECT cast(value % 97 AS STRING) AS k, count(*) AS n, sum(value) AS total "
            "FROM numbers LEFT JOIN side ON x = value GROUP BY 1"
        )
        said = refusal(other, document)
    assert "does not go with the state in" in said and "the key of 'counts' has field 1" in said, said


def test_all_queries_are_known_to_go_with_it_and_so_is_its_database_before_one_runs(
    rig: Bench, tmp_path: Path
) -> None:
    document = counting(rig.directory, rows=None)
    rig.start(document, {"counts": 2}, epoch=3)
    rig.wait_batches(2)
    origin = drained(rig)
    grown = {**document, "vertices": [*document["vertices"], MORE], "from": str(origin)}
    (tmp_path / "grown").mkdir()
    with bench(tmp_path / "grown") as other:
        said = refusal(other, grown, epoch=3)
    assert said == f"from: {origin} has no checkpoint of more, but those of store."
    # Batches of a later epoch are on record there.
    (tmp_path / "next").mkdir()
    with bench(tmp_path / "next") as other:
        said = refusal(other, {**document, "from": str(origin)})
    assert re.fullmatch(
        r"The sqlite sink store has batches of the query up to \d+ on record, by epoch 3, and this job goes on with "
        r"batch \d+, as epoch 1, which would be refused, or taken for one that was written\. .*",
        said,
    ), said

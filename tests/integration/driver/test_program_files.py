"""Files of a batch that a query of a program is to run again: one that is gone is named, or passed over if asked."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

import pytest

from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.integration.driver.harness import Bench
from tests.integration.driver.test_program_attempt import job, the_end
from tests.outputs import rows_of

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

PROGRAM = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("value bigint"){option}.json(sys.argv[1] + "-in")
query = (
    rows.writeStream.queryName("kept").format("json")
    .option("checkpointLocation", sys.argv[1] + "-own").start(sys.argv[1])
)
query.awaitTermination()
"""
VERTICES = (
    PlannedVertex("out-in", Role.SOURCE, "json"),
    PlannedVertex("kept", Role.SINK, "json", ("out-in",)),
)


def drained(rig: Bench, document: dict[str, Any], **changes: Any) -> None:
    driver = rig.start(document, **changes)
    rig.wait_batches(1)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    assert driver.exit_status() == 0
    rig.control_plane.order(stop="none")
    rig.control_plane.reports.clear()


def test_a_file_that_is_gone_is_named_unless_it_is_to_be_passed_over(rig: Bench) -> None:
    folder = rig.directory / "out-in"
    folder.mkdir()
    (folder / "first.json").write_text('{"value": 1}\n')
    document = job(rig, PROGRAM.format(option=""), VERTICES)
    drained(rig, document)
    # As a driver leaves it that dies before it commits.
    (rig.directory / "out-own" / "commits" / "0").unlink()
    (folder / "first.json").unlink()
    # A network file system may show it within a minute.
    os.utime(rig.directory / "out-own" / "offsets" / "0", (1, 1))

    driver = rig.start(document)
    failed = the_end(rig, "failed")
    assert failed["recoverable"] is False
    told = f"Batch 0 is to be run again, and its file {folder}/first.json is gone. Put it back"
    assert failed["error"].startswith(f"job.py, line 9: {told}"), failed["error"]
    assert driver.exit_status() == 4

    rig.control_plane.reports.clear()
    drained(rig, document, spark_conf={"spark.sql.files.ignoreMissingFiles": "true"})
    (rig.directory / "out-own" / "commits" / "0").unlink()
    passed_over = PROGRAM.format(option='.option("ignoreMissingFiles", True)')
    drained(rig, job(rig, passed_over, VERTICES))


def test_a_damaged_file_of_the_logs_is_final_and_what_it_says_helps(rig: Bench) -> None:
    folder, checkpoint = rig.directory / "out-in", rig.directory / "out-own"
    folder.mkdir()
    (folder / "first.json").write_text('{"value": 1}\n')
    document = job(rig, PROGRAM.format(option=""), VERTICES)
    drained(rig, document)
    (folder / "second.json").write_text('{"value": 2}\n')
    # We meet the first, Spark the second.
    for name, again in (("offsets/1", "; or if .*, remove it, so .* planned anew"), ("sources/0/0", "")):
        file = checkpoint / name
        kept = file.read_text() if file.exists() else None
        file.write_text("")
        driver = rig.start(document)
        failed = the_end(rig, "failed")
        told = (
            f"The file {file} of the checkpoint is empty, so .*: restore it from a backup{again}; or let .*"
        )
        assert re.fullmatch(rf"(job\.py, line \d+: )?{told}", failed["error"]), failed
        assert not failed["recoverable"] and failed["by_files"] and driver.exit_status() == 4
        file.unlink() if kept is None else file.write_text(kept)
        rig.control_plane.reports.clear()
    drained(rig, document)
    assert sorted(row["value"] for row in rows_of(rig.directory / "out")) == [1, 2]


def test_a_file_that_was_appended_to_is_read_as_by_plain_spark_and_one_that_lost_rows_is_named(
    rig: Bench,
) -> None:
    folder, checkpoint = rig.directory / "out-in", rig.directory / "out-own"
    folder.mkdir()
    file = folder / "first.json"
    file.write_text('{"value": 1}\n')
    document = job(rig, PROGRAM.format(option=""), VERTICES)
    drained(rig, document)

    def interrupted(text: str) -> None:
        # As a driver leaves it that dies before the sink has the batch.
        (checkpoint / "commits" / "0").unlink()
        shutil.rmtree(rig.directory / "out")
        file.write_text(text)
        os.utime(file, (1, 1))

    interrupted('{"value": 1}\n{"value": 2}\n')
    drained(rig, document)
    assert sorted(row["value"] for row in rows_of(rig.directory / "out")) == [1, 2]

    interrupted('{"value": 1}\n')
    driver = rig.start(document)
    failed = the_end(rig, "failed")
    assert f"its file {file} was written again" in failed["error"] and "it had 26 bytes" in failed["error"]
    assert not failed["recoverable"] and driver.exit_status() == 4

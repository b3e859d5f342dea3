"""Files of a batch that a query of a program is to run again: one that is gone is named, or passed over if asked."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.integration.driver.harness import Bench
from tests.integration.driver.test_program_attempt import job, the_end

pytestmark = pytest.mark.timeout(600)

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

    driver = rig.start(document)
    failed = the_end(rig, "failed")
    assert failed["recoverable"] is True
    told = f"Batch 0 is to be run again, and its file {folder}/first.json is gone. Put it back"
    assert failed["error"].startswith(f"job.py, line 9: {told}"), failed["error"]
    assert driver.exit_status() == 4

    rig.control_plane.reports.clear()
    drained(rig, document, spark_conf={"spark.sql.files.ignoreMissingFiles": "true"})
    (rig.directory / "out-own" / "commits" / "0").unlink()
    passed_over = PROGRAM.format(option='.option("ignoreMissingFiles", True)')
    drained(rig, job(rig, passed_over, VERTICES))

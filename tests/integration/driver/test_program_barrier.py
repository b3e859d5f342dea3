"""A stage whose tasks wait for each other: it has the tasks that the plan says, and no others."""

from __future__ import annotations

import pytest

from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import conf, job
from tests.outputs import rows_of

pytestmark = pytest.mark.timeout(600)

TEXT = """
import sys
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = (
    spark.readStream.format("rate-micro-batch")
    .option("rowsPerBatch", 60).option("numPartitions", 6).option("advanceMillisPerBatch", 1000)
    .load()
)

def together(parts):
    context = BarrierTaskContext.get()
    context.barrier()
    for part in parts:
        yield part.assign(value=len(context.getTaskInfos()))

counted = rows.mapInPandas(together, rows.schema, barrier=True)
query = counted.writeStream.queryName("counted").format("parquet").option("path", sys.argv[1]).start()
query.awaitTermination()
"""
VERTICES = (
    PlannedVertex("rate-micro-batch", Role.SOURCE, "rate-micro-batch"),
    PlannedVertex("counted", Role.SINK, "parquet", ("rate-micro-batch",)),
)


@pytest.mark.long
def test_it_is_rescaled_between_two_batches(rig: Bench) -> None:
    document = job(rig, TEXT, VERTICES)
    rig.start(document, {"rate-micro-batch": 2, "counted": 3}, **conf())
    rig.wait_batches(2)
    for version, (source, sink) in enumerate([(3, 2), (1, 1), (4, 4)], 101):
        rig.change_plan(document, version, {"rate-micro-batch": source, "counted": sink})
        wait_for(
            f"{source} and {sink} tasks",
            lambda version=version: [
                each for each in rig.control_plane.of_type("plan-applied") if each["plan_version"] == version
            ],
        )
    assert not rig.control_plane.of_type("failed")
    assert not any(each["not_followed"] for each in rig.control_plane.of_type("plan-applied"))
    tasks = {row["value"] for row in rows_of(rig.directory / "out")}
    assert {1, 2, 3, 4} >= tasks >= {2, 3, 1}

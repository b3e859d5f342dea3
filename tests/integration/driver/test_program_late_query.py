"""A program that starts a query only after it has waited for another: what its state has is told then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import COUNTS, SOURCE, STORED, WINDOWS, conf, job, the_end

pytestmark = pytest.mark.timeout(600)

PROGRAM = f"""{WINDOWS}
first = (
    windows.writeStream.queryName("windows").format("parquet").option("path", sys.argv[1])
    .trigger(once=True).start()
)
first.awaitTermination()
late = rows.groupBy((F.col("value") % 10).alias("key")).count()
query = late.writeStream.queryName("late").outputMode("update").format("noop").start()
query.awaitTermination()
"""


def vertices(partitions: int) -> tuple[PlannedVertex, ...]:
    """``partitions``: what the stored document says of the state of the second query."""
    source = replace(SOURCE, name="rate-micro-batch 2")
    counts = replace(COUNTS, name="aggregate 2", inputs=(source.name,), state_partitions=partitions)
    return (*STORED, source, counts, PlannedVertex("late", Role.SINK, "noop", (counts.name,)))


@pytest.mark.long
def test_the_redistribution_of_a_query_that_starts_late_is_told_when_it_is_done(rig: Bench) -> None:
    first = rig.start(job(rig, PROGRAM, vertices(8)), **conf())
    rig.wait_batches(3)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    first.exit_status()

    rig.control_plane.order(stop="none")
    rig.control_plane.reports.clear()
    second = rig.start(job(rig, PROGRAM, vertices(12)), repartition=True, **conf())
    told = wait_for("both", lambda: (found := rig.control_plane.of_type("repartitioned"))[1:] and found)
    early, late = (list(each["state_partitions"].values()) for each in told)
    assert (early, late) == ([8], [12])
    kinds = [each["type"] for each in rig.control_plane.reports]
    answers = [kind for kind in kinds if kind in ("begun", "query-started", "repartitioned")]
    assert answers == ["begun", *["query-started", "repartitioned"] * 2], "of each query when it is started"
    rig.wait_batches(len(rig.control_plane.batches) + 2)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    assert second.exit_status() == 0


@pytest.mark.long
def test_the_partitions_of_a_query_that_starts_late_are_told(rig: Bench) -> None:
    first = rig.start(job(rig, PROGRAM, vertices(8)), **conf())
    rig.wait_batches(3)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
    first.exit_status()
    assert not rig.control_plane.of_type("repartitioned"), "they are what the document says"

    rig.control_plane.order(stop="none")
    rig.control_plane.reports.clear()
    document = job(rig, PROGRAM, vertices(12))
    rig.start(document, **conf())
    (told,) = wait_for("what is found", lambda: rig.control_plane.of_type("repartitioned"))
    assert list(told["state_partitions"].values()) == [8]
    kinds = [each["type"] for each in rig.control_plane.reports]
    assert kinds.index("begun") < kinds.index("repartitioned"), "the program had waited before"
    rig.wait_batches(len(rig.control_plane.batches) + 2)
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")

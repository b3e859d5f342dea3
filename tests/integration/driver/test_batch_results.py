"""The results of a batch job on a Hadoop file system, across its drivers: kept for the next one, removed in the end."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from app.documents.graph import parse_document
from app.model.batch import Result
from app.model.fromjson import from_json
from app.model.jobgraph import JobGraph
from app.scheduler.adaptive.events import AttemptFailed, AttemptRunning, RegionFinished
from app.scheduler.batch.orders import region_orders
from app.worker.job.orders import orders_for
from tests.integration.batch.harness import REMOTE, mount_table
from tests.integration.driver.harness import Bench, wait_for
from tests.outputs import rows_of
from tests.unit.batch.driving import BatchJob

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

JOB_ID = "0" * 32
ENDED, UNKNOWN = "e" * 32, "f" * 32


def document(directory: Path) -> dict[str, Any]:
    """Two regions, with a result between them."""
    return {
        "name": "counts",
        "type": "BATCH",
        "vertices": [
            {
                "name": "numbers",
                "source": {"format": "parquet", "path": str(directory / "numbers.parquet")},
                "parallelism": 2,
            },
            {
                "name": "counts",
                "inputs": [{"vertex": "numbers", "keys": ["k"], "exchange": "BLOCKING"}],
                "sql": "SELECT k, count(*) AS n FROM numbers GROUP BY k",
                "parallelism": 2,
            },
            {
                "name": "store",
                "inputs": ["counts"],
                "sink": {"format": "parquet", "path": str(directory / "out")},
            },
        ],
    }


class Plane:
    """The core of the control plane, behind the one that the drivers of the test speak with."""

    def __init__(self, rig: Bench, graph: JobGraph) -> None:
        self.rig = rig
        self.job = BatchJob(graph, held=2)
        self.version = 0

    def tell(self) -> None:
        """The orders of this moment, under a version of their own."""
        self.version += 1
        orders = asdict(orders_for(self.job.state, 1))
        self.rig.control_plane.order(**{**orders, "plan_version": 10_000 + self.version})

    def finish_region(self, number: int) -> Result | None:
        """Wait for a report that the region ``number`` is finished, and take it down; the result that it left."""
        told = self.rig.control_plane

        def finished() -> dict[str, Any] | None:
            assert not told.of_type("failed") + told.of_type("region-failed"), told.reports
            return next((one for one in told.of_type("region-finished") if one["region"] == number), None)

        report = wait_for(f"the end of region {number}", finished)
        results = tuple(from_json(Result, one) for one in report["results"])
        self.job.do(RegionFinished(self.job.state.attempt, number, report["run"], results))
        return results[0] if results else None


def test_results_are_there_for_the_next_driver_and_go_with_the_job(rig: Bench) -> None:
    mounted = rig.directory / "mounted"
    (mounted / ENDED / "dataset" / "1").mkdir(parents=True)
    (mounted / UNKNOWN).mkdir()
    parquet.write_table(
        pa.table({"k": [number % 5 for number in range(100)]}), rig.directory / "numbers.parquet"
    )
    described = document(rig.directory)
    plane = Plane(rig, parse_document(described))
    places = {
        "results_dir": f"{REMOTE}/{JOB_ID}",
        "ended_results": [f"{REMOTE}/{ENDED}"],
        "spark_conf": mount_table(mounted),
        "master": "local[2]",
        "slots": 2,
    }

    first = rig.start(described, **places)
    wait_for("it runs", lambda: rig.control_plane.of_type("running"))
    plane.job.do(AttemptRunning(1))
    plane.tell()
    result = plane.finish_region(0)
    assert result is not None and result.path.startswith(f"{REMOTE}/{JOB_ID}/")
    home = mounted / JOB_ID
    file = next((home / result.dataset / "1").glob("part-*"))
    wait_for("the results of the job that has ended are gone", lambda: not (mounted / ENDED).exists())
    assert (mounted / UNKNOWN).is_dir(), "nobody has said whose that is"
    # As before another attempt: results count.
    rig.control_plane.order(stop="kill", results=[result.path], regions=[])
    assert first.exit_status() == 0, first.log
    assert file.is_file()

    left = home / "dataset" / "3"
    left.mkdir(parents=True)
    plane.job.do(AttemptFailed(1, "killed", stopped=True)).wait()
    second = rig.start(described, **places)
    wait_for("it runs again", lambda: len(rig.control_plane.of_type("running")) == 2)
    plane.job.do(AttemptRunning(2))
    assert [order.region for order in region_orders(plane.job.state)] == [1]
    plane.tell()
    plane.finish_region(1)
    assert sorted((row["k"], row["n"]) for row in rows_of(rig.directory / "out")) == [
        (key, 20) for key in range(5)
    ]
    assert file.is_file() and not left.exists()

    # As when the job is canceled or has failed: none count.
    rig.control_plane.order(stop="kill", results=[], regions=[])
    assert second.exit_status() == 0, second.log
    assert not home.exists() and mounted.is_dir()
    assert rig.control_plane.of_type("stopped")

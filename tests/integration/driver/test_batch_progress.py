"""A driver of a batch job tells how far its regions are, about once a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from app.documents.graph import parse_document
from tests.integration.driver.harness import Bench, wait_for

pytestmark = pytest.mark.timeout(600)

FILES = 4
CODE = """
import pathlib, time

def gated(numbers):
    def through(batches):
        for batch in batches:
            while 3 in batch.column(0).to_pylist() and not pathlib.Path({gate!r}).exists():
                time.sleep(0.02)
            yield batch
    return numbers.mapInArrow(through, numbers.schema)
"""


def document(directory: Path) -> dict[str, Any]:
    """One region: a file for each task, and the task that reads 3 waits until the file ``gate`` is there."""
    source = {"format": "parquet", "path": str(directory / "numbers"), "schema": "n BIGINT"}
    return {
        "name": "gated",
        "type": "BATCH",
        "artifacts": ["code.py"],
        "vertices": [
            {"name": "numbers", "source": source, "parallelism": FILES},
            {"name": "gated", "inputs": ["numbers"], "python": "code:gated", "parallelism": FILES},
            {
                "name": "store",
                "inputs": ["gated"],
                "sink": {"format": "parquet", "path": str(directory / "out")},
            },
        ],
    }


@pytest.mark.long
def test_a_driver_tells_how_far_its_regions_are(rig: Bench) -> None:
    gate = rig.directory / "gate"
    (rig.directory / "numbers").mkdir()
    for number in range(FILES):
        parquet.write_table(pa.table({"n": [number]}), rig.directory / "numbers" / f"{number}.parquet")
    (rig.artifacts_dir / "code.py").write_text(CODE.format(gate=str(gate)), encoding="utf-8")
    job = document(rig.directory)
    driver = rig.start(job, results_dir=str(rig.directory / "results"))
    plane = rig.control_plane
    wait_for("it runs", lambda: plane.of_type("running"))
    region = {
        "region": 0,
        "run": 1,
        "parallelism": {vertex.id: FILES for vertex in parse_document(job).vertices},
        "volume_bytes": 1 << 24,
        "reads": [],
        "outputs": [],
    }
    plane.order(plan_version=101, regions=[region])

    def all_but_one() -> bool:
        assert not plane.of_type("region-failed"), plane.of_type("region-failed")
        told = plane.of_type("region-progress")
        return bool(told) and told[-1]["tasks_total"] - told[-1]["tasks_done"] == 1 < told[-1]["tasks_done"]

    wait_for("all tasks but one are done", all_but_one)
    assert {(report["region"], report["run"]) for report in plane.of_type("region-progress")} == {(0, 1)}
    gate.touch()
    wait_for("its end", lambda: plane.of_type("region-finished"))
    plane.order(plan_version=102, stop="drain", regions=[])
    assert driver.exit_status() == 0, driver.log
    assert "Traceback" not in driver.log, driver.log
    told = [(report["tasks_done"], report["tasks_total"]) for report in plane.of_type("region-progress")]
    assert len(set(told)) == len(told), "what has not changed was told again"

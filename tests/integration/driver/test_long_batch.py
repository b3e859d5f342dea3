"""A batch that takes long is told of while it runs: how far it is, what it reads, and how long a plan has waited."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.graph import parse_document
from tests.integration.driver.harness import Bench, wait_for

pytestmark = pytest.mark.timeout(600)

ROWS, TASKS = 240, 8
CODE = """
import time
from pyspark.sql import functions as F

def slowly(rows):
    return rows.select(F.udf(lambda v: (time.sleep(0.14), v)[1], "long")("value").alias("v"))
"""


def document() -> dict[str, Any]:
    """A batch has eight tasks of 4.2 s."""
    options = {"rowsPerSecond": "1000", "maxRowsPerTrigger": str(ROWS)}
    return {
        "name": "slow",
        "type": "STREAMING",
        "artifacts": ["code.py"],
        "vertices": [
            {"name": "numbers", "source": {"format": "rate", "options": options}},
            {"name": "work", "inputs": ["numbers"], "python": "code:slowly"},
            {"name": "store", "inputs": ["work"], "sink": {"format": "noop"}},
        ],
    }


def test_a_batch_is_told_of_while_it_runs_and_not_any_more(rig: Bench) -> None:
    (rig.artifacts_dir / "code.py").write_text(CODE, encoding="utf-8")
    job = document()
    all_of = dict.fromkeys(("numbers", "work", "store"), TASKS)
    # Two slots: four tasks after one another, in which a batch is told of twice.
    rig.start(job, all_of, slots=2, batch_target_ms=0)

    def told() -> list[dict[str, Any]]:
        return [one for report in list(rig.control_plane.reports) for one in report["long_batches"] or ()]

    first = wait_for("a batch that takes long", told)[0]
    known = {name: first[name] for name in ("query", "batch_id", "rows", "plan_version", "waited_ms", "kept")}
    sink = parse_document(job).vertices[-1].id
    assert known == {
        "query": sink,
        "batch_id": 0,
        "rows": None,
        "plan_version": 100,
        "waited_ms": 0,
        "kept": "",
    }
    assert first["ran_ms"] > 5_000 and first["tasks_known"] == TASKS > first["tasks_done"]
    (batch,) = rig.wait_batches(1)[:1]
    assert (first["query_id"], first["run_id"]) == (batch["query_id"], batch["run_id"])
    begun = "the next one, with a task that is done"
    second = wait_for(begun, lambda: [one for one in told() if one["batch_id"] == 1 and one["tasks_done"]])[0]
    assert second["rows"] == ROWS and second["tasks_done"] < TASKS
    rig.change_plan(job, 1_000, dict.fromkeys(all_of, 4))
    waited = wait_for("the plan that waits", lambda: [one for one in told() if one["waited_ms"]])[0]
    assert waited["plan_version"] == 100 and waited["waited_ms"] <= waited["ran_ms"]
    rig.wait_batches(2)
    committed = -1
    for report in list(rig.control_plane.reports):
        committed = report["batch_id"] if report["type"] == "batch" else committed
        assert all(one["batch_id"] > committed for one in report["long_batches"] or ())

"""What a driver tells of the state of a document, which only Spark knows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.driver.repartition import why_impossible
from tests.integration.driver.documents import counting
from tests.integration.driver.harness import Bench, graph_in
from tests.integration.driver.kinds import drained

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

MAPPED = {"name": "mapped", "inputs": ["counts"], "sql": "SELECT k, n, total FROM counts;", "parallelism": 3}


def document(rig: Bench) -> dict[str, Any]:
    """Counts, and a vertex behind them that keeps no state; nothing is said of state or partitions."""
    found = counting(rig.directory, rows=None)
    numbers, counts, store = found["vertices"]
    counts.pop("maxParallelism")
    counts["stateful"] = False
    return {**found, "vertices": [numbers, counts, dict(MAPPED), {**store, "inputs": ["mapped"]}]}


def test_what_keeps_state_is_told_before_a_query_runs(rig: Bench) -> None:
    asked = document(rig)
    ids = {vertex.name: vertex.id for vertex in graph_in(asked).vertices}
    rig.start(asked, {"numbers": 2, "counts": 3, "mapped": 2})
    batch = rig.wait_batches(2)[-1]
    kinds = [report["type"] for report in rig.control_plane.reports if report["type"] != "executors"]
    assert kinds[:2] == ["analysed", "running"]
    (told,) = rig.control_plane.of_type("analysed")
    assert told["stateful"] == {ids["counts"]: 12} and told["fixed"] == why_impossible()
    ran = {each["vertex_id"]: each["parallelism"] for each in batch["vertices"]}
    assert (ran[ids["counts"]], ran[ids["mapped"]]) == (3, 2)
    place = drained(rig)
    (metadata,) = re.findall(
        r'"spark.sql.shuffle.partitions":"(\d+)"', next(place.rglob("offsets/0")).read_text()
    )
    assert metadata == "12"

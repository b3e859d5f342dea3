"""What the batches of a query tell of a plan that Spark does not follow."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from app.driver.gateway import BatchRun
from app.driver.plans import DriverPlan
from app.driver.valves.batches import BatchReader, Fault
from app.driver.valves.running import Valves
from tests.unit.driver.test_graph_valves import at, graph

PLANNED = object()


class FewValves:
    """Valves of which the named one is missing in each batch that is known."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def read(self, planned: object) -> tuple[dict[str, Any], list[str]]:
        return {}, [self.missing] if planned is not None else []


class NoStages:
    def of_batch(self, batch_id: int) -> list[Any]:
        return []


def test_a_fault_is_told_of_the_plan_and_stays_if_two_batches_have_it() -> None:
    query, names, _ = graph()
    counts = names["counts"].id
    reader = BatchReader(query, FewValves(counts), NoStages())  # type: ignore[arg-type]

    def runs(rows: int, *, planned: object = PLANNED, whole: bool = True) -> tuple[str, str]:
        plan = DriverPlan(7, 3, at(names), whole)
        reader.vertices(BatchRun(1, plan, planned, 0, None), rows)
        return reader.not_followed(7).vertex_id, reader.stays_unfollowed.vertex_id

    assert runs(0) == ("", "")
    assert runs(10) == (counts, "")
    assert runs(0) == (counts, ""), "one without rows says nothing"
    assert runs(10, planned=None) == (counts, ""), "nor does one that Spark has left behind"
    assert runs(10, whole=False) == (counts, ""), "nor one at a step of the plan"
    assert runs(10) == (counts, counts)
    assert reader.not_followed(8) == Fault()


def test_nothing_is_removed_from_a_plan_that_is_not_known() -> None:
    query, _, _ = graph()
    valves = Valves(MagicMock(spec=["_jsq"]), query, lambda label: None)
    assert valves.read(None) == ({}, [])

"""What the batches of a query tell of a plan that Spark does not follow."""

from __future__ import annotations

from typing import Any, ClassVar
from unittest.mock import MagicMock

from app.driver.gateway import BatchRun
from app.driver.plans import DriverPlan
from app.driver.valves.batches import BatchReader
from app.driver.valves.query_valves import Valves
from tests.unit.driver.test_graph_valves import at, graph

PLANNED = object()


class FewValves:
    """Valves of which the named ones are missing in each batch that is known."""

    def __init__(self, *missing: str) -> None:
        self.missing = list(missing)

    sources: ClassVar[list[str]] = []
    changing: ClassVar[set[str]] = set()

    def read(self, planned: object) -> tuple[dict[str, Any], list[str]]:
        return {}, self.missing if planned is not None else []


class NoFigures:
    def stages(self, run_id: str, batch_id: int) -> list[Any]:
        return []

    def operators(self, planned: object, rows: object) -> list[Any]:
        return []


def test_a_fault_is_told_of_the_plan_and_stays_if_two_batches_have_it() -> None:
    query, names = graph()
    counts = names["counts"].id
    valves = FewValves(counts)
    reader = BatchReader(query, valves, NoFigures(), "run")  # type: ignore[arg-type]

    def runs(rows: int, *, planned: object = PLANNED, whole: bool = True) -> tuple[set[str], set[str]]:
        plan = DriverPlan(7, 3, at(names), whole)
        reader.vertices(BatchRun(1, plan, planned, 0, None), rows)
        return set(reader.not_followed(7)), set(reader.stays_unfollowed)

    assert runs(0) == (set(), set())
    assert runs(10) == ({counts}, set())
    assert runs(0) == ({counts}, set()), "one without rows says nothing"
    assert runs(10, planned=None) == ({counts}, set()), "nor does one that Spark has left behind"
    assert runs(10, whole=False) == ({counts}, set()), "nor one at a step of the plan"
    assert runs(10) == ({counts}, {counts})
    assert reader.not_followed(8) == {}

    store = names["store"].id
    valves.missing = [counts, store]
    assert runs(10) == ({counts, store}, {counts}), "a known one hides no other"
    assert runs(10) == ({counts, store}, {counts, store})
    valves.missing = [store]
    assert runs(10) == ({store}, {store})


def test_nothing_is_removed_from_a_plan_that_is_not_known() -> None:
    query, _ = graph()
    valves = Valves(MagicMock(spec=["_jsq"]), query)
    assert valves.read(None) == ({}, [])

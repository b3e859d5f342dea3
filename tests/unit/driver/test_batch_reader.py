"""What the batches of a query tell of a plan that Spark does not follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest

from app.driver.gateway import BatchRun
from app.driver.load import Stage
from app.driver.plans import DriverPlan
from app.driver.valves.batches import BatchReader
from app.driver.valves.query_valves import Rows, Valves
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


class OneSource(FewValves):
    """Valves of a source whose rows go through another valve."""

    def __init__(self, source_id: str) -> None:
        super().__init__()
        self.source_id = source_id
        self.is_spread = False

    def read(self, planned: object) -> tuple[dict[str, Any], list[str]]:
        front = Rows(self.source_id, 2, 2, shuffles=self.is_spread, is_front=True)
        return {"own": Rows(self.source_id, 1, 1), "front": front}, []

    def spread_at(self, parallelism: Mapping[str, int]) -> dict[str, tuple[str, str]]:
        return {self.source_id: ("own", "front")}

    def spread(self, sources: Collection[str]) -> None:
        self.is_spread = self.source_id in sources

    def stages(self, run_id: str, batch_id: int) -> list[Stage]:
        if not self.is_spread:
            return [Stage(0, 1, 2_000, frozenset({1, 2}))]
        return [Stage(0, 1, 50, frozenset({1})), Stage(1, 2, 2_000, frozenset({2}))]

    def operators(self, planned: object, rows: object) -> list[Any]:
        return []


@pytest.mark.parametrize("may_spread", [True, False])
def test_long_batches_of_a_source_of_one_part_let_its_rows_be_spread_if_the_job_does_not_forbid_it(
    may_spread: bool,
) -> None:
    query, names = graph()
    source = names["numbers"].id
    valves: Any = OneSource(source)
    reader = BatchReader(query, valves, valves, "run", may_spread=may_spread)

    def parts() -> int | None:
        run = BatchRun(1, DriverPlan(7, 3, at(names)), PLANNED, 0, None)
        (found,) = (one.spread_parts for one in reader.vertices(run, 10) if one.vertex_id == source)
        return found

    assert [parts() for _ in range(4)] == ([None, None, 1, 1] if may_spread else [None] * 4)


def test_nothing_is_removed_from_a_plan_that_is_not_known() -> None:
    query, _ = graph()
    valves = Valves(MagicMock(spec=["_jsq"]), query)
    assert valves.read(None) == ({}, [])

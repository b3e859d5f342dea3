"""The rule book of the oracles, by cases that were worked out by hand, and against the scheduler on many graphs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.model.batch import Dataset
from app.model.batch_layout import layout_of
from app.model.jobgraph import JobGraph, Partitioner, Role
from app.model.planned import PlannedVertex
from app.scheduler import slots
from app.worker.requests.requirements import initial_requirements
from tests.program_graphs import grown_program
from tests.simulation import rules
from tests.simulation.jobs import random_graph


def batch(*vertices: tuple[str, list[dict[str, Any]]]) -> JobGraph:
    """Those without inputs are sources. A sink called store runs together with the last one."""
    documents: list[dict[str, Any]] = []
    for name, inputs in vertices:
        if inputs:
            names = ", ".join(one["vertex"] for one in inputs)
            documents.append({"name": name, "inputs": inputs, "sql": f"SELECT 1 AS k FROM {names}"})
        else:
            documents.append({"name": name, "source": {"format": "parquet", "path": "/data"}})
    documents.append({"name": "store", "inputs": [pipelined(vertices[-1][0])], "sink": {"format": "noop"}})
    return parse_document({"name": "job", "type": "BATCH", "vertices": documents})


def blocking(vertex: str, **how: Any) -> dict[str, Any]:
    return {"vertex": vertex, "exchange": "BLOCKING", **how}


def pipelined(vertex: str) -> dict[str, Any]:
    return {"vertex": vertex, "exchange": "PIPELINED"}


def named(graph: JobGraph) -> list[list[str]]:
    return [[graph.by_id[vertex].name for vertex in region] for region in rules.regions(graph)]


def test_a_blocking_edge_separates_and_a_pipelined_one_joins() -> None:
    graph = batch(("a", []), ("b", [blocking("a")]), ("c", [pipelined("b")]), ("d", [blocking("c")]))
    assert named(graph) == [["a"], ["b", "c"], ["d", "store"]]


def test_who_waits_for_each_other_by_way_of_a_third_is_one_region() -> None:
    # d runs with a, and reads what b makes of a: a and d would wait for b, which waits for a.
    graph = batch(("a", []), ("b", [blocking("a")]), ("c", [blocking("a")]), ("d", [pipelined("a"), blocking("b")]),
                  ("e", [blocking("c"), blocking("d")]))  # fmt: skip
    assert named(graph) == [["a", "b", "d"], ["c"], ["e", "store"]]


def test_readers_share_a_dataset_if_the_rows_lie_alike() -> None:
    graph = batch(
        ("a", []),
        ("b", [blocking("a", keys=["k"])]),
        ("c", [blocking("a", keys=["j"])]),
        ("d", [blocking("a", keys=["k"])]),
        ("e", [blocking("a", partitioner="BROADCAST")]),
        ("f", [blocking(one) for one in "bcde"]),
    )
    a, b, c, d, e = (graph.by_name[name].id for name in "abcde")
    found = [one for one in rules.Layout(graph).datasets.values() if one.producer == a]
    assert found == [
        Dataset(f"{a}-0", a, Partitioner.HASH, ("k",), (b, d)),
        Dataset(f"{a}-1", a, Partitioner.HASH, ("j",), (c,)),
        Dataset(f"{a}-2", a, Partitioner.BROADCAST, (), (e,)),
    ]


# (lower, upper) of each group, slots, and what each group gets.
DIVISIONS: list[tuple[list[tuple[int, int]], int, tuple[int, ...] | None]] = [
    ([(1, 2), (1, 8)], 6, (2, 4)),
    ([(1, 10), (1, 10)], 5, (2, 3)),
    ([(1, 4), (2, 4), (1, 1)], 7, (3, 3, 1)),
    ([(2, 8), (3, 4)], 5, (2, 3)),
    ([(2, 8), (3, 4)], 4, None),
    ([(1, 3), (1, 3), (1, 3)], 8, (2, 3, 3)),
    ([(4, 4), (1, 100)], 20, (4, 16)),
]


@pytest.mark.parametrize(("groups", "count", "expected"), DIVISIONS)
def test_slots_are_divided_as_in_flink(
    groups: list[tuple[int, int]], count: int, expected: tuple[int, ...] | None
) -> None:
    vertices: list[dict[str, Any]] = []
    for number, (lower, upper) in enumerate(groups):
        bounds = {"lowerBound": lower, "parallelism": upper, "slotSharingGroup": f"g{number}"}
        if number == 0:
            what: dict[str, Any] = {"source": {"format": "rate"}}
        elif number == len(groups) - 1:
            what = {"inputs": [f"v{number - 1}"], "sink": {"format": "noop"}}
        else:
            what = {"inputs": [f"v{number - 1}"], "sql": f"SELECT * FROM v{number - 1}"}
        vertices.append({"name": f"v{number}", **bounds, **what})
    graph = parse_document({"name": "job", "type": "STREAMING", "vertices": vertices})
    bounds_of = rules.bounds_now(graph, initial_requirements("job", graph, None))
    found = rules.parallelism(graph, bounds_of, count)
    assert (None if found is None else tuple(found.values())) == expected


def test_what_is_back_in_force_is_the_most_and_may_be_below_the_lower_bound() -> None:
    graph = random_graph(random.Random(1), 1, batch=False)
    requirements = initial_requirements("job", graph, None)
    back = {vertex.id: 9 for vertex in graph.vertices}
    stateful = graph.by_name["counts"]
    found = rules.bounds_now(graph, requirements, back)
    assert found[stateful.id].upper == stateful.max_parallelism == 8
    assert found[graph.by_name["events"].id].upper == 9


@pytest.mark.parametrize(
    ("ended", "needed"), [((), (1, 6)), ((0,), (1, 3)), ((1,), (1, 6)), ((1, 2), (1, 6)), ((0, 1, 2), (1, 6))]
)
def test_queries_that_have_ended_need_no_slots_unless_all_have(
    ended: tuple[int, ...], needed: tuple[int, int]
) -> None:
    vertices: list[PlannedVertex] = []
    bounds: dict[str, Any] = {}
    for number, upper in enumerate((6, 3, 2)):
        vertices.append(PlannedVertex(f"in{number}", Role.SOURCE, "rate"))
        vertices.append(PlannedVertex(f"out{number}", Role.SINK, "noop", (f"in{number}",)))
        bounds |= {f"in{number}": {"upperBound": upper}, f"out{number}": {"upperBound": 1}}
    graph = grown_program({"name": "job", "script": "a.py", "bounds": bounds}, vertices)
    graph = replace(graph, ended=tuple(graph.by_name[f"out{number}"].id for number in ended))
    now = rules.bounds_now(graph, initial_requirements("job", graph, None))
    assert (rules.least_slots(graph, now), rules.most_slots(graph, now)) == needed
    assert (rules.parallelism(graph, now, 2) or {})[graph.by_name["in0"].id] == 2


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_the_scheduler_goes_by_the_rules(first: int) -> None:
    for seed in range(first, first + 100):
        graph = random_graph(random.Random(seed), seed, batch=seed % 2 == 0, seed=seed)
        requirements = initial_requirements("job", graph, None)
        bounds = rules.bounds_now(graph, requirements)
        assert slots.Demand.of(graph, requirements).minimal == rules.least_slots(graph, bounds)
        assert slots.Demand.of(graph, requirements).desired == rules.most_slots(graph, bounds)
        if seed % 2:
            for count in range(12):
                wanted = rules.parallelism(graph, bounds, count)
                assert slots.Demand.of(graph, requirements).parallelism(count) == wanted
        else:
            mine, its = rules.Layout(graph), layout_of(graph)
            assert mine.regions == tuple(region.vertices for region in its.regions.all)
            assert set(mine.datasets.values()) == set(its.datasets)

"""Which valves of a graph shuffle, which stay in a stage, and what is told of each vertex of a batch."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from app.documents.graph import parse_document
from app.driver.valves import marks
from app.driver.valves.insert import Label
from app.driver.valves.query_valves import Rows, Valves
from app.driver.valves.stages import Stage, vertex_batches
from app.model.analysis import Query, queries
from app.model.jobgraph import JobVertex
from app.model.statefulness import analysed


def graph() -> tuple[Query, dict[str, JobVertex]]:
    """Numbers are counted; the counts are named, and go to a sink."""
    asked = parse_document(
        {
            "name": "g",
            "type": "STREAMING",
            "vertices": [
                {"name": "numbers", "source": {"format": "rate"}, "parallelism": 8},
                {
                    "name": "counts",
                    "inputs": ["numbers"],
                    "sql": "SELECT value % 9 AS k, count(*) AS n FROM numbers GROUP BY value % 9",
                    "parallelism": 8,
                },
                {
                    "name": "named",
                    "inputs": ["counts"],
                    "sql": "SELECT k FROM counts",
                    "parallelism": 8,
                },
                {
                    "name": "store",
                    "inputs": ["named"],
                    "sink": {"format": "noop", "outputMode": "update"},
                    "parallelism": 8,
                },
            ],
        }
    )
    parsed = analysed(asked, {asked.by_name["counts"].id})
    (query,) = queries(parsed)
    return query, parsed.by_name


def at(names: dict[str, JobVertex], **numbers: int) -> dict[str, int]:
    return {vertex.id: numbers.get(name, 2) for name, vertex in names.items()}


def test_rows_that_are_forwarded_move_only_between_vertices_of_different_parallelism() -> None:
    front = Label("named", before="counts")
    assert front.setting({"counts": 2, "named": 2}) == (2, False)
    assert front.setting({"counts": 2, "named": 3}) == (3, True)
    assert front.setting({"counts": 3, "named": 2}) == (2, True)
    assert Label("named").setting({"counts": 2, "named": 3}) == (3, False)


def test_rows_that_are_to_be_spread_always_move() -> None:
    for label in (Label("named", before="counts", spreads=True), Label("named", spreads=True)):
        assert label.setting({"counts": 2, "named": 2}) == (2, True)


def valves_of(query: Query, *labels: Label | None) -> tuple[Any, list[tuple[int, bool]]]:
    """Valves in a line, from the sink on, and the settings that they get."""
    settings = [(0, False)] * len(labels)

    def setter(place: int) -> Callable[[int, bool], None]:
        return lambda number, shuffle: settings.__setitem__(place, (number, shuffle))

    valves: Any = Valves(MagicMock(spec=["_jsq"]), query)
    valves._all = [
        (label, SimpleNamespace(above=place - 1, set=setter(place))) for place, label in enumerate(labels)
    ]
    valves._fronts = valves._find_fronts()
    return valves, settings


def test_rows_of_a_source_are_spread_by_the_valve_behind_it_where_that_lets_them_pass() -> None:
    query, names = graph()
    numbers, named, store = (names[name].id for name in ("numbers", "named", "store"))
    # Of a document, and of a program, in which nothing else than the source has a vertex up to the sink.
    for front in (Label(named, before=numbers), Label(numbers, before=numbers)):
        valves, settings = valves_of(query, Label(store, before=numbers), front, Label(numbers))
        valves.spread({numbers})
        valves.set(at(names))
        assert settings == [(2, False), (2, True), (2, False)]
        assert valves.spread_at(at(names)) == {numbers: (Label(numbers).text, front.text)}
        valves.spread(())
        assert settings == [(2, False)] * 3
    # Here they move at these numbers whether they are spread or not.
    valves, settings = valves_of(query, Label(named, before=numbers), Label(numbers))
    valves.set(at(names, numbers=4))
    assert settings == [(2, True), (4, False)] and valves.spread_at(at(names, numbers=4)) == {}
    # And here they are moved by a document, by a program, or by a valve that goes by several vertices.
    for behind in (Label(named, before=numbers, spreads=True), None, Label(before=numbers), Label(store)):
        assert valves_of(query, behind, Label(numbers))[0].spread_at(at(names)) == {}


def test_a_stage_with_state_goes_on_as_far_as_rows_do_not_move() -> None:
    query, names = graph()
    numbers, counts, named, store = (names[name].id for name in ("numbers", "counts", "named", "store"))
    # From the sink on.
    labels = [Label(store, named), Label(named), Label(named, counts), Label(counts), Label(numbers)]
    valves: Any = Valves(MagicMock(spec=["_jsq"]), query)
    valves._all = [(label, SimpleNamespace(above=place - 1)) for place, label in enumerate(labels)]

    def stage(*shuffling: int, missing: int = -1) -> list[int]:
        left = [(place, SimpleNamespace(rdd=place, shuffles=place in shuffling)) for place in range(5)]
        valves._left_in = lambda _: ((), [each for each in left if each[0] != missing])
        return valves.stages_of_state(None).get(counts, [])

    assert stage() == [3, 2, 1, 0]
    assert stage(0) == [3, 2, 1]
    assert stage(2, 0) == [3]
    assert stage(missing=2) == [3, 1, 0]
    assert stage(missing=3) == []


def test_a_vertex_is_told_of_the_stages_that_its_valves_are_in() -> None:
    query, names = graph()
    numbers, counts, named, store = (names[name].id for name in ("numbers", "counts", "named", "store"))
    rows = [
        Rows(vertex_id, rdd, 2)
        for vertex_id, rdd in ((numbers, 1), (counts, 5), (named, 7), (named, 8), (store, 9))
    ]
    # A stage of a job that ran for something else comes first, and one that Spark has added stands in between.
    stages = [
        Stage(1, 9, 99, frozenset({100}), 99),
        Stage(2, 2, 10, frozenset({0, 1, 2})),
        Stage(3, 2, 20, frozenset({3, 5, 7}), 1_000),
        Stage(4, 4, 30, frozenset({8}), 70),
        Stage(5, 2, 40, frozenset({9, 10}), 60),
    ]
    found = vertex_batches(query, at(names), rows, stages, input_rows=1_000, output_rows=60)
    told = {each.vertex_id: (each.tasks, each.records_in, each.records_out, each.busy_ms) for each in found}
    assert told == {
        numbers: (2, 1_000, 1_000, 10),
        # It shares a stage with the front of what is behind it: each has half of what nobody has measured.
        counts: (2, 1_000, None, 10),
        named: (2, None, 60, 40),
        store: (2, 60, None, 40),
    }


def test_what_spark_left_out_of_a_batch_has_no_tasks() -> None:
    query, names = graph()
    found = vertex_batches(query, at(names), [], [], input_rows=0, output_rows=0)
    assert [each.tasks for each in found] == [None] * 4


def test_a_plan_may_be_deeper_than_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def streams(inputs: list[Any]) -> Any:
        return SimpleNamespace(isStreaming=lambda: True, inputs=inputs)

    plan = streams([])
    for _ in range(5_000):
        plan = streams([plan])
    monkeypatch.setattr(marks, "analysed", lambda frame: frame.plan)
    monkeypatch.setattr(marks, "plan_children", lambda node: list(node.inputs))
    monkeypatch.setattr(marks, "kind_of", lambda _: "Project")
    monkeypatch.setattr(marks, "with_children", lambda _jvm, _node, inputs: streams(inputs))
    monkeypatch.setattr(marks, "frame_in", lambda _session, found: found)
    built: Any = marks.with_valves(MagicMock(plan=plan), {}, {})
    depth = 0
    while built.inputs:
        (built,), depth = built.inputs, depth + 1
    assert depth == 5_000

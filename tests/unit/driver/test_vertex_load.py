"""What is told of the load of each vertex of a batch: records, work, bytes, state, by what Spark counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.driver.load import Stage
from app.driver.progress import SourceTold, StateTold
from app.driver.valves.operators import Operator, tree_of
from app.driver.valves.query_valves import Rows
from app.driver.valves.stages import Part, Told, shares_of_time, vertex_batches
from app.model.analysis import Query, queries
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from app.model.protocol import VertexBatch
from tests.program_graphs import grown_program

Plan = tuple[Any, ...]
"""A kind, its rows or figures or the id of a valve's RDD, and its inputs."""


def listed(plan: Plan) -> Iterator[list[Any]]:
    kind, said, *inputs = plan
    rdd_id = said if kind == "CoalesceExec" else -1
    if kind == "ShuffleExchangeExec" and isinstance(said, tuple):
        rdd_id, said = said
    figures = said if isinstance(said, dict) else {}
    if isinstance(said, int) and rdd_id != said:
        figures = {"shuffleRecordsWritten" if kind == "ShuffleExchangeExec" else "numOutputRows": said}
    yield [kind, len(inputs), rdd_id, kind.startswith("StateStoreSave"), figures]
    for each in inputs:
        yield from listed(each)


def operators(plan: Plan, *rows: Rows) -> list[Operator]:
    return tree_of(listed(plan), {each.rdd_id: each for each in rows})


def scan(rows: int) -> Plan:
    return ("MicroBatchScanExec", rows)


def project(of: Plan) -> Plan:
    return ("WholeStageCodegenExec", {}, ("ProjectExec", {}, ("InputAdapter", {}, of)))


def document(*vertices: dict[str, Any]) -> tuple[Query, dict[str, str]]:
    source = {"name": "numbers", "source": {"format": "rate"}}
    sink = {"name": "store", "inputs": [vertices[-1]["name"]], "sink": {"format": "noop"}}
    parsed = parse_document({"name": "g", "type": "STREAMING", "vertices": [source, *vertices, sink]})
    (query,) = queries(parsed)
    return query, {name: vertex.id for name, vertex in parsed.by_name.items()}


def sql(name: str, of: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputs": [of], "sql": text, **more}


def told(query: Query, rows: list[Rows], stages: list[Stage], **of: Any) -> dict[str, VertexBatch]:
    names = {vertex.id: vertex.name for vertex in query.flow}
    parallelism = dict.fromkeys(names, 2)
    found = vertex_batches(
        query, parallelism, rows, stages, input_rows=1_000, output_rows=None, told=Told(**of)
    )
    return {names[each.vertex_id]: each for each in found}


def flows(found: dict[str, VertexBatch]) -> dict[str, tuple[int | None, int | None]]:
    return {name: (each.records_in, each.records_out) for name, each in found.items()}


def test_a_filter_that_spark_has_moved_to_the_source_is_counted_where_the_graph_has_it() -> None:
    query, ids = document(
        sql("doubled", "numbers", "SELECT 2 * value AS value FROM numbers"),
        sql("few", "doubled", "SELECT * FROM doubled WHERE value < 9"),
    )
    fronts = [
        Rows(ids[name], at, 2, is_front=True) for at, name in enumerate(("doubled", "few", "store"), 10)
    ]
    own = [Rows(ids[name], at, 2) for at, name in enumerate(("numbers", "doubled", "few"), 20)]
    plan: Plan = ("CoalesceExec", 20, ("FilterExec", 40, scan(1_000)))
    for below, above in ((10, 21), (11, 22)):
        plan = ("CoalesceExec", above, project(("CoalesceExec", below, plan)))
    plan = ("CoalesceExec", 12, plan)
    rows = [own[0], fronts[0], own[1], fronts[1], own[2], fronts[2]]
    stage = Stage(1, 2, 100, frozenset(each.rdd_id for each in rows))
    found = told(query, rows, [stage], operators=operators(plan, *rows), changing={ids["few"]})
    assert flows(found) == {
        "numbers": (1_000, 1_000),
        "doubled": (1_000, 1_000),
        "few": (1_000, 40),
        "store": (40, None),
    }
    busy = [each.busy_ms or 0 for each in found.values()]
    assert sum(busy) == 100 and all(busy)


def test_what_runs_in_python_has_the_time_that_was_measured() -> None:
    query, ids = document(sql("slow", "numbers", "SELECT f(value) AS value FROM numbers"))
    source, front, own, sink = (
        Rows(ids["numbers"], 1, 2),
        Rows(ids["slow"], 2, 2, is_front=True),
        Rows(ids["slow"], 3, 2),
        Rows(ids["store"], 4, 2, is_front=True),
    )
    python = {"pythonNumRowsReceived": 1_000, "pythonProcessingTime": 900, "pythonTotalTime": 950}
    plan = (
        "CoalesceExec", 4,
        ("CoalesceExec", 3,
         ("ArrowEvalPythonExec", python,
          ("CoalesceExec", 2, ("CoalesceExec", 1, scan(1_000)))))
    )  # fmt: skip
    rows = [source, front, own, sink]
    stage = Stage(1, 2, 1_000, frozenset({1, 2, 3, 4}))
    found = told(query, rows, [stage], operators=operators(plan, *rows))
    assert {name: each.busy_ms for name, each in found.items()} == {
        # Of the rest, each operator that had all of the rows has a third: the scan, Python, the sink.
        "numbers": 33,
        "slow": 934,
        "store": 33,
    }


@pytest.mark.parametrize(
    ("busy_ms", "parts", "expected"),
    [
        (100, {"a": Part(), "b": Part()}, {"a": 50, "b": 50}),
        (100, {"a": Part(passes=30), "b": Part(passes=10)}, {"a": 75, "b": 25}),
        (100, {"a": Part(80, 1), "b": Part(0, 1)}, {"a": 90, "b": 10}),
        # Two that wait for each other.
        (100, {"a": Part(100, 5), "b": Part(100, 5)}, {"a": 50, "b": 50}),
        (7, {"a": Part(), "b": Part(), "c": Part()}, {"a": 2, "b": 3, "c": 2}),
        (0, {"a": Part(5), "b": Part()}, {"a": 0, "b": 0}),
    ],
)
def test_the_shares_of_a_stage_are_its_time(
    busy_ms: int, parts: dict[str, Part], expected: dict[str, int]
) -> None:
    assert shares_of_time(busy_ms, parts) == expected
    assert sum(expected.values()) == busy_ms


def test_a_source_whose_rows_are_spread_has_them_once() -> None:
    """It has two stages: what reads, and what works on its rows."""
    planned = (
        PlannedVertex("files", Role.SOURCE, "json"),
        PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("files",), True, 4),
        PlannedVertex("out", Role.SINK, "noop", ("counts",)),
    )
    (query,) = queries(grown_program({"name": "p", "script": "job.py", "artifacts": ["job.py"]}, planned))
    files, counts, out = (vertex.id for vertex in query.flow)
    rows = [
        Rows(files, 1, 1),
        Rows(files, 2, 4, shuffles=True, is_front=True),
        Rows(counts, 3, 4),
        Rows(out, 4, 4, is_front=True),
    ]
    spread = ("FilterExec", 80, ("ShuffleExchangeExec", (2, 100), ("CoalesceExec", 1, scan(100))))
    state = ("StateStoreSaveExec", {"numOutputRows": 7}, ("ShuffleExchangeExec", 80, spread))
    plan: Plan = ("CoalesceExec", 4, ("CoalesceExec", 3, state))
    stages = [
        Stage(1, 1, 40, frozenset({1}), 0, 100, 0, 500, 700, 40, 40),
        Stage(2, 4, 400, frozenset({2}), 100, 80, 0, 701, 600, 95, 110),
        Stage(3, 4, 60, frozenset({3, 4}), 80, 0, 0, 601, 0, 14, 16),
    ]
    found = told(query, rows, stages, operators=operators(plan, *rows))
    assert flows(found) == {"files": (100, 80), "counts": (80, 7), "out": (7, None)}
    source = found["files"]
    assert (source.tasks, source.busy_ms, source.longest_task_ms) == (4, 440, 110)
    assert (source.bytes_in, source.bytes_out, found["counts"].bytes_in) == (500, 600, 601)


def program() -> tuple[Query, list[str]]:
    """Two sources that are united and filtered, two operators with state, a sink."""
    planned = (
        PlannedVertex("a", Role.SOURCE, "rate"),
        PlannedVertex("b", Role.SOURCE, "rate"),
        PlannedVertex("firsts", Role.OPERATOR, "Deduplicate", ("a", "b"), True, 4),
        PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("firsts",), True, 4),
        PlannedVertex("out", Role.SINK, "noop", ("counts",)),
    )
    document = {"name": "p", "script": "job.py", "artifacts": ["job.py"]}
    (query,) = queries(grown_program(document, planned))
    return query, [vertex.id for vertex in query.flow]


def test_what_a_program_does_between_its_vertices_belongs_to_the_one_before() -> None:
    query, (a, b, firsts, counts, out) = program()
    rows = [
        Rows(a, 1, 2),
        Rows(b, 2, 2),
        Rows(firsts, 3, 2),
        Rows(counts, 4, 2),
        Rows(out, 5, 2, is_front=True),
    ]
    united = (
        "UnionExec", {},
        ("FilterExec", 70, ("CoalesceExec", 1, scan(100))),
        ("CoalesceExec", 2, ("FilterExec", 5, scan(10))),
    )  # fmt: skip
    deduplicated = (
        "CoalesceExec", 3,
        ("StateStoreSaveExec", {"numOutputRows": 60}, ("ShuffleExchangeExec", 74, ("FilterExec", 74, united))),
    )  # fmt: skip
    partial = ("HashAggregateExec", 8, ("FilterExec", 50, deduplicated))
    counted = (
        "CoalesceExec", 4,
        ("HashAggregateExec", 4, ("StateStoreSaveExec", {"numOutputRows": 4}, ("ShuffleExchangeExec", 8, partial))),
    )  # fmt: skip
    plan: Plan = ("CoalesceExec", 5, ("FilterExec", 3, counted))
    stages = [
        Stage(1, 4, 10, frozenset({1, 2}), bytes_in=500, bytes_out=0, median_task_ms=2, longest_task_ms=4),
        Stage(2, 2, 60, frozenset({3}), 74, 8, 0, 740, 80, 25, 35),
        Stage(3, 2, 30, frozenset({4, 5}), 8, 0, 0, 80, 0, 14, 16),
    ]
    found = told(
        query,
        rows,
        stages,
        operators=operators(plan, *rows),
        sources={a: SourceTold(100, 7), b: SourceTold(10)},
        states=[StateTold(4, 400), StateTold(900, 9_000)],
    )
    assert flows(found) == {
        "a": (100, 70),
        "b": (10, 5),
        "firsts": (74, 50),
        "counts": (50, 3),
        "out": (3, None),
    }
    assert [(each.state_rows, each.state_bytes) for each in found.values()] == [
        (None, None), (None, None), (900, 9_000), (4, 400), (None, None)
    ]  # fmt: skip
    assert [each.backlog_rows for each in found.values()] == [7, None, None, None, None]
    assert [(each.bytes_in, each.bytes_out) for each in found.values()] == [
        # Nobody knows which of the two has read them.
        (None, None), (None, None), (740, 80), (80, None), (None, None)
    ]  # fmt: skip
    assert [(each.median_task_ms, each.longest_task_ms) for each in found.values()] == [
        (2, 4), (2, 4), (25, 35), (14, 16), (14, 16)
    ]  # fmt: skip
    assert [sum(each.busy_ms or 0 for each in list(found.values())[:2]), found["firsts"].busy_ms] == [10, 60]


def test_state_of_operators_that_nobody_can_tell_apart_is_not_told() -> None:
    query, (_, _, firsts, _, _) = program()
    found = told(query, [Rows(firsts, 3, 2)], [], operators=[], states=[StateTold(4, 400), StateTold(9, 9)])
    assert {each.state_rows for each in found.values()} == {None}


def test_rows_that_nobody_has_counted_are_not_told() -> None:
    query, ids = document(sql("few", "numbers", "SELECT * FROM numbers WHERE value < 9"))
    rows = [Rows(ids["numbers"], 1, 2), Rows(ids["few"], 2, 2)]
    plan: Plan = ("CoalesceExec", 2, ("MapPartitionsExec", {}, ("CoalesceExec", 1, scan(10))))
    found = told(query, rows, [], operators=operators(plan, *rows), changing={ids["few"]})
    assert flows(found)["few"] == (10, None)

"""What is told of the load of each vertex of a batch: records, work, bytes, state, by what Spark counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.driver.load import Stage, StageTasks
from app.driver.progress import SourceTold, StateTold
from app.driver.valves.operators import Operator, tree_of
from app.driver.valves.query_valves import Rows
from app.driver.valves.stages import Told, vertex_batches
from app.driver.valves.times import Part, shares_of_time
from app.model.analysis import Query, queries
from app.model.jobgraph import Role
from app.model.measured import VertexBatch
from app.model.planned import PlannedVertex
from tests.program_graphs import grown_program

Plan = tuple[Any, ...]
"""A kind, its rows or figures or the id of a valve's RDD, and its inputs. Rows or figures in a list are by task."""


def listed(plan: Plan) -> Iterator[list[Any]]:
    kind, said, *inputs = plan
    rdd_id = said if kind == "CoalesceExec" else -1
    if kind == "ShuffleExchangeExec" and isinstance(said, tuple):
        rdd_id, said = said
    figures = said if isinstance(said, dict) else {}
    if isinstance(said, int | list) and rdd_id != said:
        figures = {"shuffleRecordsWritten" if kind == "ShuffleExchangeExec" else "numOutputRows": said}
    by_task = {name: value for name, value in figures.items() if isinstance(value, list)}
    totals = {name: sum(value) if name in by_task else value for name, value in figures.items()}
    yield [kind, len(inputs), rdd_id, kind.startswith("StateStoreSave"), totals, by_task]
    for each in inputs:
        yield from listed(each)


def operators(plan: Plan, *rows: Rows) -> list[Operator]:
    return tree_of(listed(plan), {each.rdd_id: each for each in rows})


def scan(rows: int | list[int]) -> Plan:
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
        Stage(1, 1, 40, frozenset({1}), 0, 100, 0, 500, 700, StageTasks([40], [100], [100])),
        Stage(
            2,
            4,
            400,
            frozenset({2}),
            100,
            80,
            0,
            701,
            600,
            StageTasks([95, 110, 95, 100], [25] * 4, [20] * 4),
        ),
        Stage(3, 4, 60, frozenset({3, 4}), 80, 0, 0, 601, 0, StageTasks([14, 16, 14, 16], [20] * 4)),
    ]
    found = told(query, rows, stages, operators=operators(plan, *rows))
    assert flows(found) == {"files": (100, 80), "counts": (80, 7), "out": (7, None)}
    source = found["files"]
    assert (source.tasks, source.busy_ms, source.longest_task_ms) == (4, 440, 110)
    assert (source.bytes_in, source.bytes_out, found["counts"].bytes_in) == (500, 600, 601)
    # One task has read them all, and four have worked on them.
    assert source.by_task is not None
    assert (source.by_task.records_in, source.by_task.records_out) == ((100, 0, 0, 0), (20, 20, 20, 20))
    assert source.by_task.busy_ms == (135, 110, 95, 100)


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
        Stage(1, 4, 10, frozenset({1, 2}), bytes_in=500, bytes_out=0, by_task=StageTasks([2, 1, 4, 3])),
        Stage(2, 2, 60, frozenset({3}), 74, 8, 0, 740, 80, StageTasks([35, 25])),
        Stage(3, 2, 30, frozenset({4, 5}), 8, 0, 0, 80, 0, StageTasks([14, 16])),
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


def by_task(found: dict[str, VertexBatch], name: str) -> dict[str, tuple[int, ...]]:
    return {key: getattr(each.by_task, name) for key, each in found.items()}


def test_each_task_of_a_vertex_has_what_it_did_itself() -> None:
    query, ids = document(sql("slow", "numbers", "SELECT f(value) AS value FROM numbers WHERE value > 0"))
    rows = [Rows(ids["numbers"], 1, 3), Rows(ids["slow"], 2, 3), Rows(ids["store"], 3, 3, is_front=True)]
    python = {"pythonNumRowsReceived": [90, 0, 6], "pythonProcessingTime": [450, 0, 30]}
    slow: Plan = (
        "ArrowEvalPythonExec",
        python,
        ("FilterExec", [90, 0, 6], ("CoalesceExec", 1, scan([900, 90, 10]))),
    )
    plan = ("CoalesceExec", 3, ("CoalesceExec", 2, slow))
    tasks = StageTasks([1_000, 9, 50], [900, 90, 10], [0, 0, 0], [9_000, 900, 100], [0, 0, 0])
    stage = Stage(1, 3, 1_059, frozenset({1, 2, 3}), bytes_in=10_000, by_task=tasks)
    found = told(query, rows, [stage], operators=operators(plan, *rows), changing={ids["slow"]})
    assert by_task(found, "records_in") == {
        "numbers": (900, 90, 10),
        "slow": (900, 90, 10),
        "store": (90, 0, 6),
    }
    assert by_task(found, "records_out") == {"numbers": (900, 90, 10), "slow": (90, 0, 6), "store": ()}
    assert by_task(found, "bytes_in")["numbers"] == (9_000, 900, 100)
    times = by_task(found, "busy_ms")
    # Each task is split by its own rows: the second one had nothing for Python to do.
    assert [sum(each) for each in zip(*times.values(), strict=True)] == [1_000, 9, 50]
    assert times["slow"][0] > 450 and times["slow"][1] == 0 and times["numbers"][1] == 9
    assert {name: each.busy_ms for name, each in found.items()} == {
        name: sum(each) for name, each in times.items()
    }


def test_behind_an_exchange_a_task_has_the_rows_that_came_through_it() -> None:
    query, ids = document(
        sql("counts", "numbers", "SELECT value, count(*) FROM numbers GROUP BY value", stateful=True)
    )
    rows = [Rows(ids["numbers"], 1, 1), Rows(ids["counts"], 2, 2), Rows(ids["store"], 3, 2, is_front=True)]
    exchange = {"shuffleRecordsWritten": 8, "recordsRead": [7, 1]}
    shuffled: Plan = (
        "ShuffleExchangeExec",
        exchange,
        ("HashAggregateExec", [8], ("CoalesceExec", 1, scan([100]))),
    )
    state: Plan = ("StateStoreSaveExec", {"numOutputRows": [7, 1]}, shuffled)
    plan = ("CoalesceExec", 3, ("CoalesceExec", 2, ("HashAggregateExec", [7, 1], state)))
    stages = [
        Stage(1, 1, 40, frozenset({1}), 0, 8, by_task=StageTasks([40], [100], [8], [0], [64])),
        Stage(
            2, 2, 80, frozenset({2, 3}), 8, 0, 0, 64, 0, StageTasks([70, 10], [7, 1], [0, 0], [56, 8], [0, 0])
        ),
    ]
    found = told(query, rows, stages, operators=operators(plan, *rows), changing={ids["counts"]})
    assert flows(found)["counts"] == (100, 8)
    assert by_task(found, "records_in") == {"numbers": (100,), "counts": (7, 1), "store": (7, 1)}
    assert by_task(found, "records_out") == {"numbers": (100,), "counts": (7, 1), "store": ()}
    assert by_task(found, "bytes_in") == {"numbers": (0,), "counts": (56, 8), "store": ()}


def test_sources_that_are_united_have_a_part_of_the_tasks_each() -> None:
    query, (a, b, firsts, *_) = program()
    rows = [Rows(a, 1, 1), Rows(b, 2, 2), Rows(firsts, 3, 2)]
    united: Plan = (
        "UnionExec", {}, ("CoalesceExec", 1, scan([5, 0, 0])), ("CoalesceExec", 2, scan([0, 70, 3]))
    )  # fmt: skip
    state = ("StateStoreSaveExec", {"numOutputRows": [60, 6]})
    plan = ("CoalesceExec", 3, (*state, ("ShuffleExchangeExec", {"shuffleRecordsWritten": 78}, united)))
    stages = [
        Stage(1, 3, 60, frozenset({1, 2}), by_task=StageTasks([10, 30, 20])),
        Stage(2, 2, 50, frozenset({3}), by_task=StageTasks([25, 25], [70, 8])),
    ]
    found = told(query, rows, stages, operators=operators(plan, *rows))
    assert by_task({"a": found["a"]}, "records_in") == {"a": (5,)}
    assert sorted(found["b"].by_task.records_in if found["b"].by_task else ()) == [3, 70]
    assert (found["a"].busy_ms, found["b"].busy_ms) == (10, 50)


def test_of_tasks_that_were_not_noted_nothing_is_told() -> None:
    query, ids = document(sql("few", "numbers", "SELECT * FROM numbers WHERE value < 9"))
    rows = [Rows(ids["numbers"], 1, 2), Rows(ids["few"], 2, 2)]
    found = told(query, rows, [Stage(1, 2, 10, frozenset({1, 2}))])
    assert {each.by_task for each in found.values()} == {None}
    assert {each.longest_task_ms for each in found.values()} == {None}


def test_a_vertex_behind_an_exchange_gives_in_its_own_tasks() -> None:
    """One task reads, and four work and store: what the one has given is no figure of theirs."""
    query, ids = document(sql("work", "numbers", "SELECT f(value) AS value FROM numbers"))
    rows = [
        Rows(ids["numbers"], 1, 1),
        Rows(ids["work"], 2, 4, shuffles=True, is_front=True),
        Rows(ids["work"], 3, 4),
        Rows(ids["store"], 4, 4, is_front=True),
    ]
    exchange: Plan = (
        "ShuffleExchangeExec", (2, {"shuffleRecordsWritten": 100, "recordsRead": [40, 30, 20, 10]}),
        ("CoalesceExec", 1, scan([100])),
    )  # fmt: skip
    plan = ("CoalesceExec", 4, ("CoalesceExec", 3, ("ProjectExec", {}, exchange)))
    stages = [
        Stage(1, 1, 40, frozenset({1}), 0, 100, by_task=StageTasks([40], [100], [100], [0], [640])),
        Stage(2, 4, 80, frozenset({2, 3, 4}), 100, by_task=StageTasks([30, 20, 20, 10], [40, 30, 20, 10])),
    ]
    found = told(query, rows, stages, operators=operators(plan, *rows))
    assert flows(found) == {"numbers": (100, 100), "work": (100, 100), "store": (100, None)}
    each = (40, 30, 20, 10)
    assert by_task(found, "records_in") == {"numbers": (100,), "work": each, "store": each}
    assert by_task(found, "records_out") == {"numbers": (100,), "work": each, "store": ()}

"""What valves are given by the shape of a plan, and what vertices are called."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from app.driver.valves.batches import Faults, faults
from app.driver.valves.insert import Label, has_narrow_end, own_stage, spreadable, tasks, width
from app.driver.valves.query_valves import Place, Rows, matched, removed
from app.driver.valves.shape import Node, Part, free_name, part_of, sink_name, source_name, word_of
from app.driver.valves.spark import WriterFacts
from app.driver.valves.stages import Stage, vertex_batches
from app.model.analysis import queries
from app.model.grapherrors import name_fault
from app.model.jobgraph import Role
from app.model.measured import VertexBatch
from app.model.planned import PlannedVertex
from tests.program_graphs import grown_program


@pytest.mark.parametrize(
    ("kind", "streams", "mode", "expected"),
    [
        ("StreamingRelation", (), "append", Part.SOURCE),
        ("SubqueryAlias", (True,), "append", Part.PASS),
        ("Aggregate", (True,), "update", Part.STATE),
        ("TransformWithStateInPySpark", (True, False), "update", Part.STATE),
        ("Join", (True, True), "append", Part.STATE),
        ("Join", (True, False), "append", Part.MAYBE),
        ("GlobalLimit", (True,), "append", Part.STATE),
        ("GlobalLimit", (True,), "complete", Part.ONE),
        ("RepartitionByExpression", (True,), "append", Part.SHUFFLE),
        ("FlatMapGroupsInPandas", (True,), "append", Part.SHUFFLE),
        ("Union", (True, True), "append", Part.UNION),
    ],
)
def test_parts(kind: str, streams: tuple[bool, ...], mode: str, expected: Part) -> None:
    assert part_of(None, kind, streams, mode) is expected


def test_parts_that_depend_on_more() -> None:
    def of(kind: str, what: str, answer: object) -> Part:
        return part_of(SimpleNamespace(**{what: lambda: answer}), kind, [True], "complete")

    assert of("Sort", "global", True) is Part.SHUFFLE
    assert of("Sort", "global", False) is Part.PASS, "within partitions"
    assert of("Repartition", "shuffle", True) is Part.SHUFFLE
    assert of("Repartition", "shuffle", False) is Part.NARROW
    for empty, part in ((True, Part.PASS), (False, Part.MAYBE)):
        assert of("Filter", "subqueries", SimpleNamespace(isEmpty=lambda empty=empty: empty)) is part


@pytest.mark.parametrize(
    ("kind", "keys", "word"),
    [
        ("Aggregate", "List(session_window#7, key#2L)", "sessions"),
        ("Aggregate", "List(window#7)", "aggregate"),
        ("GlobalLimit", "", "limit"),
        ("Deduplicate", "", "deduplicate"),
        ("Join", "", "join"),
    ],
)
def test_words(kind: str, keys: str, word: str) -> None:
    grouped = SimpleNamespace(groupingExpressions=lambda: SimpleNamespace(toString=lambda: keys))
    assert word_of(grouped, kind) == word


def node(part: Part, *children: Node, number: int = 0) -> Node:
    return Node(part.name, part, part.name, children, number)


SOURCE, OTHER = node(Part.SOURCE), node(Part.SOURCE)
NAMES = {id(SOURCE): "a", id(OTHER): "b"}
UNION = node(Part.UNION, SOURCE, node(Part.PASS, OTHER))


def sink(root: Node) -> Label:
    own = own_stage(root)
    before = None if own is not None else width(root, NAMES)
    return Label("out", before=before, is_capped=has_narrow_end(root))


@pytest.mark.parametrize(
    ("root", "numbers", "expected"),
    [
        # Equal to the stage before: no shuffle.
        (SOURCE, (3, 0, 3), (3, False)),
        (SOURCE, (3, 0, 2), (2, True)),
        (SOURCE, (3, 0, 5), (5, True)),
        # Two in one stage: its tasks add up, or go together where all are alike.
        (UNION, (3, 2, 5), (5, False)),
        (UNION, (3, 2, 3), (3, True)),
        (UNION, (3, 3, 3), (3, False)),
        # Spark shuffles for the sink alone.
        (node(Part.PASS, node(Part.SHUFFLE, SOURCE)), (3, 0, 2), (2, False)),
        (node(Part.PASS, node(Part.ONE, SOURCE)), (3, 0, 2), (2, False)),
        # The program's own coalesce(2) is kept, and it is no more than that.
        (node(Part.NARROW, SOURCE, number=2), (3, 0, 4), (4, False)),
        (node(Part.NARROW, SOURCE, number=2), (3, 0, 1), (1, True)),
        (node(Part.NARROW, SOURCE, number=2), (1, 0, 1), (1, False)),
    ],
)
def test_the_valve_of_a_sink(root: Node, numbers: tuple[int, int, int], expected: tuple[int, bool]) -> None:
    a, b, out = numbers
    label = Label.of(sink(root).text)
    assert label.setting({"a": a, "b": b, "out": out}) == expected


@pytest.mark.parametrize("by", [Part.SHUFFLE, Part.NARROW, Part.ONE])
def test_rows_of_a_source_can_be_spread_unless_the_program_or_spark_sends_them_somewhere(by: Part) -> None:
    assert spreadable(UNION) == {id(SOURCE), id(OTHER)}
    assert spreadable(node(Part.STATE, SOURCE)) == {id(SOURCE)}
    assert spreadable(node(Part.PASS, node(by, SOURCE))) == set()
    # The sink has a valve.
    assert spreadable(SOURCE) == set()


def test_the_other_valves() -> None:
    assert Label("a").setting({"a": 3}) == (3, False)
    follower = node(Part.MAYBE, UNION)
    assert Label(before=width(follower, NAMES)).setting({"a": 3, "b": 2}) == (5, False)
    shuffled = node(Part.SHUFFLE, SOURCE, number=8)
    assert tasks(width(shuffled, NAMES), {"a": 3}) == 3
    assert tasks(width(node(Part.SHUFFLE, SOURCE, OTHER), NAMES), {"a": 3, "b": 2}) == 3


@pytest.mark.parametrize(
    ("form", "options", "name"),
    [
        ("kafka", {"subscribe": "words", "kafka.bootstrap.servers": "h:1"}, "words"),
        ("json", {"path": "file:///data/in/events"}, "events"),
        ("json", {"path": "s3a://bucket/events/2026-*/*.json"}, "events"),
        ("json", {"path": "/"}, "json"),
        ("socket", {"host": "localhost", "port": "9999"}, "localhost:9999"),
        ("delta", {"table": "sales.orders"}, "sales.orders"),
        ("rate", {"rowspersecond": "5"}, "rate"),
    ],
)
def test_names_of_sources(form: str, options: dict[str, str], name: str) -> None:
    assert source_name(form, options) == name


def test_names_of_sinks() -> None:
    assert sink_name(WriterFacts("parquet", query_name="counts", path="/data/out")) == "counts"
    assert sink_name(WriterFacts("parquet", table="db.counts", path="/data/out")) == "db.counts"
    assert sink_name(WriterFacts("parquet", path="/data/out/")) == "out"
    assert sink_name(WriterFacts("kafka", options={"topic": "counts"})) == "counts"
    assert sink_name(WriterFacts(None, foreach="foreachBatch")) == "foreachBatch"


def test_names_are_free_and_allowed() -> None:
    taken = {"rate"}
    assert [free_name("rate", taken) for _ in range(2)] == ["rate 2", "rate 3"]
    for wanted in ("a" * 500, "0" * 32, "a\nb", "  ", ""):
        for _ in range(2):
            name = free_name(wanted, taken)
            assert name_fault(name) is None
            assert name != "0" * 32


def test_tasks_of_a_vertex_are_those_of_the_stages_of_its_rows() -> None:
    program = {"name": "p", "script": "job.py", "artifacts": ["job.py"]}
    planned = (
        PlannedVertex("a", Role.SOURCE, "rate"),
        PlannedVertex("b", Role.SOURCE, "rate"),
        PlannedVertex("joined", Role.OPERATOR, "Join", ("a", "b"), True, 4),
        PlannedVertex("out", Role.SINK, "noop", ("joined",)),
    )
    (query,) = queries(grown_program(program, planned))
    a, b, joined, out = (vertex.id for vertex in query.flow)
    rows = [Rows(a, 1, 3), Rows(b, 2, 3), Rows(joined, 5, 2), Rows(out, 6, 2)]
    stages = [
        Stage(4, 3, 100, frozenset({1}), 0, 7),
        Stage(5, 3, 50, frozenset({2}), 0, 6),
        # What looks at the first rows only has one task.
        Stage(6, 1, 10, frozenset({5, 6}), 4),
        Stage(7, 2, 20, frozenset({5, 6}), 13),
    ]
    numbers = dict.fromkeys((a, b, joined, out), 2)
    found = vertex_batches(query, numbers, rows, stages, input_rows=13, output_rows=9)
    assert [(each.tasks, each.records_in, each.records_out, each.busy_ms) for each in found] == [
        (3, None, 7, 100),
        (3, None, 6, 50),
        (2, 4, None, 15),
        (2, 9, None, 15),
    ]
    # Two sources that are united in one stage have a part of its tasks each.
    united = [Stage(4, 6, 100, frozenset({1, 2}), 0, 13), *stages[2:]]
    found = vertex_batches(query, numbers, rows, united, input_rows=13, output_rows=9)
    assert [(each.tasks, each.records_out) for each in found] == [(3, None), (3, None), (2, None), (2, None)]


def test_a_valve_that_has_lost_its_label_is_known_by_its_place() -> None:
    planned = [("sink", 2), ("aggregate", 3), ("left", 4), ("", 0), ("right", 4)]
    assert matched(planned, [("", 2), ("", 3), ("", 4), ("", 8), ("", 4)]) == [0, 1, 2, 3, 4]
    assert matched(planned, [("sink", 2), ("", 3), ("", 4), ("", 8), ("right", 4)]) == [0, 1, 2, 3, 4]
    # One is missing, and it may be either of two.
    assert matched(planned, [("", 2), ("aggregate", 3), ("", 4)]) == [0, 1, None]
    assert matched(planned, [("", 2), ("aggregate", 3), ("right", 4)]) == [0, 1, 4]
    # What is there has another number.
    assert matched(planned[:2], [("", 2), ("", 4)]) == [None, None]
    assert matched([], []) == []


def test_a_valve_that_is_missing_between_others_was_removed() -> None:
    # The sink, an aggregate behind it, and its source.
    chain = [Place(-1, 2), Place(0, 3, holds_state=True), Place(1, 4)]
    spread = dict.fromkeys(range(3), True)

    def gone(*at: int) -> list[int]:
        left = {one: shuffles for one, shuffles in spread.items() if one not in at}
        return removed(chain, left)

    assert gone() == []
    assert gone(1) == [1]
    assert gone(0) == [0], "nothing can be missing behind the sink for want of rows"
    assert gone(2) == [2]
    assert gone(0, 1, 2) == []
    # Two sources, of which one has no rows.
    assert removed([Place(-1, 2), Place(0, 2), Place(0, 2)], {0: True, 1: False}) == []
    forked = [Place(-1, 2), Place(0, 3, True), Place(1, 4), Place(1, 4)]
    assert removed(forked, {0: True, 2: False}) == [1]


def test_a_valve_is_replaced_by_its_neighbour() -> None:
    # Spark has merged all of them, and the number is the same.
    alike = [Place(-1, 2), Place(0, 2), Place(1, 2), Place(2, 2)]
    assert removed(alike, {0: False}) == []
    other = [Place(-1, 3), Place(0, 3), Place(1, 3), Place(2, 1)]
    assert removed(other, {2: True}) == [3]
    # Before an aggregate Spark shuffles by itself.
    stateful = [Place(-1, 2), Place(0, 3, holds_state=True), Place(1, 3)]
    assert removed(stateful, {0: True, 2: False}) == [1]


def test_which_tasks_are_a_fault() -> None:
    program = {"name": "p", "script": "job.py", "artifacts": ["job.py"]}
    planned = (PlannedVertex("a", Role.SOURCE, "rate"), PlannedVertex("out", Role.SINK, "noop", ("a",)))
    (query,) = queries(grown_program(program, planned))
    a, out = (vertex.id for vertex in query.flow)
    numbers = {a: 4, out: 2}

    def told(source: int, sink: int, *gone: str, tasks: int = 2) -> Faults:
        rows = {"a": Rows(a, 1, source), "out": Rows(out, 2, sink, shuffles=True)}
        return faults(query, numbers, rows, gone, (VertexBatch(out, 2, tasks),))

    assert told(4, 2) == {}
    assert told(3, 2) == {}, "the source has three splits"
    assert told(4, 2, tasks=1) == {}, "the job reduces the tasks by itself"
    of_source = {a: "Vertex a runs as 5 task(s) instead of 4, which its valve says."}
    of_sink = {out: "Vertex out runs as 1 task(s) instead of 2, which its valve says."}
    assert told(5, 2) == of_source
    assert told(4, 1) == of_sink
    assert told(5, 1) == {**of_source, **of_sink}
    assert told(4, 2, tasks=3) == {out: "Vertex out runs as 3 task(s) instead of 2, which its valve says."}
    removed_one = {a: "Vertex a does not run as 4 task(s): Spark has removed its valve from the plan."}
    assert told(5, 1, a) == {**removed_one, **of_sink}

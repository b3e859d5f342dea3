"""Which nodes of a streaming plan are vertices, what these are called, and where Spark begins a stage by itself.

Spark's plan is copied into plain values, which takes one walk; all else is worked out on these.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import count
from typing import Any, Final

from pyspark.sql import DataFrame

from app.driver.scala import plan_children
from app.driver.valves.spark import WriterFacts, analysed, kind_of, lower_options
from app.model.grapherrors import MAX_NAME_LENGTH
from app.model.ids import is_id
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex

STATE: Final[Mapping[str, str]] = {
    "Aggregate": "aggregate",
    "Deduplicate": "deduplicate",
    "DeduplicateWithinWatermark": "deduplicate",
    "Distinct": "distinct",
    "Except": "except",
    "FlatMapGroupsInPandasWithState": "flat-map-groups",
    "FlatMapGroupsWithState": "flat-map-groups",
    "Intersect": "intersect",
    "TransformWithState": "transform-with-state",
    "TransformWithStateInPySpark": "transform-with-state",
}
"""Operators that keep state over a stream, and what a vertex of such an operator is called."""

_SHUFFLES: Final = frozenset(
    {
        "CoGroup", "FlatMapCoGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapGroupsInArrow",
        "FlatMapGroupsInPandas", "MapGroups", "RebalancePartitions", "RepartitionByExpression",
    }
)  # fmt: skip
"""Operators before which Spark shuffles, without keeping state."""

REFERENCES: Final = frozenset({"CTERelationRef", "UnionLoopRef"})
"""Ends of a plan that repeat another part of it."""

AS_MANY: Final = frozenset(
    {
        "AppendColumns", "CollectMetrics", "DeserializeToObject", "EventTimeWatermark", "MapElements",
        "Project", "ResolvedHint", "SerializeFromObject", "Sort", "StreamingDataSourceV2Relation",
        "StreamingDataSourceV2ScanRelation", "StreamingExecutionRelation", "SubqueryAlias", "Union", "View",
        "Window",
    }
)  # fmt: skip
"""Logical operators that give a row for each that they get, and sources."""

_TOPICS: Final = (
    "subscribe", "topic", "subscribepattern", "assign", "kafka.topic", "streamname", "subscription",
)  # fmt: skip
_LETTER: Final = re.compile(r"[^\W_]")
_ROOM: Final = 10
"""Characters of a name that are kept for the number of one that is taken."""


class Part(Enum):
    """What a streaming node is to its query."""

    SOURCE = auto()
    STATE = auto()
    SHUFFLE = auto()
    """Spark shuffles before it."""
    MAYBE = auto()
    """Spark may shuffle before it: only the physical plan tells."""
    NARROW = auto()
    """The program reduces the number of tasks by itself, without a shuffle."""
    ONE = auto()
    """Spark brings all rows to one task."""
    UNION = auto()
    PASS = auto()


VERTEX: Final = frozenset({Part.SOURCE, Part.STATE})


@dataclass(frozen=True, slots=True)
class Node:
    """A streaming node. ``word``: what a vertex of it is called. ``children``: those of its inputs that stream.
    ``number``: the tasks that the program asks for with a `Repartition`. ``spark``: the node itself, and
    ``spark_children`` all of its inputs."""

    kind: str
    part: Part
    word: str
    children: tuple[Node, ...]
    number: int = 0
    spark: Any = None
    spark_children: tuple[Any, ...] = ()


def read_tree(frame: DataFrame, output_mode: str) -> Node:
    """The streaming part of the plan of ``frame``."""
    return _read(analysed(frame), output_mode)


def _read(spark: Any, output_mode: str) -> Node:
    kind, inputs = kind_of(spark), plan_children(spark)
    streams = [bool(each.isStreaming()) for each in inputs]
    return Node(
        kind=kind,
        part=part_of(spark, kind, streams, output_mode),
        word=word_of(spark, kind),
        children=tuple(
            _read(each, output_mode) for each, flows in zip(inputs, streams, strict=True) if flows
        ),
        number=int(spark.numPartitions()) if kind == "Repartition" else 0,
        spark=spark,
        spark_children=tuple(inputs),
    )


def part_of(spark: Any, kind: str, streams: Sequence[bool], output_mode: str) -> Part:
    """What a node of Spark's plan is. ``streams``: which of its inputs do."""
    if not streams:
        return Part.SOURCE
    if kind in STATE or (kind == "GlobalLimit" and output_mode == "append"):
        return Part.STATE
    if kind.endswith("Join"):
        return Part.STATE if len(streams) > 1 and all(streams) else Part.MAYBE
    if kind == "Union":
        return Part.UNION
    if kind == "Repartition":
        return Part.SHUFFLE if spark.shuffle() else Part.NARROW
    if kind == "GlobalLimit":
        return Part.ONE
    if kind in _SHUFFLES or (kind == "Sort" and getattr(spark, "global")()):
        return Part.SHUFFLE
    return Part.MAYBE if kind in ("Filter", "Project") and not spark.subqueries().isEmpty() else Part.PASS


def word_of(spark: Any, kind: str) -> str:
    if kind == "Aggregate" and "session_window" in str(spark.groupingExpressions().toString()):
        return "sessions"
    if kind == "GlobalLimit":
        return "limit"
    return STATE.get(kind, "join" if kind.endswith("Join") else kind)


def walk(node: Node) -> Iterator[Node]:
    """``node`` and all below it, inputs first."""
    for child in node.children:
        yield from walk(child)
    yield node


def vertices_below(node: Node) -> list[Node]:
    """The vertices that ``node`` gets its rows from, through nothing but other operators."""
    found: list[Node] = []
    for child in node.children:
        found += [child] if child.part in VERTEX else vertices_below(child)
    return found


# ---- sources


def _source_options(leaf: Any, jvm: Any) -> tuple[str, dict[str, str]]:
    """The format of a streaming source, and its options with lower-case names."""
    kind = kind_of(leaf)
    if kind == "StreamingRelationV2":
        options = {
            str(each.getKey()).lower(): str(each.getValue()) for each in leaf.extraOptions().entrySet()
        }
        identifier = leaf.identifier()
        if identifier.isDefined():
            options.setdefault("table", str(identifier.get().name()))
        return str(leaf.sourceName()), options
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        options = lower_options(jvm, source.options())
        table = source.catalogTable()
        if table.isDefined():
            options.setdefault("table", str(table.get().identifier().table()))
        return str(source.className()), options
    return kind, {}


def options_of_sources(frame: DataFrame) -> list[tuple[str, str]]:
    """The options of the streaming sources of ``frame``, with lower-case names."""
    jvm: Any = frame.sparkSession._jvm
    return [each for leaf in _sources(frame) for each in _source_options(leaf, jvm)[1].items()]


def count_sources(frame: DataFrame) -> int:
    """How many sources Spark notes the offsets of: one that is read twice is two."""
    return sum(kind_of(leaf) not in REFERENCES for leaf in _sources(frame))


def _sources(frame: DataFrame) -> Iterator[Any]:
    waiting = [analysed(frame)]
    while waiting:
        node = waiting.pop()
        inputs = plan_children(node)
        waiting += (each for each in inputs if each.isStreaming())
        if not inputs:
            yield node


def read_query(
    frame: DataFrame, facts: WriterFacts, taken: Collection[str], state_partitions: int
) -> tuple[PlannedVertex, ...]:
    """The vertices of the query that writes ``frame``, inputs first, the sink last.

    ``taken``: names of the program's other queries. ``state_partitions``: how many partitions its state has.
    """
    root = read_tree(frame, facts.output_mode)
    jvm: Any = frame.sparkSession._jvm
    names = set(taken)
    found: list[PlannedVertex] = []
    by_node: dict[int, str] = {}
    for node in walk(root):
        if node.part is Part.SOURCE:
            form, options = _source_options(node.spark, jvm)
            role, operator, name = Role.SOURCE, form, source_name(form, options)
        elif node.part is Part.STATE:
            role, operator, name = Role.OPERATOR, node.kind, node.word
        else:
            continue
        by_node[id(node)] = name = free_name(name, names)
        inputs = _names(vertices_below(node), by_node)
        found.append(PlannedVertex(name, role, operator, inputs, role is Role.OPERATOR))
    inputs = _names([root] if root.part in VERTEX else vertices_below(root), by_node)
    operator = facts.foreach or str(facts.format)
    found.append(PlannedVertex(free_name(sink_name(facts), names), Role.SINK, operator, inputs))
    return with_partitions(found, state_partitions)


def with_partitions(vertices: Iterable[PlannedVertex], number: int) -> tuple[PlannedVertex, ...]:
    """The vertices of a query whose state has ``number`` partitions. A limit counts in one place."""
    return tuple(
        replace(each, state_partitions=1 if each.operator == "GlobalLimit" else number)
        if each.stateful
        else each
        for each in vertices
    )


def _names(nodes: Iterable[Node], by_node: dict[int, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(by_node[id(each)] for each in nodes))


# ---- names


def source_name(form: str, options: dict[str, str]) -> str:
    """What a source is called: its name in the program, topic, table, path, host and port, or else its format."""
    for key in ("name", *_TOPICS, "table", "tablename", "dbtable"):
        if options.get(key):
            return options[key]
    if options.get("path"):
        return _of_path(options["path"], form)
    if options.get("host") and options.get("port"):
        return f"{options['host']}:{options['port']}"
    return form


def sink_name(facts: WriterFacts) -> str:
    """What a sink is called: the name of its query, its table, path or topic, or else its format."""
    if facts.query_name or facts.table:
        return str(facts.query_name or facts.table)
    form = facts.foreach or str(facts.format)
    if facts.path:
        return _of_path(facts.path, form)
    return facts.options.get("topic") or facts.options.get("table") or form


def _of_path(path: str, form: str) -> str:
    """The last part of a path that is a word; the others differ between installations."""
    for part in reversed(path.split("/")):
        if _LETTER.search(part) and not set(part) & set("*?[]{}"):
            return part
    return form


def free_name(wanted: str, taken: set[str]) -> str:
    """``wanted`` as a name of a vertex that is not in ``taken``, which gets it."""
    name = next(each for each in numbered(wanted) if each not in taken)
    taken.add(name)
    return name


def numbered(wanted: str) -> Iterator[str]:
    """``wanted`` as a name of a vertex, and those for further ones that would be called so."""
    shown = "".join(each if each.isprintable() else " " for each in wanted).strip()
    shown = shown[: MAX_NAME_LENGTH - _ROOM].strip() or "unnamed"
    if is_id(shown):
        # It would be taken for the id of a vertex.
        shown = f"{shown} "[:8] + "..."
    yield shown
    for number in count(2):
        yield f"{shown} {number}"

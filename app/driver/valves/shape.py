"""Which nodes of a streaming plan are vertices, and where Spark begins a stage by itself.

Spark's plan is copied into plain values, which takes one walk; all else is worked out on these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from pyspark.sql import DataFrame

from app.driver.scala import plan_children
from app.driver.valves.spark import analysed, kind_of, lower_options

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

AS_MANY: Final = frozenset(
    {
        "AppendColumns", "CollectMetrics", "DeserializeToObject", "EventTimeWatermark", "MapElements",
        "Project", "ResolvedHint", "SerializeFromObject", "Sort", "StreamingDataSourceV2Relation",
        "StreamingDataSourceV2ScanRelation", "StreamingExecutionRelation", "SubqueryAlias", "Union", "View",
        "Window",
    }
)  # fmt: skip
"""Logical operators that give a row for each that they get, and sources."""


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


def source_options(leaf: Any, jvm: Any) -> tuple[str, dict[str, str]]:
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


def options_of_sources(frame: DataFrame, output_mode: str) -> list[tuple[str, str]]:
    """The options of the streaming sources of ``frame``, with lower-case names."""
    jvm: Any = frame.sparkSession._jvm
    sources = [node for node in walk(read_tree(frame, output_mode)) if node.part is Part.SOURCE]
    return [each for node in sources for each in source_options(node.spark, jvm)[1].items()]

"""Which nodes of a streaming plan are vertices, and where Spark begins a stage by itself.

Spark's plan is copied into plain values first, which takes one walk; all else is worked out on these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

_STATE: Final[Mapping[str, str]] = {
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
        "CoGroup",
        "FlatMapCoGroupsInArrow",
        "FlatMapCoGroupsInPandas",
        "FlatMapGroupsInArrow",
        "FlatMapGroupsInPandas",
        "MapGroups",
        "RebalancePartitions",
        "RepartitionByExpression",
    }
)
"""Operators before which Spark shuffles, without keeping state."""


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


@dataclass(frozen=True, slots=True)
class Facts:
    """What is told of a node of Spark's plan, for `part_of`."""

    kind: str
    children_stream: tuple[bool, ...]
    text: str = ""
    has_subqueries: bool = False
    is_global: bool = False
    shuffles: bool = False


def part_of(facts: Facts, output_mode: str) -> Part:
    kind, streams = facts.kind, facts.children_stream
    if not streams:
        return Part.SOURCE
    if kind in _STATE or (kind == "GlobalLimit" and output_mode == "append"):
        return Part.STATE
    if kind.endswith("Join"):
        return Part.STATE if len(streams) > 1 and all(streams) else Part.MAYBE
    if kind == "Union":
        return Part.UNION
    if kind == "Repartition":
        return Part.SHUFFLE if facts.shuffles else Part.NARROW
    if kind == "GlobalLimit":
        return Part.ONE
    if kind in _SHUFFLES or (kind == "Sort" and facts.is_global):
        return Part.SHUFFLE
    return Part.MAYBE if facts.has_subqueries else Part.PASS


def word_of(facts: Facts) -> str:
    """What a vertex of this operator is called."""
    if facts.kind == "Aggregate" and "session_window" in facts.text:
        return "sessions"
    if facts.kind == "GlobalLimit":
        return "limit"
    return _STATE.get(facts.kind, "join" if facts.kind.endswith("Join") else facts.kind)


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


# ---- numbers of tasks, before they are known

Width = str | int | dict[str, Any]
"""How many tasks a stage has: those of the vertex with this id, so many, or the sum, min or max of others."""


def width(node: Node, vertex_ids: Mapping[int, str]) -> Width:
    """The tasks of the stage that ``node`` is in. ``vertex_ids``: by the `id` of the vertex's node."""
    if node.part in VERTEX:
        return vertex_ids[id(node)]
    if node.part is Part.ONE:
        return 1
    below = [width(child, vertex_ids) for child in node.children]
    both: Width = below[0] if len(below) == 1 else {"max" if node.part is Part.SHUFFLE else "sum": below}
    return {"min": [node.number, both]} if node.number else both


def tasks(of: Width, parallelism: Mapping[str, int]) -> int:
    if isinstance(of, str):
        return parallelism[of]
    if isinstance(of, int):
        return of
    ((how, parts),) = of.items()
    return {"sum": sum, "min": min, "max": max}[how]([tasks(part, parallelism) for part in parts])  # type: ignore[operator,no-any-return]


def own_stage(root: Node) -> Node | None:
    """The operator that Spark shuffles before, if nothing but the sink is behind it: that stage is the sink's."""
    node = root
    while node.part in (Part.PASS, Part.NARROW) and len(node.children) == 1:
        node = node.children[0]
    return node if node.part in (Part.SHUFFLE, Part.ONE) else None


def has_narrow_end(root: Node) -> bool:
    """Whether the program itself says how many tasks there are at most at the sink, by a ``coalesce``."""
    node = root
    while node.part is Part.PASS and len(node.children) == 1:
        node = node.children[0]
    return node.part is Part.NARROW

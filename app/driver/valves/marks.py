"""Marks of a document's vertices in the plan of its query: they say where its valves will be.

Frames are built and checked before it is known at what parallelism their query starts. So what stands in them is a
mark, a repartition without effect, and a valve takes its place in the plan that is started. One is over what each
vertex but a sink gives; another is below a vertex with one streaming input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from pyspark.sql import DataFrame

from app.driver.scala import plan_children
from app.driver.valves.insert import Label
from app.driver.valves.shape import REFERENCES, Part, part_of
from app.driver.valves.spark import (
    KINDS,
    MARK,
    analysed,
    frame_in,
    kind_of,
    label_of,
    new_valve,
    set_label,
    with_children,
    with_number,
)
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, JobVertex

_NUMBER: Final = MAX_PARALLELISM_LIMIT + 1
"""Of tasks, which no valve has: for Spark two repartitions of the same number are equal whatever they are tagged with,
so that a node keeps the child that it has."""


_COGROUPS: Final = frozenset({"CoGroup", "FlatMapCoGroupsInArrow", "FlatMapCoGroupsInPandas"})
_LOOP: Final = "UnionLoop"
"""WITH RECURSIVE: each round needs the rows of the one before."""


@dataclass(frozen=True, slots=True)
class Mark:
    """``vertex`` and ``reads`` are names: of the vertex that it is of, and of the one whose rows come to it, empty over
    what ``vertex`` gives. ``moves``: rows go to other tasks there, also between stages of as many tasks."""

    vertex: str
    reads: str = ""
    moves: bool = False

    def label(self, ids: Mapping[str, str]) -> Label:
        """That of its valve. ``ids``: of the vertices, by name."""
        return Label(ids[self.vertex], before=ids[self.reads] if self.reads else None, spreads=self.moves)


def marked(frame: DataFrame, mark: Mark, keys: Sequence[str] = ()) -> DataFrame:
    """``frame`` with ``mark`` over it. ``keys``: the columns by which rows will go to tasks."""
    jvm: Any = frame.sparkSession._jvm
    node = analysed(frame.repartition(_NUMBER, *keys) if keys else frame.coalesce(_NUMBER))
    return frame_in(frame.sparkSession, set_label(jvm, node, json.dumps(asdict(mark)), MARK))


def read_mark(jvm: Any, node: Any, kind: str) -> Mark | None:
    """The mark that ``node`` is, whose class is ``kind``."""
    text = label_of(jvm, node, MARK) if kind in KINDS else ""
    return Mark(**json.loads(text)) if text else None


@dataclass(frozen=True, slots=True)
class Content:
    """What a vertex does to its streams. ``state``: the operators that keep state. ``cogroups``: those that group two
    inputs, for which Spark keeps none. ``inputs``: names of the vertices that it reads, from the left. ``others``:
    operators that read streams of none."""

    state: list[str] = field(default_factory=list)
    cogroups: list[str] = field(default_factory=list)
    inputs: dict[str, None] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


def read_vertices(frame: DataFrame, output_mode: str) -> dict[str, Content]:
    """The vertices in the plan of ``frame``, which is that of a sink, by name."""
    jvm: Any = frame.sparkSession._jvm
    found: dict[str, Content] = {}
    # Each node with the vertex that it is of: none above the first mark.
    waiting: list[tuple[Any, str]] = [(analysed(frame), "")]
    while waiting:
        node, vertex = waiting.pop()
        if not node.isStreaming():
            continue
        kind, inputs = kind_of(node), plan_children(node)
        content = found.setdefault(vertex, Content()) if vertex else Content()
        if (mark := read_mark(jvm, node, kind)) is not None:
            if mark.reads:
                # It stands in front of a vertex. What is below it is that which the vertex reads, with a mark there.
                vertex = mark.vertex if vertex in ("", mark.vertex) else vertex
            elif mark.vertex != vertex:
                content.inputs[mark.vertex] = None
                vertex = mark.vertex
                found.setdefault(vertex, Content())
        elif not inputs and kind not in REFERENCES:
            content.others.append(kind)
        elif kind == _LOOP or _part_of(node, kind, inputs, output_mode) is Part.STATE:
            content.state.append(kind)
        elif kind in _COGROUPS:
            content.cogroups.append(kind)
        waiting += ((each, vertex) for each in reversed(inputs))
    return found


def _part_of(node: Any, kind: str, inputs: Sequence[Any], output_mode: str) -> Part:
    return part_of(node, kind, [bool(each.isStreaming()) for each in inputs], output_mode)


def with_valves(frame: DataFrame, vertices: Sequence[JobVertex], parallelism: Mapping[str, int]) -> DataFrame:
    """``frame`` with a valve in place of each mark, but for those below a vertex that keeps state: Spark sends its rows
    to the tasks that have theirs. ``parallelism``: by vertex id."""
    jvm: Any = frame.sparkSession._jvm
    ids = {vertex.name: vertex.id for vertex in vertices}
    stateful = {vertex.name for vertex in vertices if vertex.stateful}

    def built(node: Any, inputs: list[Any]) -> Any:
        kind = kind_of(node)
        mark = read_mark(jvm, node, kind)
        if mark is None:
            return with_children(jvm, node, inputs) if inputs else node
        if mark.vertex in stateful:
            if mark.reads:
                return inputs[0]
            mark = replace(mark, moves=False)
        label = mark.label(ids)
        number, shuffle = label.setting(parallelism)
        if kind == "Repartition":
            return new_valve(jvm, inputs[0], number, shuffle=shuffle, label=label.text)
        return set_label(jvm, with_number(jvm, node, inputs[0], number), label.text)

    # A chain of vertices may be deeper than Python's stack. Each node with its inputs to come, and those built.
    root = analysed(frame)
    path: list[tuple[Any, list[Any], list[Any]]] = [(root, plan_children(root), [])]
    while True:
        node, to_come, inputs = path[-1]
        if to_come:
            child = to_come.pop(0)
            if child.isStreaming():
                path.append((child, plan_children(child), []))
            else:
                inputs.append(child)
            continue
        made = built(node, inputs)
        path.pop()
        if not path:
            return frame_in(frame.sparkSession, made)
        path[-1][2].append(made)

"""The vertices of a streaming query, read from the plan that Spark analysed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame

from app.driver.valves.shape import VERTEX, Node, Part, read_tree, source_options, vertices_below, walk
from app.driver.valves.spark import WriterFacts
from app.model.graphdoc_fields import MAX_NAME_LENGTH
from app.model.ids import is_id
from app.model.jobgraph import Role
from app.model.protocol import PlannedVertex

_TOPICS: Final = (
    "subscribe", "topic", "subscribepattern", "assign", "kafka.topic", "streamname", "subscription",
)  # fmt: skip
_LETTER: Final = re.compile(r"[^\W_]")
_ROOM: Final = 10
"""Characters of a name that are kept for the number of one that is taken."""


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
            form, options = source_options(node.spark, jvm)
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
    shown = "".join(each if each.isprintable() else " " for each in wanted).strip()
    shown = shown[: MAX_NAME_LENGTH - _ROOM].strip() or "unnamed"
    if is_id(shown):
        # It would be taken for the id of a vertex.
        shown = f"{shown} "[:8] + "..."
    name, count = shown, 1
    while name in taken:
        count += 1
        name = f"{shown} {count}"
    taken.add(name)
    return name

"""Copies the streaming part of Spark's plan into plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.driver.scala import plan_children
from app.driver.valves.shape import Facts, Node, Part, part_of, walk, word_of
from app.driver.valves.spark import analysed, kind_of, lower_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_tree(frame: DataFrame, output_mode: str) -> Node:
    """The streaming part of the plan of ``frame``."""
    return _read(analysed(frame), output_mode)


def _read(node: Any, output_mode: str) -> Node:
    kind = kind_of(node)
    children = plan_children(node)
    streams = tuple(bool(child.isStreaming()) for child in children)
    is_repartition = kind == "Repartition"
    facts = Facts(
        kind=kind,
        children_stream=streams,
        text=str(node.groupingExpressions().toString()) if kind == "Aggregate" else "",
        has_subqueries=kind in ("Filter", "Project") and not node.subqueries().isEmpty(),
        is_global=kind == "Sort" and bool(getattr(node, "global")()),
        shuffles=is_repartition and bool(node.shuffle()),
    )
    return Node(
        kind=kind,
        part=part_of(facts, output_mode),
        word=word_of(facts),
        children=tuple(
            _read(child, output_mode) for child, flows in zip(children, streams, strict=True) if flows
        ),
        number=int(node.numPartitions()) if is_repartition else 0,
        spark=node,
        spark_children=tuple(children),
    )


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

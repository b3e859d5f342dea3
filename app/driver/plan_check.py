"""What the document says of its vertices, against what Spark makes of them: looked at before anything runs.

Each vertex is applied once to streams that stand for its inputs, and Spark's analysed plan is read: the operators
between the inputs and the result are the vertex's own. A vertex that follows the cut of its query sees one micro-batch
at a time, so an operator that needs the rows of other micro-batches would give wrong results there without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from app.driver.failures import DriverError
from app.driver.functions import Functions
from app.driver.scala import plan_children
from app.driver.vertices import apply_operation, guarded
from app.model.analysis import Query
from app.model.jobgraph import JobVertex, OutputMode, SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEEPS_STATE: Final = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "Except",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPySpark",
        "UnionLoop",
    }
)
"""Operators that need rows of earlier micro-batches. A join of two streams does too."""

_NOT_ON_STREAMS: Final = frozenset({"Intersect", "Offset"})

_COGROUPS: Final = frozenset({"CoGroup", "FlatMapCoGroupsInArrow", "FlatMapCoGroupsInPandas"})
"""Spark keeps no state for them: the groups of one micro-batch would meet those of that micro-batch only."""

_NEAREST: Final = frozenset({"AsOfJoin", "NearestByJoin"})
"""Joins that choose among the rows of their right side, which therefore has to be whole."""

# Ends of a plan that repeat another part of it.
_REFERENCES: Final = frozenset({"CTERelationRef", "UnionLoopRef"})

_MARK: Final = "slotwise input "
_MARKED: Final = re.compile(f"{_MARK}([0-9a-f]{{32}})")


@dataclass(slots=True)
class _Plan:
    """The streaming part of what a vertex makes of its inputs.

    ``state``: the operators that keep state. ``impossible``: what can be done to a micro-batch and not to a stream.
    ``inputs``: ids of the vertices that it reads. ``others``: streams that are none of them.
    """

    state: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    others: list[str] = field(default_factory=list)


def check_plan(
    query: Query, session: SparkSession, built: Mapping[str, DataFrame], functions: Functions
) -> DataFrame:
    """The stream that the sink gets. ``built``: the frames of the head and of the static vertices by vertex id.

    Raises:
        DriverError: the document says something of a vertex that its plan contradicts. It is final.
    """
    frames = dict(built)
    for vertex in query.static:
        if frames[vertex.id].isStreaming:
            raise _refused(
                vertex,
                "reads static inputs only, but its result is a stream. A stream is read by a source vertex.",
            )
    sink = query.sink.operation
    assert isinstance(sink, SinkSpec)
    for vertex in (*query.head, *query.tail):
        _check_keys(vertex, frames)
        if vertex.is_source or vertex.is_sink:
            continue
        inputs = {edge.vertex_id: _marked(frames[edge.vertex_id], edge.vertex_id) for edge in vertex.inputs}
        frame = guarded(vertex, partial(apply_operation, session, vertex, inputs, functions))
        frames.setdefault(vertex.id, frame)
        # With `complete` every micro-batch is the whole result: there is nothing that it could lack.
        whole = vertex in query.tail and sink.output_mode is OutputMode.COMPLETE
        streams = {each for each in inputs if frames[each].isStreaming}
        _check_vertex(vertex, _read(frame), streams, whole=whole)
    return frames[query.sink.inputs[0].vertex_id]


def _check_keys(vertex: JobVertex, frames: Mapping[str, DataFrame]) -> None:
    from pyspark.errors import AnalysisException

    for edge in vertex.inputs:
        frame = frames[edge.vertex_id]
        for key in edge.keys:
            try:
                frame.repartition(1, key)
            except AnalysisException:
                raise _refused(
                    vertex,
                    f"takes its input {edge.vertex_name} by the key {key}, which is no column of it. "
                    f"The columns are {', '.join(frame.columns)}.",
                ) from None


def _check_vertex(vertex: JobVertex, plan: _Plan, streams: set[str], *, whole: bool) -> None:
    names = {edge.vertex_id: edge.vertex_name for edge in vertex.inputs}
    if ignored := [names[each] for each in names if each in streams - plan.inputs]:
        raise _refused(
            vertex,
            f"does nothing with its input {ignored[0]}: its result does not depend on it. "
            "Use the input, or leave it out under `inputs`.",
        )
    if plan.others:
        raise _refused(
            vertex,
            f"reads a stream that is none of its inputs ({plan.others[0]}). "
            "Make the stream a source vertex, and list it under `inputs`.",
        )
    if whole:
        return
    if plan.impossible:
        raise _refused(vertex, f"cannot do that to a stream: {plan.impossible[0]}.")
    if plan.state and not vertex.stateful:
        raise _refused(
            vertex,
            f"is not marked as stateful, but what it does to its stream keeps state ({plan.state[0]} in Spark's plan): "
            "without state each micro-batch would be taken for itself. Write `stateful: true` at the vertex.",
        )
    if vertex.stateful and not plan.state:
        raise _refused(
            vertex,
            "is marked as stateful, but nothing that it does to its stream keeps state. "
            "Write `stateful: false` at the vertex.",
        )


def _refused(vertex: JobVertex, what: str) -> DriverError:
    return DriverError(f"Vertex {vertex.name} {what}", vertex=vertex.name)


# ---- Spark's plan


def _marked(frame: DataFrame, vertex_id: str) -> DataFrame:
    """``frame``, to be found again in the plans that are made of it: under a filter that lets every row pass."""
    return frame.where(f"'{_MARK}{vertex_id}' IS NOT NULL")


def _read(frame: DataFrame) -> _Plan:
    plan = _Plan()
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        if not node.isStreaming():
            continue
        name = str(node.getClass().getSimpleName())
        if name == "Filter" and (mark := _MARKED.search(node.condition().toString())):
            plan.inputs.add(mark[1])
            continue
        children = plan_children(node)
        if not children and name not in _REFERENCES:
            plan.others.append(name)
        streaming = [bool(child.isStreaming()) for child in children]
        if name in _KEEPS_STATE:
            plan.state.append(name)
        elif name in _NOT_ON_STREAMS:
            plan.impossible.append(f"Spark has no {name} over a stream")
        elif name in _COGROUPS:
            plan.impossible.append(
                f"Spark has no state for groups of two inputs ({name} in its plan), so those of one micro-batch would "
                "not meet those of another. Join the inputs, or group a UNION ALL of them with transformWithState"
            )
        elif name in _NEAREST and streaming[-1]:
            plan.impossible.append(f"Spark has no {name} with a stream on its right side")
        elif name.endswith("Join"):
            _read_join(node, name, streaming, plan)
        elif name == "Union" and not all(streaming):
            plan.impossible.append(
                "it adds rows that do not stream, which would come again in every micro-batch"
            )
        waiting.extend(children)
    return plan


def _read_join(node: Any, name: str, streaming: list[bool], plan: _Plan) -> None:
    if all(streaming):
        if len(streaming) > 1:
            plan.state.append(f"{name} of two streams")
        return
    kind = str(node.joinType().sql()) if name == "Join" else "INNER"
    static_is_kept = kind not in ("INNER", "CROSS") and (
        kind == "FULL OUTER" or streaming[0] is (kind == "RIGHT OUTER")
    )
    if static_is_kept:
        plan.impossible.append(
            f"a {kind} JOIN keeps rows of the side that does not stream, which would come again in every micro-batch"
        )

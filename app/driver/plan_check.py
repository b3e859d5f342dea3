"""Comparison of a document's vertices with Spark's plan, before anything runs.

Spark's analysed plan of each vertex is read down to the marks of its inputs (`app.driver.valves.marks`): the operators
in between are the vertex's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from app.driver.failures import DriverError
from app.driver.scala import plan_children
from app.driver.valves.marks import read_mark
from app.driver.valves.shape import STATE
from app.driver.valves.spark import analysed
from app.model.analysis import Query, upstream
from app.model.jobgraph import JobVertex, OutputMode, SinkSpec

_NOT_ON_STREAMS: Final = frozenset({"Intersect", "Offset"})

_KEEPS_STATE: Final = (STATE.keys() | {"GlobalLimit", "UnionLoop"}) - _NOT_ON_STREAMS
"""Operators that need rows of earlier micro-batches. A join of two streams does too."""

_COGROUPS: Final = frozenset({"CoGroup", "FlatMapCoGroupsInArrow", "FlatMapCoGroupsInPandas"})
"""Spark keeps no state for them: the groups of one micro-batch would meet those of that micro-batch only."""

_NEAREST: Final = frozenset({"AsOfJoin", "NearestByJoin"})
"""Joins that choose among the rows of their right side, which therefore has to be whole."""

# Ends of a plan that repeat another part of it.
_REFERENCES: Final = frozenset({"CTERelationRef", "UnionLoopRef"})


@dataclass(slots=True)
class _Plan:
    """The streaming part of what a vertex makes of its inputs.

    ``state``: the operators that keep state. ``impossible``: what can be done to no stream. ``partial``: what would be
    done to each micro-batch for itself. ``inputs``: names of the vertices that it reads. ``others``: streams that are
    none of them.
    """

    state: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    others: list[str] = field(default_factory=list)


def check_plan(query: Query, frames: Mapping[str, DataFrame]) -> None:
    """``frames``: what was built, by vertex id.

    Raises:
        DriverError: the document says something of a vertex that its plan contradicts. It is final.
    """
    for vertex in query.static:
        if frames[vertex.id].isStreaming:
            raise _refused(
                vertex,
                "reads static inputs only, but its result is a stream. A stream is read by a source vertex.",
            )
    whole = _whole(query)
    for vertex in query.flow:
        if not vertex.is_source and not vertex.is_sink:
            streams = {edge.vertex_name for edge in query.streaming_inputs(vertex)}
            plan = _read(frames[vertex.id], vertex.name, streams)
            _check_vertex(vertex, plan, streams, whole=vertex.id in whole)


def _whole(query: Query) -> set[str]:
    """Ids of vertices behind all state whose every micro-batch is the whole result, since the sink gets it anew each
    time: there is nothing that it could lack."""
    sink = query.sink.operation
    assert isinstance(sink, SinkSpec)
    if sink.output_mode is not OutputMode.COMPLETE:
        return set()
    by_id = {vertex.id: vertex for vertex in (*query.static, *query.flow)}
    before = {each for vertex in query.stateful for each in upstream(vertex.id, by_id)}
    return by_id.keys() - before


def check_by_spark(frame: DataFrame, output_mode: str) -> None:
    """
    Raises:
        AnalysisException, Py4JError: Spark has no such operator over a stream as the plan of ``frame`` has, or not
            with this output mode.
    """
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(analysed(frame), java_output_mode(jvm, output_mode))


def java_output_mode(jvm: Any, output_mode: str) -> Any:
    return getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode.capitalize())()


def check_keys(vertex: JobVertex, frames: Mapping[str, DataFrame]) -> None:
    """
    Raises:
        DriverError: a key by which ``vertex`` takes an input is no column of it.
    """
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
    names = [edge.vertex_name for edge in vertex.inputs]
    if ignored := [each for each in names if each in streams - plan.inputs]:
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
    if impossible := [*plan.impossible, *([] if whole else plan.partial)]:
        raise _refused(vertex, f"cannot do that to a stream: {impossible[0]}.")
    if whole:
        # The first rows of a result that is whole need no others.
        plan.state = [name for name in plan.state if name != "GlobalLimit"]
        if plan.state:
            raise _refused(
                vertex,
                f"follows a vertex that keeps state, and what it does keeps state as well ({plan.state[0]} in Spark's "
                "plan): with the output mode complete a query can do that only once. Do it where the result is read.",
            )
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


def _read(frame: DataFrame, vertex: str, streams: set[str]) -> _Plan:
    jvm: Any = frame.sparkSession._jvm
    plan = _Plan()
    # Below its own mark.
    waiting = plan_children(frame._jdf.queryExecution().analyzed())
    while waiting:
        node = waiting.pop()
        if not node.isStreaming():
            continue
        name = str(node.getClass().getSimpleName())
        if (mark := read_mark(jvm, node, name)) is not None:
            # It reads an input through the mark over that, or through its own below it.
            read = mark.reads if mark.vertex == vertex else mark.vertex
            if read in streams and (not mark.reads or mark.vertex == vertex):
                plan.inputs.add(read)
            else:
                plan.others.append("that of another vertex")
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
            plan.partial.append(
                f"Spark has no state for groups of two inputs ({name} in its plan), so those of one micro-batch would "
                "not meet those of another. Join the inputs, or group a UNION ALL of them with transformWithState"
            )
        elif name in _NEAREST and streaming[-1]:
            plan.impossible.append(f"Spark has no {name} with a stream on its right side")
        elif name.endswith("Join"):
            _read_join(node, name, streaming, plan)
        elif name == "Union" and not all(streaming):
            plan.partial.append(
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
        plan.partial.append(
            f"a {kind} JOIN keeps rows of the side that does not stream, which would come again in every micro-batch"
        )

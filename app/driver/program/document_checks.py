"""What a document says of its vertices, against the plan that Spark has analysed, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from app.driver.failures import DriverError, describe
from app.driver.valves.marks import Content, read_vertices
from app.driver.valves.spark import analysed, java_output_mode
from app.model.analysis import Query
from app.model.jobgraph import JobVertex, SinkSpec

_BY_BATCH = (
    "What is to be done with each micro-batch for itself, such as putting it in order, belongs into a Python sink "
    "(`sink: {python: module:function}`), which gets each as Spark's foreachBatch does."
)
_OF_BATCHES = ("Sorting is not supported", "NON_TIME_WINDOW", "Non-time-based windows")


def check_plan(query: Query, frames: Mapping[str, DataFrame]) -> set[str]:
    """The ids of the vertices that keep state. ``frames``: what was built, by vertex id.

    Raises:
        DriverError: the document says something of a vertex that its plan contradicts, or Spark cannot do that to a
            stream. It is final.
    """
    for vertex in query.static:
        if frames[vertex.id].isStreaming:
            raise _refused(
                vertex,
                "reads static inputs only, but its result is a stream. A stream is read by a source vertex.",
            )
    sink = query.sink.operation
    assert isinstance(sink, SinkSpec)
    found = read_vertices(frames[query.sink.id], sink.output_mode.value)
    inner = [vertex for vertex in query.flow if not vertex.is_source and not vertex.is_sink]
    # One that streams and is not found is an input with which another does nothing.
    contents = {
        vertex: found.get(vertex.name, Content())
        for vertex in inner
        if vertex.name in found or not frames[vertex.id].isStreaming
    }
    for vertex, content in contents.items():
        _check_inputs(vertex, content, {edge.vertex_name for edge in query.streaming_inputs(vertex)})
    _check_by_spark(query, frames, sink.output_mode.value)
    return {vertex.id for vertex, content in contents.items() if content.state}


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


def _check_inputs(vertex: JobVertex, content: Content, streams: set[str]) -> None:
    names = [edge.vertex_name for edge in vertex.inputs]
    if ignored := [each for each in names if each in streams - content.inputs.keys()]:
        raise _refused(
            vertex,
            f"does nothing with its input {ignored[0]}: its result does not depend on it. "
            "Use the input, or leave it out under `inputs`.",
        )
    if others := [*(each for each in content.inputs if each not in streams), *content.others]:
        raise _refused(
            vertex,
            f"reads a stream that is none of its inputs ({others[0]}). "
            "Make the stream a source vertex, and list it under `inputs`.",
        )
    if content.cogroups:
        raise _refused(
            vertex,
            f"cannot do that to a stream: Spark has no state for groups of two inputs ({content.cogroups[0]} in its "
            "plan), so those of one micro-batch would not meet those of another. Join the inputs, or group a UNION ALL "
            "of them with transformWithState.",
        )


def _check_by_spark(query: Query, frames: Mapping[str, DataFrame], output_mode: str) -> None:
    """The check that Spark makes when the query starts: here for all queries before one does, and of a vertex."""
    if (error := _spark_refusal(frames[query.sink.id], output_mode)) is None:
        return
    told = _first_line(error)
    parts = ((vertex, _spark_refusal(frames[vertex.id], output_mode)) for vertex in query.flow)
    found = next(
        (vertex for vertex, part in parts if part is not None and _first_line(part) == told), query.sink
    )
    # Where a source alone is refused, it is for what the plan lacks for the mode of the sink, such as an aggregate.
    failure = describe(error, vertex=(query.sink if found.is_source else found).name)
    hint = f" {_BY_BATCH}" if any(each in told for each in _OF_BATCHES) else ""
    raise DriverError.of(replace(failure, sentence=f"{failure.sentence.rstrip('.')}.{hint}")) from error


def _spark_refusal(frame: DataFrame, output_mode: str) -> AnalysisException | None:
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(analysed(frame), java_output_mode(jvm, output_mode))
    except AnalysisException as error:
        return error
    return None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


def _refused(vertex: JobVertex, what: str) -> DriverError:
    return DriverError(f"Vertex {vertex.name} {what}", vertex=vertex.name)

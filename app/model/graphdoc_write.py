"""Conversion of a `JobGraph` to its document, with every default."""

from __future__ import annotations

from app.model.environment import Runtime
from app.model.jobgraph import (
    JobGraph,
    JobVertex,
    PlannedSpec,
    ProgramSpec,
    PythonSpec,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)


def to_document(graph: JobGraph) -> dict[str, object]:
    """The resolved document of ``graph``: plain dicts, lists, texts, numbers; `parse_document` of it is ``graph``."""
    return {
        "name": graph.name,
        "type": graph.type.value,
        **program_document(graph.program),
        **runtime_document(graph.runtime),
        "artifacts": list(graph.artifacts),
        "config": dict(graph.config),
        "vertices": [_vertex(vertex) for vertex in graph.vertices],
    }


def program_document(program: ProgramSpec | None) -> dict[str, object]:
    """The fields of a document that say which program makes its vertices."""
    if program is None:
        return {}
    return {"script": program.script, "args": list(program.args), **_given({"from": program.origin})}


def runtime_document(runtime: Runtime) -> dict[str, object]:
    """The fields of a document that say what the job runs in."""
    document: dict[str, object] = {}
    spec = runtime.environment
    if spec is not None:
        given = {"python": spec.python, "archive": spec.archive, "requirements": list(spec.requirements)}
        document["environment"] = {name: value for name, value in given.items() if value}
    if runtime.packages:
        document["packages"] = list(runtime.packages)
    return document


def _vertex(vertex: JobVertex) -> dict[str, object]:
    document: dict[str, object] = {"name": vertex.name}
    operation = vertex.operation
    if isinstance(operation, SourceSpec):
        document["source"] = _source(operation)
    elif isinstance(operation, SinkSpec):
        document["sink"] = _sink(operation)
    elif isinstance(operation, SqlSpec):
        document["sql"] = operation.text
    elif isinstance(operation, PlannedSpec):
        document["planned"] = planned_document(operation)
    else:
        assert isinstance(operation, PythonSpec)
        document["python"] = operation.entry
    if vertex.inputs:
        document["inputs"] = [_input(edge) for edge in vertex.inputs]
    document["parallelism"] = vertex.parallelism
    document["lowerBound"] = vertex.lower_bound
    document["maxParallelism"] = vertex.max_parallelism
    document["stateful"] = vertex.stateful
    document["slotSharingGroup"] = vertex.slot_sharing_group
    return document


def planned_document(operation: PlannedSpec) -> dict[str, object]:
    others = {"checkpoint": operation.checkpoint, "path": operation.path, "fixed": operation.fixed}
    return {"role": operation.role.value, "operator": operation.operator, **_given(others)}


def _source(source: SourceSpec) -> dict[str, object]:
    places = _given({"path": source.path, "schema": source.schema})
    return {"format": source.format, **places, "options": dict(source.options), "static": source.static}


def _sink(sink: SinkSpec) -> dict[str, object]:
    places = _given({"path": sink.path, "python": None if sink.python is None else sink.python.entry})
    mode = sink.output_mode.value
    return {"format": sink.format, **places, "outputMode": mode, "options": dict(sink.options)}


def _input(edge: VertexInput) -> dict[str, object]:
    keys = {"keys": list(edge.keys)} if edge.keys else {}
    return {
        "vertex": edge.vertex_name,
        "partitioner": edge.partitioner.value,
        **keys,
        "exchange": edge.exchange.value,
    }


def _given(texts: dict[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text is not None}

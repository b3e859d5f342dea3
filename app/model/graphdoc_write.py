"""From a `JobGraph` to its document, with every default written out."""

from __future__ import annotations

from app.model.graphdoc_environment import runtime_document
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
    origin = {} if program.origin is None else {"from": program.origin}
    return {"script": program.script, "args": list(program.args), **origin}


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
    own = {name: text for name, text in others.items() if text is not None}
    return {"role": operation.role.value, "operator": operation.operator, **own}


def _source(source: SourceSpec) -> dict[str, object]:
    document: dict[str, object] = {"format": source.format}
    if source.path is not None:
        document["path"] = source.path
    if source.schema is not None:
        document["schema"] = source.schema
    return {**document, "options": dict(source.options), "static": source.static}


def _sink(sink: SinkSpec) -> dict[str, object]:
    document: dict[str, object] = {"format": sink.format}
    if sink.path is not None:
        document["path"] = sink.path
    if sink.python is not None:
        document["python"] = sink.python.entry
    return {**document, "outputMode": sink.output_mode.value, "options": dict(sink.options)}


def _input(edge: VertexInput) -> dict[str, object]:
    document: dict[str, object] = {"vertex": edge.vertex_name, "partitioner": edge.partitioner.value}
    if edge.keys:
        document["keys"] = list(edge.keys)
    document["exchange"] = edge.exchange.value
    return document

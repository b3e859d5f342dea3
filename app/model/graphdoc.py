"""The resolved document of a job graph: every default is written out, so that a stored graph means the same for ever.

It is what the database keeps and what drivers are given, and is read back as it is: what a client submits has been
checked before (`app.documents`). A graph document that is submitted as it is resolved makes the same graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.model.environment import EnvironmentSpec, Runtime
from app.model.fromjson import from_json
from app.model.graphdoc_build import max_of
from app.model.grapherrors import GraphErrors
from app.model.ids import slot_sharing_group_id, vertex_id
from app.model.jobgraph import (
    Exchange,
    JobGraph,
    JobType,
    JobVertex,
    NamedBounds,
    Operation,
    Partitioner,
    PlannedSpec,
    ProgramSpec,
    PythonSpec,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)
from app.model.variables import VARIABLES

MAX_VERTICES: Final = 200

_FIELDS = dict[str, object]
_TEXTS = tuple[str, ...]
_TEXT_BY_NAME = dict[str, str]


def read_graph(document: object) -> JobGraph:
    """The job graph whose `to_document` is ``document``, as decoded from JSON. It may be of an earlier version, which
    accepted what is refused now, so its rules are not checked again.

    Raises:
        GraphErrors: it is no such document.
    """
    try:
        graph = _read_graph(from_json(_FIELDS, document))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise GraphErrors([f"{type(error).__name__}: {error}"]) from error
    named = {edge.vertex_name for each in graph.vertices for edge in each.inputs}
    if not graph.vertices or not named <= graph.by_name.keys():
        raise GraphErrors(["vertices: some are missing."])
    if lost := next(_lost(document, to_document(graph)), None):
        # Of a newer version: without it the job would not be what it was.
        raise GraphErrors([f"{lost}: is not known here."])
    return graph


def _lost(read: object, written: object) -> Iterator[str]:
    """The names of what is in ``read``, and not in ``written``."""
    if isinstance(read, dict) and isinstance(written, dict):
        for name, value in read.items():
            yield from _lost(value, written[name]) if name in written else [name] if value else ()
    elif isinstance(read, list) and isinstance(written, list):
        for each, other in zip(read, written, strict=True):
            yield from _lost(each, other)


def _read_graph(document: Mapping[str, Any]) -> JobGraph:
    name, program, spec = from_json(str, document["name"]), None, document.get("environment")
    if "script" in document:
        args = from_json(_TEXTS, document["args"])
        program = ProgramSpec(from_json(str, document["script"]), args)
    environment = None if spec is None else from_json(EnvironmentSpec, spec)
    variables = _pairs(document.get(VARIABLES, {}))
    return JobGraph(
        name,
        JobType(document["type"]),
        tuple(_read_vertex(name, each) for each in document["vertices"]),
        from_json(_TEXTS, document["artifacts"]),
        _pairs(document["config"]),
        program,
        Runtime(environment, from_json(_TEXTS, document.get("packages", ())), variables=variables),
        from_json(_TEXTS, document.get("ended", ())),
        tuple(
            NamedBounds(vertex, said.get("lowerBound"), said.get("upperBound"))
            for vertex, said in document.get("bounds", {}).items()
        ),
        from_json(_TEXTS, document.get("left_out", ())),
        document.get("from"),
    )


def _read_vertex(job_name: str, document: Mapping[str, Any]) -> JobVertex:
    name, group = from_json(str, document["name"]), from_json(str, document["slotSharingGroup"])
    upper, is_assumed = from_json(int, document["parallelism"]), "stateful" not in document
    usual = {"stateful": True, "maxParallelism": max_of(upper, stateful=True)} if is_assumed else {}
    facts = {**usual, **document, **document.get("assumed", {})}
    return JobVertex(
        vertex_id(job_name, name),
        name,
        _read_operation(document),
        tuple(_read_input(job_name, each) for each in document.get("inputs", ())),
        upper,
        from_json(int, document["lowerBound"]),
        from_json(int, facts["maxParallelism"]),
        group,
        slot_sharing_group_id(job_name, group),
        from_json(bool, facts["stateful"]),
        is_assumed=is_assumed,
        max_is_assumed=is_assumed and "maxParallelism" not in document,
    )


def _read_input(job_name: str, document: Mapping[str, Any]) -> VertexInput:
    name, keys = from_json(str, document["vertex"]), from_json(_TEXTS, document.get("keys", ()))
    partitioner, exchange = Partitioner(document["partitioner"]), Exchange(document["exchange"])
    return VertexInput(vertex_id(job_name, name), name, partitioner, keys, exchange)


def _read_operation(document: Mapping[str, Any]) -> Operation:
    if "planned" in document:
        return from_json(PlannedSpec, document["planned"])
    if "sql" in document:
        return SqlSpec(from_json(str, document["sql"]))
    if "python" in document:
        return PythonSpec(from_json(str, document["python"]))
    if "source" in document:
        return from_json(SourceSpec, {**document["source"], "options": _pairs(document["source"]["options"])})
    sink = {**document["sink"], "output_mode": document["sink"]["outputMode"]}
    python = {"entry": sink["python"]} if "python" in sink else None
    return from_json(SinkSpec, {**sink, "python": python, "options": _pairs(sink["options"])})


def _pairs(document: object) -> tuple[tuple[str, str], ...]:
    return tuple(from_json(_TEXT_BY_NAME, document).items())


def to_document(graph: JobGraph) -> dict[str, object]:
    """The resolved document of ``graph``: plain dicts, lists, texts, numbers; `read_graph` of it is ``graph``."""
    return {
        "name": graph.name,
        "type": graph.type.value,
        **program_document(graph.program),
        **runtime_document(graph.runtime),
        **_given({"from": graph.origin}),
        "artifacts": list(graph.artifacts),
        "config": dict(graph.config),
        "vertices": [_vertex_document(vertex) for vertex in graph.vertices],
        **({"ended": list(graph.ended)} if graph.ended else {}),
        **({"left_out": list(graph.left_out)} if graph.left_out else {}),
        **({"bounds": dict(map(_bounds_document, graph.bounds))} if graph.bounds else {}),
    }


def _bounds_document(bounds: NamedBounds) -> tuple[str, dict[str, object]]:
    said = {"lowerBound": bounds.lower, "upperBound": bounds.upper}
    return bounds.vertex, {name: number for name, number in said.items() if number is not None}


def program_document(program: ProgramSpec | None) -> dict[str, object]:
    """The fields of a document that say which program makes its vertices."""
    if program is None:
        return {}
    return {"script": program.script, "args": list(program.args)}


def runtime_document(runtime: Runtime) -> dict[str, object]:
    """The fields of a document that say what the job runs in."""
    document: dict[str, object] = {}
    spec = runtime.environment
    if spec is not None:
        given = {"python": spec.python, "archive": spec.archive, "requirements": list(spec.requirements)}
        document["environment"] = {name: value for name, value in given.items() if value}
    if runtime.packages:
        document["packages"] = list(runtime.packages)
    if runtime.variables:
        document[VARIABLES] = dict(runtime.variables)
    return document


def _vertex_document(vertex: JobVertex) -> dict[str, object]:
    kind, operation = _operation_document(vertex.operation)
    return {
        "name": vertex.name,
        kind: operation,
        **({"inputs": [_input_document(edge) for edge in vertex.inputs]} if vertex.inputs else {}),
        "parallelism": vertex.parallelism,
        "lowerBound": vertex.lower_bound,
        **_state_document(vertex),
        "slotSharingGroup": vertex.slot_sharing_group,
    }


def _state_document(vertex: JobVertex) -> dict[str, object]:
    """What is said of the state of ``vertex``; and what is assumed of it, where that is not the usual."""
    most = {"maxParallelism": vertex.max_parallelism}
    if not vertex.is_assumed:
        return {**most, "stateful": vertex.stateful}
    if not vertex.max_is_assumed:
        return {**most, **({} if vertex.stateful else {"assumed": {"stateful": False}})}
    if vertex.stateful and vertex.max_parallelism == max_of(vertex.parallelism, stateful=True):
        return {}
    return {"assumed": {**most, "stateful": vertex.stateful}}


def _operation_document(operation: Operation) -> tuple[str, object]:
    match operation:
        case SourceSpec():
            places = _given({"path": operation.path, "schema": operation.schema})
            options = {"options": dict(operation.options), "static": operation.static}
            return "source", {"format": operation.format, **places, **options}
        case SinkSpec(format=form, path=path, output_mode=mode, options=given, python=python):
            places = _given({"path": path, "python": None if python is None else python.entry})
            return "sink", {"format": form, **places, "outputMode": mode.value, "options": dict(given)}
        case SqlSpec():
            return "sql", operation.text
        case PlannedSpec():
            return "planned", planned_document(operation)
        case PythonSpec():
            return "python", operation.entry


def planned_document(operation: PlannedSpec) -> dict[str, object]:
    others = {"checkpoint": operation.checkpoint, "path": operation.path, "fixed": operation.fixed}
    return {"role": operation.role.value, "operator": operation.operator, **_given(others)}


def _input_document(edge: VertexInput) -> dict[str, object]:
    keys = {"keys": list(edge.keys)} if edge.keys else {}
    names = {"vertex": edge.vertex_name, "partitioner": edge.partitioner.value}
    return {**names, **keys, "exchange": edge.exchange.value}


def _given(texts: dict[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text is not None}

"""The resolved document of a job graph: every default is written out, so that a stored graph means the same for ever.

It is what the database keeps and what drivers are given, and is read back as it is: what a client submits has been
checked before (`app.documents`). A graph document that is submitted as it is resolved makes the same graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.model.environment import EnvironmentSpec, Runtime
from app.model.fromjson import from_json
from app.model.grapherrors import GraphErrors
from app.model.ids import slot_sharing_group_id, vertex_id
from app.model.jobgraph import (
    Exchange,
    JobGraph,
    JobType,
    JobVertex,
    NamedBounds,
    Operation,
    OutputMode,
    Partitioner,
    PlannedSpec,
    ProgramSpec,
    PythonSpec,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)
from app.model.sentences import kind_of
from app.model.variables import VARIABLES

MAX_VERTICES: Final = 200

_Texts = tuple[str, ...]
_Pairs = dict[str, str]


def read_graph(document: object) -> JobGraph:
    """The job graph whose `to_document` is ``document``, as decoded from JSON. It may be of an earlier version, which
    accepted what is refused now, so its rules are not checked again.

    Raises:
        GraphErrors: it is no such document.
    """
    if not isinstance(document, Mapping):
        raise GraphErrors([f"a mapping is expected, found {kind_of(document)}."])
    try:
        return _read_graph(document)
    except KeyError as error:
        raise GraphErrors([f"the field {error} is missing."]) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise GraphErrors([f"{error}."]) from error


def _read_graph(document: Mapping[str, Any]) -> JobGraph:
    name = from_json(str, document["name"])
    vertices = tuple(_read_vertex(name, each) for each in document["vertices"])
    known = {vertex.name for vertex in vertices}
    unknown = [edge.vertex_name for each in vertices for edge in each.inputs if edge.vertex_name not in known]
    if not vertices or unknown:
        raise ValueError(f"there are no vertices {', '.join(unknown)}".rstrip())
    program = None
    if "script" in document:
        args = from_json(_Texts, document.get("args", ()))
        program = ProgramSpec(from_json(str, document["script"]), args, _text(document, "from"))
    environment = document.get("environment")
    runtime = Runtime(
        environment and from_json(EnvironmentSpec, environment),
        from_json(_Texts, document.get("packages", ())),
        variables=_pairs(document.get(VARIABLES, {})),
    )
    return JobGraph(
        name,
        JobType(document["type"]),
        vertices,
        from_json(_Texts, document.get("artifacts", ())),
        _pairs(document.get("config", {})),
        program,
        runtime,
        from_json(_Texts, document.get("ended", ())),
        tuple(
            NamedBounds(vertex, said.get("lowerBound"), said.get("upperBound"))
            for vertex, said in document.get("bounds", {}).items()
        ),
        from_json(_Texts, document.get("left_out", ())),
    )


def _read_vertex(job_name: str, document: Mapping[str, Any]) -> JobVertex:
    name, group = from_json(str, document["name"]), from_json(str, document["slotSharingGroup"])
    return JobVertex(
        vertex_id(job_name, name),
        name,
        _read_operation(document),
        tuple(_read_input(job_name, each) for each in document.get("inputs", ())),
        from_json(int, document["parallelism"]),
        from_json(int, document["lowerBound"]),
        from_json(int, document["maxParallelism"]),
        group,
        slot_sharing_group_id(job_name, group),
        from_json(bool, document["stateful"]),
    )


def _read_input(job_name: str, document: Mapping[str, Any]) -> VertexInput:
    name = from_json(str, document["vertex"])
    partitioner, exchange = Partitioner(document["partitioner"]), Exchange(document["exchange"])
    keys = from_json(_Texts, document.get("keys", ()))
    return VertexInput(vertex_id(job_name, name), name, partitioner, keys, exchange)


def _read_operation(document: Mapping[str, Any]) -> Operation:
    if "planned" in document:
        return from_json(PlannedSpec, document["planned"])
    if "sql" in document:
        return SqlSpec(from_json(str, document["sql"]))
    if "python" in document:
        return PythonSpec(from_json(str, document["python"]))
    said = document["source"] if "source" in document else document["sink"]
    options = _pairs(said.get("options", {}))
    if "source" in document:
        return from_json(SourceSpec, {**said, "options": options})
    entry, mode = _text(said, "python"), OutputMode(said["outputMode"])
    python = None if entry is None else PythonSpec(entry)
    return SinkSpec(from_json(str, said["format"]), _text(said, "path"), mode, options, python)


def _text(document: Mapping[str, Any], name: str) -> str | None:
    return from_json(str, document[name]) if name in document else None


def _pairs(document: object) -> tuple[tuple[str, str], ...]:
    return tuple(from_json(_Pairs, document).items())


def to_document(graph: JobGraph) -> dict[str, object]:
    """The resolved document of ``graph``: plain dicts, lists, texts, numbers; `read_graph` of it is ``graph``."""
    return {
        "name": graph.name,
        "type": graph.type.value,
        **program_document(graph.program),
        **runtime_document(graph.runtime),
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
        "maxParallelism": vertex.max_parallelism,
        "stateful": vertex.stateful,
        "slotSharingGroup": vertex.slot_sharing_group,
    }


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

"""The job graph document: from the JSON or YAML that a person wrote to a checked `JobGraph`, and back.

`parse_document` reports every error at once, each with its place. What it accepts keeps the rules that `JobGraph`
and its consumers rely on. `to_document` writes every default out, so that a stored graph means the same for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app.model.environment import Runtime
from app.model.formats import FILE_FORMATS
from app.model.graphdoc_build import RawVertex, build, check_edges, derive, read_inputs
from app.model.graphdoc_fields import Errors, Fields, GraphErrors
from app.model.graphdoc_operations import (
    missing_module,
    python_of,
    read_entry,
    read_planned,
    read_sink,
    read_source,
    read_sql,
)
from app.model.graphdoc_settings import (
    check_size,
    read_artifacts,
    read_bounds,
    read_config,
    read_origin,
    read_program,
    read_runtime,
)
from app.model.jobgraph import (
    DEFAULT_BATCH_PARALLELISM,
    DEFAULT_SLOT_SHARING_GROUP,
    MAX_PARALLELISM_LIMIT,
    JobGraph,
    JobType,
    JobVertex,
    NamedBounds,
    Operation,
    PlannedSpec,
    ProgramSpec,
    PythonSpec,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)
from app.model.locations import plain_location
from app.model.sentences import kind_of, shown
from app.model.variables import VARIABLES

__all__ = ["MAX_VERTICES", "GraphErrors", "parse_document", "to_document"]

MAX_VERTICES: Final = 200

_FIELDS = ("name", "type", "artifacts", "environment", "packages", VARIABLES, "from", "config", "vertices")
_PROGRAM_FIELDS = (*_FIELDS, "script", "args", "ended", "bounds", "left_out")
_OPERATIONS = ("source", "sql", "python", "sink")
_PLANNED = ("planned",)
_REST_OF_VERTEX = ("inputs", "parallelism", "lowerBound", "maxParallelism", "stateful", "slotSharingGroup")
_ID = re.compile(r"[0-9a-fA-F]{32}\Z")


def parse_document(document: object, *, stored: bool = False) -> JobGraph:
    """The job graph that ``document`` (as decoded from JSON or YAML) describes, in topological order. ``stored``: it
    was accepted before, and what is refused only since then is taken; it may be that of a program, whose vertices were
    read from its plan.

    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    if not isinstance(document, Mapping):
        raise GraphErrors(
            [f"The job graph should be a mapping with {', '.join(_FIELDS)}, found {kind_of(document)}."]
        )
    errors = Errors(stored=stored)
    is_program = stored and "script" in document
    fields = Fields(errors, "", document, _PROGRAM_FIELDS if is_program else _FIELDS, "a job graph")
    name = fields.name("name", needed=True)
    fields.present("type", "STREAMING or BATCH")
    job_type = fields.choice("type", JobType)
    before = errors.count
    artifacts = read_artifacts(fields)
    listed = errors.count == before
    assumed = job_type or _meant(fields.raw("type"))
    config = read_config(fields, assumed, program=is_program)
    program = read_program(fields) if is_program else None
    runtime = read_runtime(fields)
    origin = read_origin(fields, assumed)
    if assumed is JobType.BATCH and not is_program:
        _refuse_runtime(fields)
    raw = _vertices(fields, assumed, _PLANNED if is_program else _OPERATIONS)
    _check_modules(errors, raw, artifacts, listed=listed)
    _check_paths(errors, raw)
    check_size(errors)
    order = check_edges(errors, raw, assumed)
    facts = derive(errors, order, assumed) if order else None
    if errors:
        raise GraphErrors(errors.texts())
    assert name is not None and job_type is not None and order is not None and facts is not None
    ended, left_out = (
        tuple(str(key) for key in document.get(field, ()) if is_program) for field in ("ended", "left_out")
    )
    bounds = read_bounds(fields) if is_program else ()
    vertices = build(name, order, facts)
    of_program = (program, runtime, ended, bounds, left_out)
    return JobGraph(name, job_type, vertices, artifacts, config, *of_program, origin)


def _refuse_runtime(fields: Fields) -> None:
    """Regions of a BATCH job rest on one version of Spark's plans and on pyarrow."""
    for name in ("environment", "packages"):
        if name in fields:
            fields.wrong(
                name,
                "is for STREAMING graphs and for programs: a BATCH graph runs in the environment of the server.",
            )


def _meant(wrong_type: object) -> JobType:
    """What the rest is checked as when the type is wrong, which has been reported: 'batch' means BATCH, so that its
    blocking edges are not reported too."""
    return JobType.BATCH if JobType.BATCH.lower() in str(wrong_type).lower() else JobType.STREAMING


def _vertices(fields: Fields, job_type: JobType, operations: tuple[str, ...]) -> list[RawVertex]:
    if not fields.present("vertices", "a list of vertices"):
        return []
    found: list[RawVertex] = []
    elements = fields.sequence("vertices", "a list of vertices", MAX_VERTICES)
    if not elements and isinstance(fields.raw("vertices"), list | tuple):
        fields.wrong("vertices", "must not be empty: at least a source and a sink are expected.")
    allowed = ("name", *operations, *_REST_OF_VERTEX)
    for index, value in enumerate(elements):
        place = f"vertices[{index}]"
        if isinstance(value, Mapping):
            vertex = Fields(fields.errors, place, value, allowed, "a vertex")
            found.append(_vertex(vertex, index, job_type, operations))
        else:
            fields.errors.add(
                place, f"should be a mapping with {', '.join(allowed)}, found {kind_of(value)}."
            )
            found.append(RawVertex(index, None, None, None, ()))
    first: dict[str, int] = {}
    for raw in found:
        if raw.name is not None and first.setdefault(raw.name, raw.index) != raw.index:
            fields.errors.add(
                f"vertices[{raw.index}].name",
                f"{shown(raw.name)} is the name of vertices[{first[raw.name]}] already: names must be unique.",
            )
    return found


def _vertex(fields: Fields, index: int, job_type: JobType, operations: tuple[str, ...]) -> RawVertex:
    name = fields.name("name", needed=True)
    if name is not None and _ID.match(name):
        fields.wrong("name", "must not be 32 hexadecimal digits: it could be taken for a vertex id.")
    kind, operation = _operation(fields, job_type, operations)
    inputs = read_inputs(fields)
    _check_input_count(fields, kind)
    batch = job_type is JobType.BATCH
    parallelism = fields.integer("parallelism", 1, MAX_PARALLELISM_LIMIT)
    lower = fields.integer("lowerBound", 1, MAX_PARALLELISM_LIMIT)
    maximum = fields.integer("maxParallelism", 1, MAX_PARALLELISM_LIMIT)
    upper = parallelism
    if upper is None:
        # A BATCH job decides for itself, so the default leaves room; see docs/batch.md.
        upper = min(DEFAULT_BATCH_PARALLELISM, maximum or DEFAULT_BATCH_PARALLELISM) if batch else 1
    if lower is not None and lower > upper and ("parallelism" not in fields or parallelism is not None):
        fields.wrong(
            "lowerBound", f"{lower} is higher than the parallelism {upper}, the initial upper bound."
        )
    if maximum is not None and upper > maximum:
        fields.wrong("parallelism", f"{upper} is higher than the maxParallelism {maximum}.")
    stateful = fields.boolean("stateful")
    if stateful and kind in ("source", "sink"):
        fields.wrong("stateful", f"cannot be true for a {kind}: only SQL and Python vertices keep state.")
    group = fields.name("slotSharingGroup") or DEFAULT_SLOT_SHARING_GROUP
    if batch and group != DEFAULT_SLOT_SHARING_GROUP:
        fields.wrong(
            "slotSharingGroup", "is for STREAMING jobs: all vertices of a BATCH job share its slots."
        )
    return RawVertex(index, name, kind, operation, inputs, upper, lower or 1, maximum, stateful, group)


def _operation(
    fields: Fields, job_type: JobType, allowed: tuple[str, ...]
) -> tuple[str | None, Operation | None]:
    given = [name for name in allowed if name in fields]
    operations: list[Operation | None] = []
    for name in given:
        if name == "source":
            operations.append(read_source(fields, job_type))
        elif name == "sink":
            operations.append(read_sink(fields, job_type))
        elif name == "planned":
            operations.append(read_planned(fields))
        else:
            operations.append(read_sql(fields) if name == "sql" else read_entry(fields, "python"))
    if len(given) == 1:
        operation = operations[0]
        return operation.role.lower() if isinstance(operation, PlannedSpec) else given[0], operation
    found = f"found {' and '.join(given)}" if given else "found none"
    fields.errors.add(fields.place, f"should have exactly one of {', '.join(allowed)}, {found}.")
    return None, None


def _check_input_count(fields: Fields, kind: str | None) -> None:
    value = fields.raw("inputs")
    if kind is None or ("inputs" in fields and not isinstance(value, list | tuple)):
        return
    count = len(value) if isinstance(value, list | tuple) else 0
    if kind == "source" and count:
        fields.wrong("inputs", f"a source has no inputs, found {count}.")
    elif kind == "program" and count:
        fields.wrong("inputs", f"a program has no inputs, found {count}.")
    elif kind == "sink" and count != 1 and ("planned" not in fields or not count):
        fields.wrong("inputs", f"a sink has exactly one input, found {count or 'none'}.")
    elif kind in ("sql", "python", "operator") and not count:
        fields.wrong("inputs", "at least one input is expected, found none.")


def _check_paths(errors: Errors, raw: list[RawVertex]) -> None:
    """No sink writes where a source reads: a STREAMING job would read its own rows for ever, a BATCH job some. Two
    queries do not write into one folder, if Spark keeps the log of one there."""
    read: dict[str | None, RawVertex] = {}
    written: dict[str | None, RawVertex] = {}
    for vertex in raw:
        if isinstance(vertex.operation, SourceSpec) and vertex.operation.path:
            read.setdefault(plain_location(vertex.operation.path), vertex)
    for vertex in raw:
        if not isinstance(vertex.operation, SinkSpec) or not (path := vertex.operation.path):
            continue
        if (source := read.get(plain_location(path))) is not None:
            errors.add(
                f"{vertex.place}.sink.path",
                f"{shown(path)} is what {source.place}.source reads: the job would read what it writes.",
            )
        if vertex.operation.format in FILE_FORMATS and not errors.stored:
            other = written.setdefault(plain_location(path), vertex)
            if other is not vertex:
                errors.add(
                    f"{vertex.place}.sink.path",
                    f"{shown(path)} is where {other.place}.sink writes: Spark's log in a folder is that of one query, "
                    "so give each sink a folder of its own.",
                )


def _check_modules(errors: Errors, raw: list[RawVertex], artifacts: tuple[str, ...], *, listed: bool) -> None:
    """``listed``: the artifacts are without errors; otherwise those say enough."""
    for vertex in raw:
        python = python_of(vertex.operation)
        sentence = missing_module(python, artifacts) if python is not None and listed else None
        if sentence is not None:
            field = "sink.python" if vertex.kind == "sink" else "python"
            errors.add(f"{vertex.place}.{field}", sentence)


def to_document(graph: JobGraph) -> dict[str, object]:
    """The resolved document of ``graph``: plain dicts, lists, texts, numbers; `parse_document` of it is ``graph``."""
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

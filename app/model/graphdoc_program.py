"""The document of a program: an ordinary PySpark script, submitted without vertices, and the graph that it gets once it
was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.model.environment import SERVERS, Runtime
from app.model.graphdoc import (
    parse_document,
    planned_document,
    program_document,
    runtime_document,
    to_document,
)
from app.model.graphdoc_build import DEFAULT_STATE_PARTITIONS
from app.model.graphdoc_fields import Errors, Fields, GraphErrors, below
from app.model.graphdoc_settings import (
    MAX_ARTIFACTS,
    check_size,
    read_artifacts,
    read_bounds,
    read_config,
    read_program,
    read_runtime,
)
from app.model.graphwalk import reached
from app.model.jobgraph import (
    DEFAULT_BATCH_PARALLELISM,
    JobGraph,
    JobType,
    NamedBounds,
    PlannedSpec,
    ProgramSpec,
    Role,
)
from app.model.planned import Planned, PlannedVertex
from app.model.sentences import hint, kind_of, shown
from app.model.variables import VARIABLES

_FIELDS = (
    "name",
    "type",
    "script",
    "args",
    "artifacts",
    "environment",
    "packages",
    VARIABLES,
    "from",
    "config",
    "bounds",
)
_REFUSED: Final = {
    "vertices": "the vertices of a program are read from its plan: say how parallel they may be under bounds, by name."
}


@dataclass(frozen=True, slots=True)
class ProgramDocument:
    """A program that is not planned yet. ``artifacts`` has its script. ``inherited``: the bounds of vertices of the
    version that it replaces, which count for those that it has too."""

    name: str
    type: JobType
    program: ProgramSpec
    artifacts: tuple[str, ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    bounds: tuple[NamedBounds, ...] = ()
    inherited: tuple[NamedBounds, ...] = ()
    runtime: Runtime = SERVERS

    def to_document(self) -> dict[str, object]:
        """The document without bounds, for the driver that plans the program; `parse_program` reads it."""
        return {
            "name": self.name,
            "type": self.type.value,
            **program_document(self.program),
            **runtime_document(self.runtime),
            "artifacts": list(self.artifacts),
            "config": dict(self.config),
        }


def is_program(document: object) -> bool:
    """Whether a document is that of a program, and not a job graph."""
    return isinstance(document, Mapping) and "script" in document


def parse_submitted(document: object) -> JobGraph | ProgramDocument:
    """What a client submits: a job graph or a program.

    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    return parse_program(document) if is_program(document) else parse_document(document)


def parse_program(document: object) -> ProgramDocument:
    """The program that ``document`` (as decoded from JSON or YAML) describes.

    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    if not isinstance(document, Mapping):
        raise GraphErrors(
            [f"The program should be a mapping with {', '.join(_FIELDS)}, found {kind_of(document)}."]
        )
    errors = Errors()
    known = {name: value for name, value in document.items() if name not in _REFUSED}
    fields = Fields(errors, "", known, _FIELDS, "a program")
    for refused, sentence in _REFUSED.items():
        if refused in document:
            errors.add(refused, sentence)
    name = fields.name("name", needed=True)
    job_type = (fields.choice("type", JobType) if "type" in fields else None) or JobType.STREAMING
    program = read_program(fields)
    runtime = read_runtime(fields)
    artifacts = read_artifacts(fields)
    config = read_config(fields, job_type, program=True)
    bounds = read_bounds(fields)
    if "from" in fields and job_type is JobType.BATCH:
        fields.wrong("from", "is for programs with streaming queries: a BATCH program has no checkpoint.")
    check_size(errors)
    if program is not None and program.script not in artifacts:
        artifacts = (program.script, *artifacts)
        if len(artifacts) > MAX_ARTIFACTS:
            fields.wrong(
                "artifacts",
                f"with the script there are {len(artifacts)}: at most {MAX_ARTIFACTS} are allowed.",
            )
    if errors:
        raise GraphErrors(errors.texts())
    assert name is not None and program is not None
    return ProgramDocument(name, job_type, program, artifacts, config, bounds, runtime=runtime)


def graph_of_batch(program: ProgramDocument) -> JobGraph:
    """The job graph of a BATCH program: one vertex with the name of its script.

    Raises:
        GraphErrors: bounds of another vertex, or that cannot be.
    """
    vertex = PlannedVertex(program.program.script.removesuffix(".py"), Role.PROGRAM, "batch")
    return graph_of(program, Planned((vertex,)), default=DEFAULT_BATCH_PARALLELISM)


def graph_of(
    program: ProgramDocument, planned: Planned, *, default: int = DEFAULT_STATE_PARTITIONS
) -> JobGraph:
    """The job graph of a program with the vertices that its plan has, within the bounds that its document has. Those of
    other vertices wait for the program to start their queries.

    ``planned`` comes from a process that runs the code of users, so all of it is checked. ``default``: the upper bound
    of a vertex whose query keeps no state.

    Raises:
        GraphErrors: bounds that cannot be, or, in a BATCH program, of vertices that are not there; or what was planned
            is not a graph.
    """
    errors = Errors()
    by_name = {vertex.name: vertex for vertex in planned.vertices}
    later = tuple(bounds for bounds in program.bounds if bounds.vertex not in by_name)
    if program.type is JobType.BATCH:
        for bounds in later:
            names = ", ".join(shown(name) for name in by_name)
            errors.add(
                below("bounds", bounds.vertex),
                f"the program has no vertex of this name.{hint(bounds.vertex, by_name)} Its vertices are {names}.",
            )
    partitions = _partitions_of_queries(planned.vertices)
    wanted = {bounds.vertex: bounds for bounds in (*program.inherited, *program.bounds)}
    vertices = [
        _vertex(errors, vertex, wanted.get(vertex.name), partitions.get(vertex.name), default)
        for vertex in planned.vertices
    ]
    if errors:
        raise GraphErrors(errors.texts())
    graph = parse_document({**program.to_document(), "vertices": vertices}, stored=True)
    return replace(graph, bounds=later)


def grown(graph: JobGraph, found: Sequence[PlannedVertex]) -> JobGraph:
    """``graph`` with the vertices of a query that its program has started, behind those that it has; ``graph`` itself
    if it has them all. ``found`` is checked, as in `graph_of`. Bounds that its document has for them are kept within
    what the state of the query allows.

    Raises:
        GraphErrors: what was found is not a graph.
    """
    new = [vertex for vertex in found if vertex.name not in graph.by_name]
    if not new:
        return graph
    partitions = _partitions_of_queries(found)
    errors = Errors()
    vertices: list[dict[str, object]] = []
    declared = {bounds.vertex: bounds for bounds in graph.bounds}
    for vertex in found:
        number = partitions.get(vertex.name)
        bounds = _possible(declared.get(vertex.name), number if vertex.stateful else None)
        vertices.append(_vertex(errors, vertex, bounds, number, DEFAULT_STATE_PARTITIONS))
    parsed = parse_document({**to_document(graph), "vertices": vertices}, stored=True)
    # What a document does not have of the vertices before stays.
    added = tuple(vertex for vertex in parsed.vertices if vertex.name not in graph.by_name)
    return replace(graph, vertices=(*graph.vertices, *added))


def _possible(bounds: NamedBounds | None, most: int | None) -> NamedBounds | None:
    """``bounds`` of a vertex whose parallelism is at most ``most``, if that is limited."""
    if bounds is None:
        return None
    upper = max(bounds.upper or DEFAULT_STATE_PARTITIONS, bounds.lower or 1)
    upper = min(upper, most or upper)
    return NamedBounds(bounds.vertex, min(bounds.lower or 1, upper), upper)


def _vertex(
    errors: Errors, vertex: PlannedVertex, bounds: NamedBounds | None, partitions: int | None, default: int
) -> dict[str, object]:
    """``partitions``: of the state of its query, if that has any."""
    default = partitions or default
    lower = bounds.lower if bounds is not None else None
    upper = bounds.upper if bounds is not None else None
    place = below("bounds", vertex.name)
    if vertex.stateful and upper is not None and partitions is not None and upper > partitions:
        errors.add(
            f"{place}.upperBound",
            f"{upper} is more than the {partitions} state partitions of its query. A new checkpoint gets as many as "
            "spark.sql.shuffle.partitions says in config; those of one that is there are fixed.",
        )
    elif lower is not None and upper is None and lower > default:
        errors.add(
            f"{place}.lowerBound",
            f"{lower} is higher than the upper bound {default}, which is the default: give an upperBound too.",
        )
    return {
        "name": vertex.name,
        "planned": planned_document(
            PlannedSpec(vertex.role, vertex.operator, vertex.checkpoint, vertex.path, vertex.fixed)
        ),
        **({"inputs": list(vertex.inputs)} if vertex.inputs else {}),
        "parallelism": upper or default,
        "lowerBound": lower or 1,
        **({"maxParallelism": partitions} if vertex.stateful and partitions is not None else {}),
        "stateful": vertex.stateful,
    }


def _partitions_of_queries(vertices: Sequence[PlannedVertex]) -> dict[str, int]:
    """For each vertex of a query that keeps state, the number of its state partitions."""
    found: dict[str, int] = {}
    by_name = {vertex.name: vertex for vertex in vertices}
    consumed = {name for vertex in vertices for name in vertex.inputs}
    for sink in vertices:
        if sink.name in consumed:
            continue
        own = reached([sink.name], lambda name: [each for each in by_name[name].inputs if each in by_name])
        numbers = [by_name[name].state_partitions for name in own if by_name[name].stateful]
        most = max((number for number in numbers if number is not None), default=None)
        if most is not None:
            found |= dict.fromkeys(own, most)
    return found

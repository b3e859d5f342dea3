"""The document of a program: an ordinary PySpark script, submitted without vertices; and its graph, which grows with
the queries that it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.model.analysis import queries
from app.model.environment import SERVERS, Runtime
from app.model.graphdoc import (
    parse_document,
    planned_document,
    program_document,
    runtime_document,
    to_document,
)
from app.model.graphdoc_build import DEFAULT_STATE_PARTITIONS, derived_max_parallelism
from app.model.graphdoc_fields import Errors, Fields, GraphErrors, below
from app.model.graphdoc_settings import (
    MAX_ARTIFACTS,
    check_size,
    read_artifacts,
    read_bounds,
    read_config,
    read_origin,
    read_program,
    read_runtime,
)
from app.model.graphwalk import reached
from app.model.jobgraph import (
    DEFAULT_BATCH_PARALLELISM,
    JobGraph,
    JobType,
    JobVertex,
    NamedBounds,
    PlannedSpec,
    ProgramSpec,
    Role,
)
from app.model.planned import PlannedVertex, planned_of
from app.model.sentences import hint, kind_of
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
ENDED_KEPT: Final = 50
"""Of queries of a program that have ended, or are absent, the vertices of so many stay in its graph, the last ones."""

_REFUSED: Final = {
    "vertices": "the vertices of a program are read from its plan: say how parallel they may be under bounds, by name."
}


@dataclass(frozen=True, slots=True)
class ProgramDocument:
    """A program as it is submitted. ``artifacts`` has its script."""

    name: str
    type: JobType
    program: ProgramSpec
    artifacts: tuple[str, ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    bounds: tuple[NamedBounds, ...] = ()
    runtime: Runtime = SERVERS
    origin: str | None = None

    def to_document(self) -> dict[str, object]:
        """The document without bounds; `parse_program` reads it."""
        return {
            "name": self.name,
            "type": self.type.value,
            **program_document(self.program),
            **runtime_document(self.runtime),
            "artifacts": list(self.artifacts),
            "config": dict(self.config),
            **({} if self.origin is None else {"from": self.origin}),
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
    origin = read_origin(fields, job_type)
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
    return ProgramDocument(name, job_type, program, artifacts, config, bounds, runtime, origin)


def graph_of(program: ProgramDocument) -> JobGraph:
    """The job graph of a program before it runs: one vertex with the name of its script. A BATCH program keeps it; in
    the place of that of a STREAMING one come the vertices of its first query (`grown`).

    Raises:
        GraphErrors: bounds that cannot be; in a BATCH program also those of another vertex.
    """
    errors = Errors()
    vertex = PlannedVertex(program.program.script.removesuffix(".py"), Role.PROGRAM, program.type.lower())
    if program.type is JobType.BATCH:
        for bounds in program.bounds:
            if bounds.vertex != vertex.name:
                errors.add(
                    below("bounds", bounds.vertex),
                    f"the program has no vertex of this name.{hint(bounds.vertex, (vertex.name,))} Its only vertex is "
                    f"{vertex.name}.",
                )
        own = next((bounds for bounds in program.bounds if bounds.vertex == vertex.name), None)
        later: tuple[NamedBounds, ...] = ()
    else:
        usual = [_possible(bounds, None, stateful=False) for bounds in program.bounds]
        most = max((one.upper or 1 for one in usual if one is not None), default=None)
        own, later = NamedBounds(vertex.name, None, most), program.bounds
    default = DEFAULT_BATCH_PARALLELISM if program.type is JobType.BATCH else DEFAULT_STATE_PARTITIONS
    vertices = [_vertex(errors, vertex, own, None, default)]
    if errors:
        raise GraphErrors(errors.texts())
    graph = parse_document({**program.to_document(), "vertices": vertices}, stored=True)
    return replace(graph, bounds=later)


def graph_of_version(program: ProgramDocument, before: JobGraph) -> JobGraph:
    """The job graph of a new version of the STREAMING program of ``before``. It begins with the vertices of that,
    within the bounds that its own document has for them; its queries put theirs in their place (`grown`). Its
    ``bounds`` are those of its document: what waits for vertices besides is known when it comes into force.

    Raises:
        GraphErrors: bounds that cannot be.
    """
    graph = graph_of(program)
    return graph if before.awaits_query else with_queries_of(before, graph)


def with_queries_of(before: JobGraph, graph: JobGraph) -> JobGraph:
    """``graph``, of a version of a program whose queries are those of ``before``, within its own bounds."""
    said = {bounds.vertex: bounds for bounds in graph.bounds}
    return replace(graph, vertices=_bounded(before, said), ended=before.ended, left_out=before.left_out)


def bounds_of(vertices: Iterable[JobVertex]) -> dict[str, NamedBounds]:
    """The bounds that ``vertices`` have, by name."""
    return {each.name: NamedBounds(each.name, each.lower_bound, each.parallelism) for each in vertices}


def _bounded(graph: JobGraph, said: Mapping[str, NamedBounds]) -> tuple[JobVertex, ...]:
    """The vertices of ``graph``, within the bounds that are ``said`` of them by name, as far as their state allows."""
    partitions = {each.id: query.state_partitions for query in queries(graph) for each in query.flow}
    vertices = []
    for vertex in graph.vertices:
        most = vertex.max_parallelism
        number = most if vertex.stateful else partitions.get(vertex.id)
        bounds = _possible(said.get(vertex.name), number, stateful=vertex.stateful)
        if bounds is not None:
            upper = bounds.upper or 1
            most = most if vertex.stateful else max(most, derived_max_parallelism(upper))
            vertex = replace(vertex, lower_bound=bounds.lower or 1, parallelism=upper, max_parallelism=most)
        vertices.append(vertex)
    return tuple(vertices)


def grown(graph: JobGraph, found: Sequence[PlannedVertex]) -> JobGraph:
    """``graph`` with the vertices of a query that its program has started; ``graph`` itself if it has them as they are.
    They come behind those that it has, and in the place of other vertices that the query had, in an earlier version of
    the program, and of that which stands for a program without a query.

    ``found`` comes from a process that runs the code of users, so all of it is checked. Bounds that the document has
    for new vertices are kept within what the state of the query allows.

    Raises:
        GraphErrors: what was found is not a graph.
    """
    if graph.awaits_query:
        return grown(replace(graph, vertices=()), found)
    sink = found[-1].name if found else ""
    former = next((query for query in queries(graph) if query.sink.name == sink), None)
    had = () if former is None else former.flow
    if graph.vertices and {*map(planned_of, had)} == {replace(one, state_partitions=None) for one in found}:
        return graph
    kept = tuple(vertex for vertex in graph.vertices if vertex not in had)
    if taken := {vertex.name for vertex in kept} & {vertex.name for vertex in found}:
        raise GraphErrors([f"the vertex {min(taken)} is that of another query."])
    if program := next((vertex.name for vertex in found if vertex.role is Role.PROGRAM), None):
        raise GraphErrors([f"the vertex {program} stands for a program, and cannot be part of a query."])
    partitions = _partitions_of_queries(found)
    errors = Errors()
    vertices: list[dict[str, object]] = []
    declared = {bounds.vertex: bounds for bounds in graph.bounds} | bounds_of(had)
    for vertex in found:
        number = partitions.get(vertex.name)
        bounds = _possible(declared.get(vertex.name), number, stateful=vertex.stateful)
        vertices.append(_vertex(errors, vertex, bounds, number, DEFAULT_STATE_PARTITIONS))
    if errors:
        raise GraphErrors(errors.texts())
    parsed = parse_document({**to_document(graph), "vertices": vertices}, stored=True)
    return replace(graph, vertices=(*kept, *parsed.vertices))


def _possible(bounds: NamedBounds | None, partitions: int | None, *, stateful: bool) -> NamedBounds | None:
    """``bounds`` of a vertex, as far as its state allows. ``partitions``: of the state of its query, if that has any:
    they are the upper bound of which nothing is said."""
    if bounds is None:
        return None
    upper = max(bounds.upper or partitions or DEFAULT_STATE_PARTITIONS, bounds.lower or 1)
    if stateful and partitions is not None:
        upper = min(upper, partitions)
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

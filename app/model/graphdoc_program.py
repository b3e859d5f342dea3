"""The document of a program: an ordinary PySpark script, submitted without vertices; and its graph, which grows with
the queries that it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.model.analysis import queries
from app.model.environment import SERVERS, Runtime
from app.model.graphdoc import MAX_VERTICES
from app.model.graphdoc_build import (
    DEFAULT_STATE_PARTITIONS,
    RawInput,
    RawVertex,
    derived_max_parallelism,
    vertices_of,
)
from app.model.grapherrors import Errors, GraphErrors, below, name_fault, text_fault
from app.model.graphwalk import reached
from app.model.jobgraph import (
    DEFAULT_BATCH_PARALLELISM,
    MAX_PARALLELISM_LIMIT,
    JobGraph,
    JobType,
    JobVertex,
    NamedBounds,
    PlannedSpec,
    ProgramSpec,
    Role,
)
from app.model.planned import PlannedVertex, planned_of
from app.model.sentences import hint

ENDED_KEPT: Final = 50
"""Of queries of a program that have ended, or are absent, the vertices of so many stay in its graph, the last ones."""


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


def graph_of(program: ProgramDocument) -> JobGraph:
    """The job graph of a program before it runs: one vertex with the name of its script. A BATCH program keeps it; in
    the place of that of a STREAMING one come the vertices of its first query (`grown`).

    Raises:
        GraphErrors: bounds that cannot be; in a BATCH program also those of another vertex.
    """
    errors = Errors()
    vertex = PlannedVertex(program.program.script.removesuffix(".py"), Role.PROGRAM, program.type.lower())
    if program.type is JobType.BATCH:
        default, own = DEFAULT_BATCH_PARALLELISM, NamedBounds(vertex.name, None, None)
        for bounds in program.bounds:
            place = below("bounds", bounds.vertex)
            if bounds.vertex == vertex.name:
                own = bounds
                if bounds.upper is None and (bounds.lower or 1) > default:
                    sentence = (
                        f"{bounds.lower} is higher than the upper bound {default}, which is the default"
                    )
                    errors.add(f"{place}.lowerBound", f"{sentence}: give an upperBound too.")
            else:
                near = hint(bounds.vertex, (vertex.name,))
                sentence = f"the program has no vertex of this name.{near} Its only vertex is {vertex.name}."
                errors.add(place, sentence)
    else:
        usual = [_possible(bounds, None, stateful=False) for bounds in program.bounds]
        most = max((one.upper or 1 for one in usual if one is not None), default=None)
        default, own = DEFAULT_STATE_PARTITIONS, NamedBounds(vertex.name, None, most)
    if errors:
        raise GraphErrors(errors.texts())
    vertices = _vertices(program.name, program.type, [(vertex, own, None)], default)
    of, later = program, () if program.type is JobType.BATCH else program.bounds
    return JobGraph(
        of.name, of.type, vertices, of.artifacts, of.config, of.program, of.runtime, (), later, (), of.origin
    )


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
    planned: list[_Planned] = []
    declared = {bounds.vertex: bounds for bounds in graph.bounds} | bounds_of(had)
    for vertex in found:
        number = partitions.get(vertex.name)
        bounds = _possible(declared.get(vertex.name), number, stateful=vertex.stateful)
        planned.append((vertex, bounds, number))
    vertices = _vertices(graph.name, graph.type, planned, DEFAULT_STATE_PARTITIONS)
    return replace(graph, vertices=(*kept, *vertices))


def _possible(bounds: NamedBounds | None, partitions: int | None, *, stateful: bool) -> NamedBounds | None:
    """``bounds`` of a vertex, as far as its state allows. ``partitions``: of the state of its query, if that has any:
    they are the upper bound of which nothing is said."""
    if bounds is None:
        return None
    upper = max(bounds.upper or partitions or DEFAULT_STATE_PARTITIONS, bounds.lower or 1)
    if stateful and partitions is not None:
        upper = min(upper, partitions)
    return NamedBounds(bounds.vertex, min(bounds.lower or 1, upper), upper)


_Planned = tuple[PlannedVertex, NamedBounds | None, int | None]
"""A vertex, its bounds, and the partitions of the state of its query, if that has any."""


def _vertices(
    name: str, job_type: JobType, planned: Sequence[_Planned], default: int
) -> tuple[JobVertex, ...]:
    """
    Raises:
        GraphErrors: they are no graph.
    """
    errors, raw = Errors(), []
    if len(planned) > MAX_VERTICES:
        errors.add("vertices", f"has {len(planned)} elements: at most {MAX_VERTICES} are allowed.")
    for index, (vertex, bounds, partitions) in enumerate(planned[:MAX_VERTICES]):
        place = f"vertices[{index}]"
        for field in ("name", "operator", "checkpoint", "path", "fixed"):
            text = getattr(vertex, field) or ""
            if fault := text_fault(text) or (name_fault(text) if field in ("name", "operator") else None):
                errors.add(f"{place}.{field}", fault)
        if partitions is not None and not 1 <= partitions <= MAX_PARALLELISM_LIMIT:
            errors.add(place, f"{partitions} is no number of state partitions.")
        spec = PlannedSpec(vertex.role, vertex.operator, vertex.checkpoint, vertex.path, vertex.fixed)
        inputs = tuple(RawInput(f"{place}.inputs[{at}]", each) for at, each in enumerate(vertex.inputs))
        upper = (bounds and bounds.upper) or partitions or default
        lower, most = (bounds and bounds.lower) or 1, partitions if vertex.stateful else None
        raw.append(RawVertex(index, vertex.name, spec, inputs, upper, lower, most, vertex.stateful))
    return vertices_of(errors, name, job_type, raw)


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

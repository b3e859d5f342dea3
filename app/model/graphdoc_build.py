"""The vertices and edges of a job graph document: the rules of the graph that they make, and what is computed from
them: which vertices are static, and every default.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.model.grapherrors import Errors, GraphErrors
from app.model.graphwalk import cycles, in_order, reached
from app.model.ids import slot_sharing_group_id, vertex_id
from app.model.jobgraph import (
    DEFAULT_SLOT_SHARING_GROUP,
    MAX_PARALLELISM_LIMIT,
    Exchange,
    JobType,
    JobVertex,
    Operation,
    Partitioner,
    PlannedSpec,
    PythonSpec,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)
from app.model.sentences import hint, shown

DEFAULT_STATE_PARTITIONS: Final = 12
"""Max parallelism of a stateful vertex that does not say it.

Flink's formula would give 128 at least. There a key group costs nothing; here it is a state partition, and each is
opened and committed in every micro-batch even when it is empty. Measured in docs/adr/0002-state-partitions.md.
"""

_KINDS: Final[Mapping[type, str]] = {
    SourceSpec: "source",
    SqlSpec: "sql",
    PythonSpec: "python",
    SinkSpec: "sink",
}
_BETWEEN = ("sql", "python", "operator")
_ID = re.compile(r"[0-9a-fA-F]{32}\Z")


@dataclass(frozen=True, slots=True)
class RawInput:
    """An input as written. ``partitioner`` None: left out."""

    place: str
    vertex: str
    partitioner: Partitioner | None = None
    keys: tuple[str, ...] = ()
    exchange: Exchange = Exchange.PIPELINED


@dataclass(frozen=True, slots=True)
class RawVertex:
    """A vertex as written; what was left out and has no default of its own is None. ``index``: its place in the
    document."""

    index: int
    name: str
    operation: Operation
    inputs: tuple[RawInput, ...]
    parallelism: int
    lower_bound: int = 1
    max_parallelism: int | None = None
    stateful: bool = False
    slot_sharing_group: str = DEFAULT_SLOT_SHARING_GROUP

    @property
    def place(self) -> str:
        return f"vertices[{self.index}]"

    @property
    def kind(self) -> str:
        """What it does, in a word."""
        of = self.operation
        return of.role.lower() if isinstance(of, PlannedSpec) else _KINDS[type(of)]


def vertices_of(
    errors: Errors, job_name: str, job_type: JobType, raw: Sequence[RawVertex]
) -> tuple[JobVertex, ...]:
    """The vertices of a job, in topological order and with every default in its place.

    Raises:
        GraphErrors: with all ``errors``, those that are known already and those of the vertices.
    """
    by_name: dict[str, RawVertex] = {}
    for vertex in raw:
        first = by_name.setdefault(vertex.name, vertex)
        if first is not vertex:
            sentence = f"{shown(vertex.name)} is the name of {first.place} already: names must be unique."
            errors.add(f"{vertex.place}.name", sentence)
        _check_vertex(errors, vertex, job_type)
    order = _checked_order(errors, raw, by_name, job_type)
    static = _static_names(errors, order, job_type)
    if errors:
        raise GraphErrors(errors.texts())
    return _build(job_name, job_type, order, static)


def _check_vertex(errors: Errors, vertex: RawVertex, job_type: JobType) -> None:
    def wrong(field: str, sentence: str) -> None:
        errors.add(f"{vertex.place}.{field}", sentence)

    kind, count, upper = vertex.kind, len(vertex.inputs), vertex.parallelism
    if _ID.match(vertex.name):
        wrong("name", "must not be 32 hexadecimal digits: it could be taken for a vertex id.")
    if kind in ("source", "program") and count:
        wrong("inputs", f"a {kind} has no inputs, found {count}.")
    elif kind == "sink" and count != 1 and (isinstance(vertex.operation, SinkSpec) or not count):
        wrong("inputs", f"a sink has exactly one input, found {count or 'none'}.")
    elif kind in _BETWEEN and not count:
        wrong("inputs", "at least one input is expected, found none.")
    if vertex.lower_bound > upper:
        wrong(
            "lowerBound",
            f"{vertex.lower_bound} is higher than the parallelism {upper}, the initial upper bound.",
        )
    if vertex.max_parallelism is not None and upper > vertex.max_parallelism:
        wrong("parallelism", f"{upper} is higher than the maxParallelism {vertex.max_parallelism}.")
    if job_type is JobType.BATCH and vertex.slot_sharing_group != DEFAULT_SLOT_SHARING_GROUP:
        wrong("slotSharingGroup", "is for STREAMING jobs: all vertices of a BATCH job share its slots.")


def _checked_order(
    errors: Errors, raw: Sequence[RawVertex], by_name: Mapping[str, RawVertex], job_type: JobType
) -> tuple[RawVertex, ...]:
    """Check the rules between vertices. The vertices in topological order; empty if there is no sound one."""
    known = errors.count
    for vertex in raw:
        _check_inputs(errors, vertex, by_name, job_type)
        _check_sql_names(errors, vertex)
    if not any(_is_end(vertex) for vertex in raw):
        errors.add("vertices", "there is no sink: at least one vertex with a sink is expected.")
    producers = {vertex.index: _producers(vertex, by_name) for vertex in raw}
    order = in_order(producers)
    if order is None:
        for cycle in cycles(producers):
            names = " -> ".join(raw[index].name for index in [*cycle, cycle[0]])
            errors.add("vertices", f"the inputs form a cycle: {names}.")
        return ()
    if len(by_name) < len(raw) or errors.count > known:
        # Whether every vertex leads to a sink cannot be told while inputs are wrong.
        return ()
    _check_reach(errors, raw, producers)
    return tuple(raw[index] for index in order)


def _is_end(vertex: RawVertex) -> bool:
    return vertex.kind in ("sink", "program")


def _check_inputs(
    errors: Errors, vertex: RawVertex, by_name: Mapping[str, RawVertex], job_type: JobType
) -> None:
    seen: set[str] = set()
    for edge in vertex.inputs:
        if edge.exchange is Exchange.BLOCKING and job_type is JobType.STREAMING:
            errors.add(
                f"{edge.place}.exchange", "BLOCKING is for BATCH jobs: a STREAMING job takes PIPELINED only."
            )
        producer = by_name.get(edge.vertex)
        if producer is None:
            near = "" if errors.full else hint(edge.vertex, by_name)
            errors.add(edge.place, f"there is no vertex named {shown(edge.vertex)}.{near}")
        elif producer is vertex:
            errors.add(edge.place, f"{shown(edge.vertex)} is the vertex itself: it cannot be its own input.")
        elif edge.vertex in seen:
            errors.add(edge.place, f"{shown(edge.vertex)} is an input already: each input is listed once.")
        elif producer.kind == "sink":
            errors.add(edge.place, f"{shown(edge.vertex)} is a sink: a sink has no consumers.")
        elif edge.partitioner is Partitioner.FORWARD:
            _check_forward(errors, edge, producer, vertex)
        seen.add(edge.vertex)


def _check_forward(errors: Errors, edge: RawInput, producer: RawVertex, vertex: RawVertex) -> None:
    place = f"{edge.place}.partitioner"
    if edge.exchange is Exchange.BLOCKING:
        # The parallelism of the reader is decided from what the producer left, so it cannot be promised to be the same.
        errors.add(
            place,
            "FORWARD is for PIPELINED edges: the parallelism of each side of a BLOCKING edge is decided on its own. "
            "Take REBALANCE.",
        )
    elif producer.parallelism != vertex.parallelism:
        errors.add(
            place,
            f"FORWARD needs equal parallelism: {shown(producer.name)} has {producer.parallelism}, this vertex "
            f"{vertex.parallelism}. Take REBALANCE.",
        )


def _check_sql_names(errors: Errors, vertex: RawVertex) -> None:
    if not isinstance(vertex.operation, SqlSpec):
        return
    seen: dict[str, str] = {}
    for edge in vertex.inputs:
        other = seen.setdefault(edge.vertex.lower(), edge.vertex)
        if other != edge.vertex:
            errors.add(
                edge.place, f"{shown(edge.vertex)} and {shown(other)} are the same name in SQL: rename one."
            )


def _check_reach(errors: Errors, raw: Sequence[RawVertex], producers: Mapping[int, set[int]]) -> None:
    used = reached([vertex.index for vertex in raw if _is_end(vertex)], producers.__getitem__)
    consumed = set().union(*producers.values())
    for vertex in raw:
        if vertex.index not in used:
            why = "it leads to no sink" if vertex.index in consumed else "no vertex has it as input"
            errors.add(vertex.place, f"the result of {shown(vertex.name)} is not used: {why}.")


def _producers(vertex: RawVertex, by_name: Mapping[str, RawVertex]) -> set[int]:
    """Indices of the producers. A vertex that is its own input has been reported and is left out."""
    found = {by_name[edge.vertex].index for edge in vertex.inputs if edge.vertex in by_name}
    return found - {vertex.index}


def max_of(parallelism: int, *, stateful: bool) -> int:
    """The max parallelism of a vertex of a STREAMING job, of whose own nothing is said."""
    return max(DEFAULT_STATE_PARTITIONS, parallelism) if stateful else derived_max_parallelism(parallelism)


def derived_max_parallelism(parallelism: int) -> int:
    """Flink's max parallelism of a vertex that does not say it: 1.5 times, as a power of two from 128 up."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), 128), MAX_PARALLELISM_LIMIT)


def _static_names(errors: Errors, order: Sequence[RawVertex], job_type: JobType) -> frozenset[str]:
    """Names of the vertices that do not stream. ``order``: topological."""
    static: set[str] = set()
    for vertex in order:
        if not _is_static(vertex, static):
            continue
        static.add(vertex.name)
        if vertex.kind == "sink" and job_type is JobType.STREAMING:
            errors.add(
                f"{vertex.place}.inputs[0]",
                f"{shown(vertex.inputs[0].vertex)} comes from static sources only: a sink of a STREAMING job needs a "
                "source that streams.",
            )
    return frozenset(static)


def _is_static(vertex: RawVertex, static: set[str]) -> bool:
    if vertex.kind == "source":
        return isinstance(vertex.operation, SourceSpec) and vertex.operation.static
    return bool(vertex.inputs) and all(edge.vertex in static for edge in vertex.inputs)


def _build(
    job_name: str, job_type: JobType, order: Sequence[RawVertex], static: frozenset[str]
) -> tuple[JobVertex, ...]:
    """The vertices of a document without errors, with every default in its place."""
    by_name = {vertex.name: vertex for vertex in order}
    consumers = Counter(edge.vertex for vertex in order for edge in vertex.inputs)
    vertices: list[JobVertex] = []
    for vertex in order:
        # Only Spark knows, once it has analysed what the vertex does to its stream.
        is_assumed = (
            job_type is JobType.STREAMING and vertex.kind in ("sql", "python") and vertex.name not in static
        )
        stateful = is_assumed or vertex.stateful
        inputs: list[VertexInput] = []
        for edge in vertex.inputs:
            producer = by_name[edge.vertex]
            partitioner = edge.partitioner or _partitioner(
                edge, producer, vertex, static, alone=consumers[edge.vertex] == 1
            )
            inputs.append(
                VertexInput(
                    vertex_id(job_name, edge.vertex), edge.vertex, partitioner, edge.keys, edge.exchange
                )
            )
        vertices.append(
            JobVertex(
                id=vertex_id(job_name, vertex.name),
                name=vertex.name,
                operation=vertex.operation,
                inputs=tuple(inputs),
                parallelism=vertex.parallelism,
                lower_bound=vertex.lower_bound,
                max_parallelism=vertex.max_parallelism or max_of(vertex.parallelism, stateful=stateful),
                slot_sharing_group=vertex.slot_sharing_group,
                slot_sharing_group_id=slot_sharing_group_id(job_name, vertex.slot_sharing_group),
                stateful=stateful,
                is_assumed=is_assumed,
                max_is_assumed=is_assumed and vertex.max_parallelism is None,
            )
        )
    return tuple(vertices)


def _partitioner(
    edge: RawInput, producer: RawVertex, consumer: RawVertex, static: frozenset[str], *, alone: bool
) -> Partitioner:
    if edge.vertex in static:
        # A side table is read within its consumer's tasks; whether to broadcast it is Spark's choice or the user's.
        return Partitioner.REBALANCE
    if consumer.stateful:
        return Partitioner.HASH
    if alone and producer.parallelism == consumer.parallelism and edge.exchange is Exchange.PIPELINED:
        return Partitioner.FORWARD
    return Partitioner.REBALANCE

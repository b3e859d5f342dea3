"""The vertices and edges of a job graph document: the rules of the graph that they make, and what is computed from
them: which vertices are static or stateful, and every default.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.model.graphdoc_fields import Errors, Fields
from app.model.graphwalk import in_order, reached
from app.model.ids import slot_sharing_group_id, vertex_id
from app.model.jobgraph import (
    DEFAULT_SLOT_SHARING_GROUP,
    MAX_PARALLELISM_LIMIT,
    Exchange,
    JobType,
    JobVertex,
    Operation,
    OutputMode,
    Partitioner,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)
from app.model.sentences import hint, kind_of, shown
from app.model.sqltext import is_stateful, mentioned, tokens_of

DEFAULT_STATE_PARTITIONS: Final = 12
"""Max parallelism of a stateful vertex that does not say it.

Flink's formula would give 128 at least. There a key group costs nothing; here it is a state partition, and each is
opened and committed in every micro-batch even when it is empty. Measured in docs/adr/0002-state-partitions.md.
"""

MAX_INPUTS: Final = 50
MAX_KEYS: Final = 100

_INPUT_FIELDS = ("vertex", "partitioner", "keys", "exchange")
_SQL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class RawInput:
    """An input as written. ``partitioner`` None: left out. ``vertex`` None: it could not be read."""

    place: str
    vertex: str | None
    partitioner: Partitioner | None = None
    keys: tuple[str, ...] = ()
    exchange: Exchange = Exchange.PIPELINED


@dataclass(frozen=True, slots=True)
class RawVertex:
    """A vertex as written; what could not be read is None. ``kind`` is the field that says what it does."""

    index: int
    name: str | None
    kind: str | None
    operation: Operation | None
    inputs: tuple[RawInput, ...]
    parallelism: int = 1
    lower_bound: int = 1
    max_parallelism: int | None = None
    stateful: bool | None = None
    slot_sharing_group: str = DEFAULT_SLOT_SHARING_GROUP

    @property
    def place(self) -> str:
        return f"vertices[{self.index}]"


def read_inputs(fields: Fields) -> tuple[RawInput, ...]:
    """The ``inputs`` of a vertex, each a name or a mapping."""
    found: list[RawInput] = []
    for place, value in fields.elements("inputs", "a list of inputs", MAX_INPUTS):
        if isinstance(value, str):
            found.append(RawInput(place, value))
        elif isinstance(value, Mapping):
            found.append(_mapped_input(Fields(fields.errors, place, value, _INPUT_FIELDS, "an input")))
        else:
            expected = f"the name of a vertex or a mapping with {', '.join(_INPUT_FIELDS)}"
            fields.errors.add(place, f"should be {expected}, found {kind_of(value)}.")
            found.append(RawInput(place, None))
    return tuple(found)


def _mapped_input(fields: Fields) -> RawInput:
    vertex = fields.needed("vertex", "the name of a vertex")
    partitioner = fields.choice("partitioner", Partitioner)
    keys: list[str] = []
    for place, value in fields.elements("keys", "a list of column names", MAX_KEYS):
        key = fields.as_text(place, value, "a column name")
        if key is not None and key in keys:
            fields.errors.add(place, f"{shown(key)} is listed twice.")
        elif key is not None:
            keys.append(key)
    if "keys" in fields and isinstance(fields.raw("keys"), list | tuple):
        if partitioner not in (None, Partitioner.HASH):
            fields.wrong("keys", f"are for the partitioner HASH only, found partitioner {partitioner}.")
        elif not fields.raw("keys"):
            fields.wrong("keys", "must not be empty: leave it out, or list column names.")
    if keys and "partitioner" not in fields:
        partitioner = Partitioner.HASH
    exchange = fields.choice("exchange", Exchange) or Exchange.PIPELINED
    return RawInput(fields.place, vertex, partitioner, tuple(keys), exchange)


def check_edges(errors: Errors, raw: Sequence[RawVertex], job_type: JobType) -> tuple[RawVertex, ...] | None:
    """Check the rules between vertices. The vertices in topological order; None if there is no sound one."""
    by_name: dict[str, RawVertex] = {}
    for vertex in raw:
        if vertex.name is not None:
            by_name.setdefault(vertex.name, vertex)
    sound = bool(raw) and len(by_name) == len(raw) and all(vertex.kind for vertex in raw)
    for vertex in raw:
        sound &= _check_inputs(errors, vertex, by_name, job_type)
        _check_sql_names(errors, vertex)
    if raw and all(vertex.kind for vertex in raw) and not any(_is_end(vertex) for vertex in raw):
        errors.add("vertices", "there is no sink: at least one vertex with a sink is expected.")
        sound = False
    order = in_order({vertex.index: _producers(vertex, by_name) for vertex in raw})
    if order is None:
        for cycle in _cycles(raw, by_name):
            errors.add("vertices", f"the inputs form a cycle: {' -> '.join([*cycle, cycle[0]])}.")
        return None
    if not sound:
        # Whether every vertex leads to a sink cannot be told while inputs or kinds are missing.
        return None
    _check_reach(errors, raw, by_name)
    return tuple(raw[index] for index in order)


def _is_end(vertex: RawVertex) -> bool:
    return vertex.kind in ("sink", "program")


def _check_inputs(
    errors: Errors, vertex: RawVertex, by_name: Mapping[str, RawVertex], job_type: JobType
) -> bool:
    sound = True
    seen: set[str] = set()
    for edge in vertex.inputs:
        if edge.exchange is Exchange.BLOCKING and job_type is JobType.STREAMING:
            errors.add(
                f"{edge.place}.exchange", "BLOCKING is for BATCH jobs: a STREAMING job takes PIPELINED only."
            )
        if edge.vertex is None:
            sound = False
            continue
        producer = by_name.get(edge.vertex)
        if producer is None:
            near = "" if errors.full else hint(edge.vertex, by_name)
            errors.add(edge.place, f"there is no vertex named {shown(edge.vertex)}.{near}")
            sound = False
        elif producer is vertex:
            errors.add(edge.place, f"{shown(edge.vertex)} is the vertex itself: it cannot be its own input.")
            sound = False
        elif edge.vertex in seen:
            errors.add(edge.place, f"{shown(edge.vertex)} is an input already: each input is listed once.")
        elif producer.kind == "sink":
            errors.add(edge.place, f"{shown(edge.vertex)} is a sink: a sink has no consumers.")
            sound = False
        elif edge.partitioner is Partitioner.FORWARD:
            _check_forward(errors, edge, producer, vertex)
        seen.add(edge.vertex)
    return sound


def _check_forward(errors: Errors, edge: RawInput, producer: RawVertex, vertex: RawVertex) -> None:
    place = f"{edge.place}.partitioner"
    if edge.exchange is Exchange.BLOCKING:
        # The parallelism of the reader is decided from what the producer left, so it cannot be promised to be the same.
        errors.add(
            place,
            "FORWARD is for PIPELINED edges: the parallelism of each side of a BLOCKING edge is decided on its own. "
            "Take REBALANCE.",
        )
    elif producer.parallelism != vertex.parallelism and not errors.stored:
        # Of a stored graph one may have been lowered to the state partitions that it was given since.
        errors.add(
            place,
            f"FORWARD needs equal parallelism: {shown(producer.name or '')} has {producer.parallelism}, this vertex "
            f"{vertex.parallelism}. Take REBALANCE.",
        )


def _check_sql_names(errors: Errors, vertex: RawVertex) -> None:
    if not isinstance(vertex.operation, SqlSpec):
        return
    names = mentioned(tokens_of(vertex.operation.text))
    seen: dict[str, str] = {}
    for edge in vertex.inputs:
        if edge.vertex is None:
            continue
        other = seen.setdefault(edge.vertex.lower(), edge.vertex)
        if edge.vertex.lower() not in names:
            plain = _SQL_NAME.match(edge.vertex)
            written = "" if plain else f" (in backquotes: `{edge.vertex[:80].replace('`', '``')}`)"
            errors.add(
                edge.place,
                f"the SQL text does not mention {shown(edge.vertex)}: read from it{written}, or remove the input.",
            )
        elif other != edge.vertex:
            errors.add(
                edge.place, f"{shown(edge.vertex)} and {shown(other)} are the same name in SQL: rename one."
            )


def _check_reach(errors: Errors, raw: Sequence[RawVertex], by_name: Mapping[str, RawVertex]) -> None:
    ends = [vertex.index for vertex in raw if _is_end(vertex)]
    used = reached(ends, lambda index: _producers(raw[index], by_name))
    consumed = {edge.vertex for vertex in raw for edge in vertex.inputs}
    for vertex in raw:
        if vertex.index not in used:
            why = "it leads to no sink" if vertex.name in consumed else "no vertex has it as input"
            errors.add(vertex.place, f"the result of {shown(vertex.name or '')} is not used: {why}.")


def _producers(vertex: RawVertex, by_name: Mapping[str, RawVertex]) -> set[int]:
    """Indices of the producers. A vertex that is its own input has been reported and is left out."""
    found = {
        by_name[name].index for edge in vertex.inputs if (name := edge.vertex) is not None and name in by_name
    }
    return found - {vertex.index}


def _cycles(raw: Sequence[RawVertex], by_name: Mapping[str, RawVertex]) -> list[list[str]]:
    """One cycle of each group of vertices that reach each other, in the direction of the data."""
    producers = {vertex.index: sorted(_producers(vertex, by_name)) for vertex in raw}
    state: dict[int, int] = {}
    cycles: list[list[str]] = []
    for start in producers:
        path: list[int] = []
        waiting = [(start, 0)]
        while waiting:
            index, step = waiting.pop()
            if step == 0:
                if index in state:
                    if state[index] == 1:
                        cycles.append([raw[i].name or "?" for i in reversed(path[path.index(index) :])])
                    continue
                state[index] = 1
                path.append(index)
            if step < len(producers[index]):
                waiting.append((index, step + 1))
                waiting.append((producers[index][step], 0))
            else:
                state[index] = 2
                path.pop()
    return cycles


@dataclass(frozen=True, slots=True)
class Facts:
    """Names of the vertices that do not stream, and of those that keep state."""

    job_type: JobType
    static: frozenset[str]
    stateful: frozenset[str]


def derived_max_parallelism(parallelism: int) -> int:
    """Flink's max parallelism of a vertex that does not say it: 1.5 times, as a power of two from 128 up."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), 128), MAX_PARALLELISM_LIMIT)


def derive(errors: Errors, order: Sequence[RawVertex], job_type: JobType) -> Facts:
    """The facts about vertices in topological order, and the errors that only they show."""
    static: set[str] = set()
    stateful: set[str] = set()
    # Names of the vertices that have something stateful, or something that could not be read, before them.
    aggregated: set[str] = set()
    for vertex in order:
        assert vertex.name is not None
        inputs = [edge.vertex for edge in vertex.inputs if edge.vertex is not None]
        if _is_static(vertex, inputs, static):
            static.add(vertex.name)
        streaming = [name for name in inputs if name not in static]
        if vertex.stateful and not streaming and vertex.kind != "source":
            errors.add(
                f"{vertex.place}.stateful",
                "cannot be true: all inputs are static, and state is kept over a stream.",
            )
        elif _keeps_state(vertex, streaming):
            stateful.add(vertex.name)
        if vertex.name in stateful or vertex.operation is None or any(name in aggregated for name in inputs):
            aggregated.add(vertex.name)
        if vertex.kind == "sink" and job_type is JobType.STREAMING:
            _check_sink(errors, vertex, streams=bool(streaming), aggregated=vertex.name in aggregated)
    return Facts(job_type, frozenset(static), frozenset(stateful))


def _is_static(vertex: RawVertex, inputs: Sequence[str], static: set[str]) -> bool:
    if vertex.kind == "source":
        return isinstance(vertex.operation, SourceSpec) and vertex.operation.static
    return bool(inputs) and all(name in static for name in inputs)


def _keeps_state(vertex: RawVertex, streaming: Sequence[str]) -> bool:
    if vertex.kind not in ("sql", "python", "operator"):
        return False
    if vertex.stateful is not None:
        return vertex.stateful
    operation = vertex.operation
    return isinstance(operation, SqlSpec) and is_stateful(tokens_of(operation.text), streaming)


def _check_sink(errors: Errors, vertex: RawVertex, *, streams: bool, aggregated: bool) -> None:
    if not streams and vertex.inputs:
        errors.add(
            f"{vertex.place}.inputs[0]",
            f"{shown(vertex.inputs[0].vertex or '')} comes from static sources only: a sink of a STREAMING job needs a "
            "source that streams.",
        )
    operation = vertex.operation
    if (
        isinstance(operation, SinkSpec)
        and operation.output_mode is OutputMode.COMPLETE
        and streams
        and not aggregated
    ):
        errors.add(
            f"{vertex.place}.sink.outputMode",
            "complete writes the whole result of an aggregate, and no vertex before this sink is stateful; take "
            "append.",
        )


def build(job_name: str, order: Sequence[RawVertex], facts: Facts) -> tuple[JobVertex, ...]:
    """The vertices of a document without errors, with every default in its place."""
    by_name = {vertex.name: vertex for vertex in order}
    consumers = Counter(edge.vertex for vertex in order for edge in vertex.inputs)
    vertices: list[JobVertex] = []
    for vertex in order:
        name, operation = vertex.name, vertex.operation
        assert name is not None and operation is not None
        stateful = name in facts.stateful
        inputs: list[VertexInput] = []
        for edge in vertex.inputs:
            assert edge.vertex is not None
            producer = by_name[edge.vertex]
            partitioner = edge.partitioner or _partitioner(
                edge, producer, vertex, facts, alone=consumers[edge.vertex] == 1
            )
            inputs.append(
                VertexInput(
                    vertex_id(job_name, edge.vertex), edge.vertex, partitioner, edge.keys, edge.exchange
                )
            )
        vertices.append(
            JobVertex(
                id=vertex_id(job_name, name),
                name=name,
                operation=operation,
                inputs=tuple(inputs),
                parallelism=vertex.parallelism,
                lower_bound=vertex.lower_bound,
                max_parallelism=vertex.max_parallelism or _max_parallelism(vertex, facts, stateful=stateful),
                slot_sharing_group=vertex.slot_sharing_group,
                slot_sharing_group_id=slot_sharing_group_id(job_name, vertex.slot_sharing_group),
                stateful=stateful,
            )
        )
    return tuple(vertices)


def _max_parallelism(vertex: RawVertex, facts: Facts, *, stateful: bool) -> int:
    # A BATCH job has no micro-batches that pay for each partition again and again.
    if stateful and facts.job_type is JobType.STREAMING:
        return max(DEFAULT_STATE_PARTITIONS, vertex.parallelism)
    return derived_max_parallelism(vertex.parallelism)


def _partitioner(
    edge: RawInput, producer: RawVertex, consumer: RawVertex, facts: Facts, *, alone: bool
) -> Partitioner:
    if edge.vertex in facts.static:
        # A side table is read within its consumer's tasks; whether to broadcast it is Spark's choice or the user's.
        return Partitioner.REBALANCE
    if consumer.name in facts.stateful:
        return Partitioner.HASH
    if alone and producer.parallelism == consumer.parallelism and edge.exchange is Exchange.PIPELINED:
        return Partitioner.FORWARD
    return Partitioner.REBALANCE

"""Values that are computed from a checked document: which vertices are static or stateful, and every default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.model.graphdoc_edges import RawInput, RawVertex
from app.model.graphdoc_fields import Errors
from app.model.ids import slot_sharing_group_id, vertex_id
from app.model.jobgraph import (
    MAX_PARALLELISM_LIMIT,
    Exchange,
    JobType,
    JobVertex,
    OutputMode,
    Partitioner,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)
from app.model.sentences import shown
from app.model.sqltext import is_stateful, tokens_of

DEFAULT_STATE_PARTITIONS: Final = 12
"""Max parallelism of a stateful vertex that does not say it.

Flink's formula would give 128 at least. There a key group costs nothing; here it is a state partition, and each is
opened and committed in every micro-batch even when it is empty. Measured in docs/adr/0002-state-partitions.md.
"""


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

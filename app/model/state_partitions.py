"""The numbers of state partitions that a job's requirements ask for, and whether they are possible.

A stateful vertex has as many state partitions as its max parallelism. Unlike Flink's key groups, the number can
change during the life of a job: the job is drained, its state is redistributed, and it is restarted
(docs/adr/0002-state-partitions.md).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

from app.model.analysis import queries
from app.model.jobgraph import JobGraph, JobType, JobVertex, PlannedSpec
from app.model.options import JobOptions
from app.model.requirements import Requirements

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER_SETTING = "spark.sql.streaming.stateStore.providerClass"

Numbers = tuple[tuple[str, int], ...]
"""Numbers of state partitions by vertex id, in the order of the graph."""


@functools.lru_cache(maxsize=256)
def with_partitions(graph: JobGraph, numbers: Numbers) -> JobGraph:
    """``graph`` with other max parallelisms. The initial bounds, which count no more, are kept within them."""
    changed = dict(numbers)

    def changed_vertex(vertex: JobVertex) -> JobVertex:
        number = changed.get(vertex.id, vertex.max_parallelism)
        return dataclasses.replace(
            vertex,
            max_parallelism=number,
            parallelism=min(vertex.parallelism, number),
            lower_bound=min(vertex.lower_bound, number),
        )

    return dataclasses.replace(graph, vertices=tuple(changed_vertex(vertex) for vertex in graph.vertices))


def numbers_of(graph: JobGraph) -> Numbers:
    """The numbers of state partitions of all stateful vertices."""
    return tuple((vertex.id, vertex.max_parallelism) for vertex in graph.vertices if vertex.stateful)


def wanted_graph(
    graph: JobGraph,
    requirements: Requirements,
    options: JobOptions,
    *,
    has_run: bool,
    fixed: str | None = None,
) -> JobGraph:
    """``graph`` with the state partitions that ``requirements`` ask for; ``graph`` itself if it has them.

    A vertex is asked to have as many as was declared for it, and at least as many as its upper bound, if that is
    possible: until Spark has analysed a document, bounds can be higher. ``has_run``: there may be state, and
    `why_fixed` counts, which is given ``fixed``.
    """
    if graph.type is not JobType.STREAMING:
        return graph
    declared, bounds = dict(requirements.state_partitions), requirements.as_dict()
    numbers = []
    for vertex in graph.vertices:
        if vertex.stateful:
            most, upper = vertex.max_parallelism, bounds[vertex.id].upper
            number = max(declared.get(vertex.id, most), upper)
            if number == most:
                continue
            if has_run:
                is_possible = why_fixed(graph, options, vertex, number, fixed) is None
            else:
                is_possible = not vertex.max_is_assumed or number <= options.repartition_max
            if is_possible:
                numbers.append((vertex.id, number))
    return with_partitions(graph, tuple(numbers)) if numbers else graph


def partitions_of_queries(graph: JobGraph) -> dict[str, int]:
    """The number of state partitions of each query that has state, by its key."""
    return {query.key: number for query in queries(graph) if (number := query.state_partitions) is not None}


def is_redistributed(before: JobGraph, after: JobGraph) -> bool:
    """Whether the state of any query has other partitions in ``after``.

    All stateful vertices of a query have the partitions of the one that has most, so not each change of one is a
    change of the query.
    """
    return before is not after and partitions_of_queries(before) != partitions_of_queries(after)


def graph_of_checkpoint(graph: JobGraph, found: Mapping[str, int]) -> JobGraph:
    """``graph`` with what the checkpoints of its queries were found to have, by query key."""
    numbers: dict[str, int] = {}
    for query in queries(graph):
        number, expected = found.get(query.key), query.state_partitions
        if number is None or expected is None or number == expected:
            continue
        for vertex in query.stateful:
            if vertex.max_parallelism == expected or vertex.max_parallelism > number:
                numbers[vertex.id] = min(number, numbers.get(vertex.id, number))
    ordered = tuple((vertex.id, numbers[vertex.id]) for vertex in graph.vertices if vertex.id in numbers)
    return with_partitions(graph, ordered) if ordered else graph


def change_in_words(graph: JobGraph, before: Iterable[tuple[str, int]], after: Mapping[str, int]) -> str:
    """For example: "the state of counts from 8 to 12 partitions"."""
    parts = [
        f"the state of {graph.by_id[vertex].name} from {number} to {after[vertex]} partitions"
        for vertex, number in before
        # One that has left the graph meanwhile has nothing to redistribute.
        if vertex in graph.by_id and after.get(vertex, number) != number
    ]
    return " and ".join(parts)


def why_fixed(
    graph: JobGraph, options: JobOptions, vertex: JobVertex, wanted: int, fixed: str | None = None
) -> str | None:
    """Why the state of ``vertex`` cannot have ``wanted`` partitions, as a sentence without its subject; else None.

    ``fixed`` is what the driver says that holds for all state of the job.
    """
    if graph.type is not JobType.STREAMING or not vertex.stateful:
        return "It has no state that could be redistributed."
    operation = vertex.operation
    if isinstance(operation, PlannedSpec):
        fixed = operation.fixed or fixed
    if fixed is not None:
        return f"Its state has {vertex.max_parallelism} partitions, which is the most: {fixed}."
    if not options.repartition_enabled:
        return (
            f"Its state has {vertex.max_parallelism} partitions, and slotwise.state.repartition.enabled is false "
            "for this job."
        )
    provider = dict(graph.config).get(PROVIDER_SETTING, ROCKSDB)
    if provider != ROCKSDB:
        return (
            f"Its state has {vertex.max_parallelism} partitions: only state of the RocksDB provider can be "
            f"redistributed, and {PROVIDER_SETTING} is {provider}."
        )
    if wanted > options.repartition_max:
        return (
            f"Its state has {vertex.max_parallelism} partitions, and at most {options.repartition_max} can be asked "
            "for (slotwise.state.repartition.max-partitions)."
        )
    return None

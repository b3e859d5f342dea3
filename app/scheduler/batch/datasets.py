"""The datasets of a batch graph: what regions leave for each other, each written once however many read it."""

from __future__ import annotations

from app.model.batch import Dataset
from app.model.jobgraph import JobGraph, Partitioner, VertexInput
from app.scheduler.batch.regions import Regions


def datasets_of(graph: JobGraph, regions: Regions) -> tuple[Dataset, ...]:
    """Every dataset, producers in topological order.

    Edges of one producer with equal partitioning share a dataset. An edge within a region has none.
    """
    readers: dict[tuple[str, Partitioner, tuple[str, ...]], list[str]] = {}
    for vertex in graph.vertices:
        for edge in vertex.inputs:
            if regions.by_vertex[edge.vertex_id] is not regions.by_vertex[vertex.id]:
                readers.setdefault((edge.vertex_id, *partitioning(edge)), []).append(vertex.id)
    found: list[Dataset] = []
    for vertex in graph.vertices:
        own = [key for key in readers if key[0] == vertex.id]
        for number, key in enumerate(own):
            _, partitioner, keys = key
            found.append(Dataset(f"{vertex.id}-{number}", vertex.id, partitioner, keys, tuple(readers[key])))
    return tuple(found)


def partitioning(edge: VertexInput) -> tuple[Partitioner, tuple[str, ...]]:
    """How the rows of ``edge`` lie in the result between two regions.

    HASH without keys leaves it to Spark which columns count, and so does this: such rows lie as they come.
    """
    if edge.partitioner is Partitioner.HASH and edge.keys:
        return Partitioner.HASH, edge.keys
    if edge.partitioner is Partitioner.BROADCAST:
        return Partitioner.BROADCAST, ()
    return Partitioner.REBALANCE, ()

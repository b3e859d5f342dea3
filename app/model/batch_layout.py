"""The layout of a batch graph: its regions and the datasets between them, computed once for each graph.

A dataset is what a region leaves for others, written once however many read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from app.model.batch import Dataset
from app.model.batch_regions import Region, Regions, regions_of
from app.model.jobgraph import JobGraph, Partitioner, VertexInput


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


@dataclass(frozen=True)
class Layout:
    """``datasets``: producers in topological order."""

    regions: Regions
    datasets: tuple[Dataset, ...]

    def dataset(self, edge: VertexInput) -> Dataset:
        """What is read over ``edge``, which leads from one region to another."""
        return self._by_edge[(edge.vertex_id, *partitioning(edge))]

    def written_by(self, region: Region) -> tuple[Dataset, ...]:
        """What a run of ``region`` is to leave."""
        return self._by_region.get(region.number, ())

    @cached_property
    def _by_edge(self) -> Mapping[tuple[str, Partitioner, tuple[str, ...]], Dataset]:
        return {(one.producer, one.partitioner, one.keys): one for one in self.datasets}

    @cached_property
    def _by_region(self) -> Mapping[int, tuple[Dataset, ...]]:
        found: dict[int, list[Dataset]] = {}
        for one in self.datasets:
            found.setdefault(self.regions.by_vertex[one.producer].number, []).append(one)
        return {number: tuple(own) for number, own in found.items()}


_known: WeakKeyDictionary[JobGraph, Layout] = WeakKeyDictionary()


def layout_of(graph: JobGraph) -> Layout:
    """The layout of ``graph``."""
    found = _known.get(graph)
    if found is None:
        regions = regions_of(graph)
        found = _known[graph] = Layout(regions, datasets_of(graph, regions))
    return found

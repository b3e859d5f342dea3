"""What the driver of a batch job should be running now, read off the durable state."""

from __future__ import annotations

from app.model.batch import Read, RegionOrder, RegionStatus
from app.model.jobgraph import Partitioner
from app.scheduler.adaptive.state import Executing, JobState
from app.scheduler.batch.datasets import datasets_of, partitioning
from app.scheduler.batch.decider import groups_of
from app.scheduler.batch.progress import BatchProgress
from app.scheduler.batch.regions import Region, Regions, regions_of
from app.scheduler.batch.scheduling import dataset_key, inputs_of, outputs_of


def region_orders(state: JobState) -> tuple[RegionOrder, ...]:
    """One per region that runs, in topological order."""
    progress = state.batch
    if progress is None or not isinstance(state.phase, Executing):
        return ()
    regions = regions_of(state.graph)
    running = [
        region for region in regions.all if progress.regions[region.number].status is RegionStatus.RUNNING
    ]
    return tuple(_order(state, progress, region, regions) for region in running)


def _order(state: JobState, progress: BatchProgress, region: Region, regions: Regions) -> RegionOrder:
    run = progress.regions[region.number].run
    names = {
        dataset_key(one.producer, one.partitioner, one.keys): one.id
        for one in datasets_of(state.graph, regions)
    }
    results = {result.dataset: result for result in progress.results}
    parallelism: dict[str, int] = {}
    reads: list[Read] = []
    for vertex_id in region.vertices:
        vertex = state.graph.by_id[vertex_id]
        decision = progress.decision(vertex_id)
        assert decision is not None and decision.run == run
        parallelism[vertex_id] = decision.parallelism
        inputs = inputs_of(vertex, progress, regions, names)
        for edge in vertex.inputs:
            if edge.vertex_id in region.vertices:
                continue
            kind, keys = partitioning(edge)
            result = results[names[dataset_key(edge.vertex_id, kind, keys)]]
            hashed = kind is Partitioner.HASH
            divided = hashed and not decision.skewed
            groups = groups_of(inputs, result, decision.groups, decision.parallelism) if divided else ()
            reads.append(Read(vertex_id, edge.vertex_id, result, groups))
    return RegionOrder(
        region.number,
        run,
        parallelism,
        state.options.volume_bytes,
        tuple(reads),
        outputs_of(state, region, regions),
        state.options.skew,
    )

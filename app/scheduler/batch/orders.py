"""The orders for the driver of a batch job, computed from the durable state."""

from __future__ import annotations

from collections.abc import Mapping

from app.model.batch import Read, RegionOrder, RegionStatus, Result
from app.model.batch_layout import Layout, layout_of
from app.model.batch_regions import Region
from app.model.job_state.batch import BatchProgress
from app.model.jobgraph import Partitioner
from app.scheduler.adaptive.state import Executing, JobState
from app.scheduler.batch.parallelism_decider import groups_of
from app.scheduler.batch.scheduling import inputs_of, outputs_of


def region_orders(state: JobState) -> tuple[RegionOrder, ...]:
    """One per region that runs, in topological order."""
    progress = state.batch
    if progress is None or not isinstance(state.phase, Executing):
        return ()
    layout = layout_of(state.graph)
    results = {result.dataset: result for result in progress.results}
    return tuple(
        _order(state, progress, region, layout, results)
        for region in layout.regions.all
        if progress.regions[region.number].status is RegionStatus.RUNNING
    )


def _order(
    state: JobState, progress: BatchProgress, region: Region, layout: Layout, results: Mapping[str, Result]
) -> RegionOrder:
    run = progress.regions[region.number].run
    parallelism: dict[str, int] = {}
    reads: list[Read] = []
    for vertex_id in region.vertices:
        vertex = state.graph.by_id[vertex_id]
        decision = progress.decision(vertex_id)
        assert decision is not None and decision.run == run
        parallelism[vertex_id] = decision.parallelism
        inputs = inputs_of(vertex, results, layout)
        for edge in vertex.inputs:
            if edge.vertex_id in region.vertices:
                continue
            dataset = layout.dataset(edge)
            result = results[dataset.id]
            divided = dataset.partitioner is Partitioner.HASH and not decision.skewed
            groups = groups_of(inputs, result, decision.groups, decision.parallelism) if divided else ()
            reads.append(Read(vertex_id, edge.vertex_id, result, groups))
    return RegionOrder(
        region.number,
        run,
        parallelism,
        state.options.volume_bytes,
        tuple(reads),
        outputs_of(state, region),
        state.options.skew,
    )

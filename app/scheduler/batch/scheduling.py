"""The regions of a batch job that run now, and their parallelism: the batch part of Executing.

A region starts when every result that it reads is complete, whole or not at all. The parallelism of its vertices is
decided at that moment, from the bytes of those results. Regions that do not wait for each other run side by side in
the slots of the job; their tasks take turns, so one slot is enough for any of them that has no higher lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from app.model.batch import Dataset, Output, RegionStatus, Result
from app.model.batch_layout import Layout, layout_of
from app.model.batch_regions import Region, startable
from app.model.job_state.batch import REGION_TIMER, BatchProgress, Decision, RegionState
from app.model.jobgraph import JobVertex, Partitioner
from app.model.plan import Plan
from app.model.requirements import Bounds, Requirements
from app.model.value import evolve
from app.scheduler.adaptive.draft import Draft, timer_at
from app.scheduler.adaptive.effects import SendPlan
from app.scheduler.adaptive.state import JobState
from app.scheduler.batch.decisions import decision_for
from app.scheduler.batch.limits import limits
from app.scheduler.batch.parallelism_decider import Inputs
from app.scheduler.batch.source_sizes import bytes_before, subpartitions_for

DECISIONS_KEPT: Final = 5
"""Decisions that are kept of each vertex."""


def progress_of(state: JobState) -> BatchProgress:
    """How far the batch job has come; all regions CREATED if it has not begun."""
    if state.batch is not None:
        return state.batch
    return BatchProgress(regions=tuple(RegionState() for _ in layout_of(state.graph).regions.all))


def is_complete(state: JobState) -> bool:
    """Whether every region is finished."""
    return all(region.status is RegionStatus.FINISHED for region in progress_of(state).regions)


def undecided(state: JobState) -> tuple[JobVertex, ...]:
    """The vertices whose parallelism is not decided: those of regions that have not started."""
    progress, regions = progress_of(state), layout_of(state.graph).regions
    return tuple(
        vertex
        for vertex in state.graph.vertices
        if progress.regions[regions.by_vertex[vertex.id].number].status is RegionStatus.CREATED
    )


def counts_for_undecided(state: JobState, before: Requirements) -> bool:
    """Whether the bounds of ``state`` are others than ``before`` for a vertex that is not decided yet."""
    bounds, was = state.bounds.as_dict(), before.as_dict()
    return any(bounds[vertex.id] != was[vertex.id] for vertex in undecided(state))


def out_of_reach(state: JobState, before: Requirements) -> tuple[tuple[JobVertex, int], ...]:
    """Of the vertices whose bounds are others than ``before``, those that cannot reach them, with their most tasks.

    Into how many parts a result is written is fixed when its producer starts, and no task reads less than a part.
    """
    progress, layout = progress_of(state), layout_of(state.graph)
    regions = layout.regions
    parts = dict(progress.subpartitions)
    datasets = [
        one
        for one in layout.datasets
        if one.partitioner is Partitioner.HASH
        and progress.regions[regions.by_vertex[one.producer].number].status is not RegionStatus.CREATED
    ]
    found, bounds, former = [], state.bounds.as_dict(), before.as_dict()
    for vertex in undecided(state):
        own, was = bounds[vertex.id], former[vertex.id]
        most = min((parts[one.id] for one in datasets if vertex.id in one.readers), default=own.upper)
        if own != was and (own.lower > most or own.upper > max(was.upper, most)):
            found.append((vertex, most))
    return tuple(found)


def inputs_of(vertex: JobVertex, results: Mapping[str, Result], layout: Layout) -> Inputs:
    """The finished inputs of ``vertex`` from other regions. ``results``: by dataset."""
    by_vertex = layout.regions.by_vertex
    found: dict[Partitioner, list[Result]] = {}
    for edge in vertex.inputs:
        if by_vertex[edge.vertex_id] is not by_vertex[vertex.id]:
            dataset = layout.dataset(edge)
            found.setdefault(dataset.partitioner, []).append(results[dataset.id])
    return Inputs(
        hashed=tuple(found.get(Partitioner.HASH, ())),
        others=tuple(found.get(Partitioner.REBALANCE, ())),
        broadcast=tuple(found.get(Partitioner.BROADCAST, ())),
    )


def availability(
    progress: BatchProgress, datasets: Sequence[Dataset], lost: Collection[str] = ()
) -> Callable[[str, Region], bool]:
    """Tells whether what a region reads of a vertex may be read, none of it being among the ``lost`` datasets.

    Results of the same vertex that only others read do not matter: they may have been given up.
    """
    readable = {result.dataset for result in progress.results}.difference(lost)

    def is_available(vertex_id: str, reader: Region) -> bool:
        return all(
            one.id in readable
            for one in datasets
            if one.producer == vertex_id and not set(one.readers).isdisjoint(reader.vertices)
        )

    return is_available


def schedule(draft: Draft) -> None:
    """Start every region that can start now, and tell the driver if there is any."""
    state = draft.state
    layout = layout_of(state.graph)
    progress = progress_of(state)
    started = {n for n, one in enumerate(progress.regions) if one.status is not RegionStatus.CREATED}

    ready = startable(layout.regions, started, availability(progress, layout.datasets))
    if timer_at(state, REGION_TIMER) is not None:
        ready = tuple(region for region in ready if progress.regions[region.number].run == 0)
    for region in ready:
        progress = _start(draft, region, layout, progress)
    if ready:
        draft.set(batch=progress)
        bring_into_force(draft)


def _start(draft: Draft, region: Region, layout: Layout, progress: BatchProgress) -> BatchProgress:
    state = draft.state
    before = progress.regions[region.number]
    now = RegionState(
        RegionStatus.RUNNING, before.run + 1, state.attempt, started_ms=draft.now_ms, finished_ms=None
    )
    results = {result.dataset: result for result in progress.results}
    source_bytes, bounds = dict(progress.source_bytes), state.bounds.as_dict()
    decisions = list(progress.decisions)
    for vertex_id in region.vertices:
        vertex = state.graph.by_id[vertex_id]
        known = (bounds[vertex_id], inputs_of(vertex, results, layout), source_bytes.get(vertex_id))
        decisions.append(
            decision_for(state, vertex, *known, region=region.number, run=now.run, now_ms=draft.now_ms)
        )
    subpartitions = dict(progress.subpartitions)
    for dataset in layout.written_by(region):
        if dataset.partitioner is Partitioner.HASH:
            subpartitions[dataset.id] = max(
                _parts_for(state, reader, bounds[reader], source_bytes) for reader in dataset.readers
            )
    return evolve(
        progress,
        regions=(*progress.regions[: region.number], now, *progress.regions[region.number + 1 :]),
        decisions=_recent(decisions),
        subpartitions=tuple(subpartitions.items()),
    )


def _parts_for(state: JobState, reader: str, bounds: Bounds, source_bytes: Mapping[str, int]) -> int:
    """The same for all inputs of ``reader``, so that a task finds the rows of a key in the same part of each."""
    within, known_bytes = limits(bounds, state.options), bytes_before(state.graph, reader, source_bytes)
    return subpartitions_for(
        within.lowest, within.highest, known_bytes=known_bytes, volume_bytes=state.options.volume_bytes
    )


def _recent(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """The latest decisions of each vertex: a region that fails for ever must not let the state grow for ever."""
    left: dict[str, int] = {}
    kept = []
    for decision in reversed(decisions):
        left[decision.vertex_id] = left.get(decision.vertex_id, 0) + 1
        if left[decision.vertex_id] <= DECISIONS_KEPT:
            kept.append(decision)
    return tuple(reversed(kept))


def bring_into_force(draft: Draft) -> None:
    """A plan of a new version with what is decided so far, for the driver to fetch."""
    state = draft.state
    plan = state.plan
    assert plan is not None and state.batch is not None
    decided = {one.vertex_id: one.parallelism for one in state.batch.decisions}
    moved = Plan(
        version=state.plan_version + 1,
        parallelism=tuple((vertex, decided.get(vertex, before)) for vertex, before in plan.parallelism),
        group_slots=plan.group_slots,
    )
    draft.set(plan=moved, last_plan=moved, plan_version=moved.version)
    draft.emit(SendPlan(state.attempt, moved))


def outputs_of(state: JobState, region: Region) -> tuple[Output, ...]:
    """The datasets that the run of ``region`` in progress is to leave."""
    parts = dict(progress_of(state).subpartitions)
    return tuple(
        Output(one.id, one.producer, one.partitioner, one.keys, parts.get(one.id, 0))
        for one in layout_of(state.graph).written_by(region)
    )

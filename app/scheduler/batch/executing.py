"""Executing, for a batch job: regions are started, finish, fail and run again, in one attempt after another."""

from __future__ import annotations

from collections.abc import Mapping

from app.model.batch import RegionStatus
from app.model.batch_layout import layout_of
from app.model.batch_regions import Region, regions_to_restart
from app.model.job_state.batch import REGION_TIMER, BatchProgress, RegionState, Written
from app.model.rescale import TerminatedReason
from app.model.value import evolve
from app.scheduler.adaptive import repeated_errors, timeline, transition_manager
from app.scheduler.adaptive.attempts import take_up_plan
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import (
    AttemptRunning,
    BoundsUpdated,
    RegionFailed,
    RegionFinished,
    TimerFired,
)
from app.scheduler.adaptive.failover import backoff_or_fail
from app.scheduler.adaptive.failures import failure_of, record_failure
from app.scheduler.adaptive.journal import Restarted
from app.scheduler.adaptive.resources import replace_bounds
from app.scheduler.adaptive.state import Executing
from app.scheduler.batch.explain import scope_of_bounds
from app.scheduler.batch.scheduling import (
    availability,
    bring_into_force,
    counts_for_undecided,
    progress_of,
    schedule,
)


def begin(draft: Draft, event: AttemptRunning) -> None:
    """A driver is there. What an earlier one had not finished is to run again; what it had finished counts."""
    if not take_up_plan(draft, event):
        return
    timeline.note_missing(draft, event.missing_executors)
    draft.enter(Executing(transition_manager.start(draft.now_ms, 0), first_batch=True))
    progress = progress_of(draft.state)
    draft.set(
        batch=evolve(
            progress,
            regions=tuple(_interrupted(one) for one in progress.regions),
            source_bytes=tuple(sorted({**dict(progress.source_bytes), **dict(event.source_bytes)}.items())),
        )
    )
    timeline.complete_record(draft)
    schedule(draft)


def _interrupted(region: RegionState) -> RegionState:
    if region.status is RegionStatus.RUNNING:
        return evolve(region, status=RegionStatus.CREATED)
    return region


def region_finished(draft: Draft, event: RegionFinished) -> None:
    """Its results count from now on. A report of a run that was given up does not."""
    progress = progress_of(draft.state)
    if not _is_current(progress, event):
        return
    layout = layout_of(draft.state.graph)
    producers = {one.id: one.producer for one in layout.written_by(layout.regions.all[event.region])}
    if {result.dataset for result in event.results} != set(producers):
        error = f"Region {event.region} left other results than its readers need."
        region_failed(draft, RegionFailed(event.attempt, event.region, event.run, error))
        return
    repeated_errors.forget(draft, _region_key(event))
    done = evolve(progress.regions[event.region], status=RegionStatus.FINISHED, finished_ms=draft.now_ms)
    progress = evolve(
        progress,
        regions=(*progress.regions[: event.region], done, *progress.regions[event.region + 1 :]),
        results=(*progress.results, *event.results),
        written=_written(progress, event, producers),
    )
    draft.set(batch=_without_unneeded(draft, progress))
    schedule(draft)
    if draft.state.batch is not None and all(
        one.status is not RegionStatus.RUNNING for one in draft.state.batch.regions
    ):
        # Nothing was started: the last region is done, and the driver is told to end.
        bring_into_force(draft)


def _written(
    progress: BatchProgress, event: RegionFinished, producers: Mapping[str, str]
) -> tuple[Written, ...]:
    """A vertex whose rows were written in several partitionings has written them several times."""
    now = {one.vertex_id: one for one in progress.written}
    for vertex in {producers[result.dataset]: None for result in event.results}:
        own = [result for result in event.results if producers[result.dataset] == vertex]
        now[vertex] = Written(vertex, sum(one.total_bytes for one in own), sum(one.total_rows for one in own))
    return tuple(now.values())


def _without_unneeded(draft: Draft, progress: BatchProgress) -> BatchProgress:
    """A result that no region will read any more is given up."""
    layout = layout_of(draft.state.graph)
    region_of = layout.regions.by_vertex
    finished = {n for n, one in enumerate(progress.regions) if one.status is RegionStatus.FINISHED}
    needed = {
        one.id
        for one in layout.datasets
        if any(region_of[reader].number not in finished for reader in one.readers)
    }
    return evolve(progress, results=tuple(one for one in progress.results if one.dataset in needed))


def region_failed(draft: Draft, event: RegionFailed) -> None:
    """The region runs again, with the producers of results that are lost; after a while, if it may at all."""
    state = draft.state
    progress = progress_of(state)
    if not _is_current(progress, event):
        return
    failure = record_failure(draft, failure_of(draft, event), root=True)
    repeated = None
    if event.user_error is not None:
        repeated = repeated_errors.error_counted(state, _region_key(event), event.user_error, 0)
    delay_ms = backoff_or_fail(draft, failure, repeated, recoverable=event.recoverable)
    if delay_ms is None:
        return
    _reset(draft, event)
    draft.tell(Restarted(None, state.recovery.num_restarts + 1, delay_ms))
    draft.set_part("recovery", num_restarts=state.recovery.num_restarts + 1)
    # The driver is told at once: regions that lost their input are not to go on.
    bring_into_force(draft)
    if delay_ms:
        draft.arm(REGION_TIMER, draft.now_ms + delay_ms)
    else:
        schedule(draft)


def _region_key(event: RegionFinished | RegionFailed) -> str:
    """What stands for the query of a streaming job where errors are counted."""
    return f"region {event.region}"


def _reset(draft: Draft, event: RegionFailed) -> None:
    layout = layout_of(draft.state.graph)
    regions = layout.regions
    progress = progress_of(draft.state)
    is_available = availability(progress, layout.datasets, event.lost)

    def has_started(region: Region) -> bool:
        return progress.regions[region.number].status is not RegionStatus.CREATED

    failed = regions.all[event.region]
    again = {one.number for one in regions_to_restart(regions, failed, is_available, has_started)}
    lost = {one.id for number in again for one in layout.written_by(regions.all[number])}
    draft.set(
        batch=evolve(
            progress,
            regions=tuple(
                evolve(one, status=RegionStatus.CREATED) if number in again else one
                for number, one in enumerate(progress.regions)
            ),
            results=tuple(one for one in progress.results if one.dataset not in lost),
        )
    )


def _is_current(progress: BatchProgress, event: RegionFinished | RegionFailed) -> bool:
    if not 0 <= event.region < len(progress.regions):
        return False
    region = progress.regions[event.region]
    return region.status is RegionStatus.RUNNING and region.run == event.run


def batch_bounds(draft: Draft, event: BoundsUpdated) -> None:
    """Other bounds count for the regions that have not started."""
    before = draft.state.bounds
    replace_bounds(draft, event)
    message = scope_of_bounds(draft.state, before)
    reason = TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE
    if counts_for_undecided(draft.state, before):
        reason = TerminatedReason.SUCCEEDED
    timeline.close_record(draft, reason, message=message)


def batch_timer(draft: Draft, event: TimerFired) -> None:
    if event.name == REGION_TIMER:
        draft.disarm(REGION_TIMER)
        schedule(draft)

"""The lines that a step of a job writes to the server's log."""

from __future__ import annotations

from typing import Any

from app.model.batch import RegionStatus
from app.model.batch_layout import layout_of
from app.scheduler.adaptive.state import JobState


def log_transition(log: Any, event: str, before: JobState, after: JobState) -> None:
    """A line for a phase that was entered."""
    log.info(
        "state",
        attempt=after.attempt,
        rescale=after.timeline.open.uuid if after.timeline.open else None,
        trigger=event,
        source=before.phase.kind,
        target=after.phase.kind,
    )


def log_regions(log: Any, before: JobState, after: JobState) -> None:
    """A line for each region that was started, is finished, or is to run again; a failure with its sentence."""
    if after.batch is None or after.batch is before.batch:
        return
    if after.recovery.failures != before.recovery.failures:
        failure = after.recovery.failures[-1][-1]
        log.warning("a region failed", attempt=after.attempt, vertex=failure.vertex, error=failure.error)
    was = before.batch.regions if before.batch is not None else ()
    for region in layout_of(after.graph).regions.all:
        now = after.batch.regions[region.number]
        former = was[region.number] if was else None
        if former == now or (former is None and now.status is RegionStatus.CREATED):
            continue
        log.info(
            "region",
            attempt=after.attempt,
            region=region.number,
            run=now.run,
            vertices=[after.graph.by_id[vertex].name for vertex in region.vertices],
            state=now.status.value,
        )

"""Whether a job has processed anything yet, so that whoever waits for its start need not wait longer."""

from __future__ import annotations

from typing import Final

from app.model.batch import RegionStatus
from app.model.job_state.batch import BatchProgress
from app.scheduler.adaptive.last_failure import last_failure
from app.scheduler.adaptive.state import Executing, Rescaling, StopWithSavepoint
from app.worker.views import JobView

_NO_ROWS_MS: Final = 10_000
"""If no rows have come for so long after the report of an empty first batch, there are none."""


def is_under_way(view: JobView, now_ms: int) -> bool:
    """Whether the present attempt has processed something, or has found that there is nothing to process."""
    state = view.state
    if state.plan is None or state.is_before_query:
        return False
    if state.batch is not None:
        return _is_batch_under_way(view, state.batch)
    if state.graph.is_batch_program:
        told = view.region_progress.get(0)
        return told is not None and told.run == state.attempt and told.tasks_done > 0
    latest = view.load.latest.values()
    batches = [one for one in latest if one.report.plan_version >= state.plan.version]
    phase = state.phase
    if isinstance(phase, Executing):
        processed = phase.first_batch
    else:
        # The phase does not say it. Any other one ends the attempt, which may live for a while.
        processed = isinstance(phase, Rescaling | StopWithSavepoint) and bool(batches)
    # Spark runs a first batch though there are no rows yet: that says nothing of the job's functions.
    said_nothing = batches and all(
        one.report.batch_id == 0
        and one.report.input_rows == 0
        and (one.report.backlog_rows or now_ms - one.seen_ms < _NO_ROWS_MS)
        for one in batches
    )
    return processed and not said_nothing


def _is_batch_under_way(view: JobView, progress: BatchProgress) -> bool:
    regions = progress.regions
    if any(region.status is RegionStatus.FINISHED for region in regions):
        return True
    return last_failure(view.state) is None and any(
        report.tasks_done > 0 and report.run == regions[number].run
        for number, report in view.region_progress.items()
        if regions[number].status is RegionStatus.RUNNING
    )

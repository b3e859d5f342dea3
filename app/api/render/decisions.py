"""The decisions of a BATCH job with the numbers that led to them, and what became of the runs that they were for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from app.api.render.execution import region_status
from app.api.schema import runs as schema
from app.api.schema.base import made_of
from app.model.batch import RegionStatus
from app.scheduler.adaptive.state import JobState
from app.scheduler.batch.explain import decision_sentence
from app.scheduler.batch.progress import BatchProgress, Decision, Written
from app.worker.views import JobView


def decisions(view: JobView, *, with_groups: bool) -> list[schema.Decision]:
    """Newest first; none for a job that has made none, as every STREAMING job."""
    state = view.state
    if state.batch is None:
        return []
    written = {one.vertex_id: one for one in state.batch.written}
    return [
        _decision(state, state.batch, decision, written, with_groups=with_groups)
        for decision in reversed(state.batch.decisions)
    ]


def _decision(
    state: JobState,
    progress: BatchProgress,
    decision: Decision,
    written: Mapping[str, Written],
    *,
    with_groups: bool,
) -> schema.Decision:
    name = state.graph.by_id[decision.vertex_id].name
    run = _run(state, progress, decision, written.get(decision.vertex_id))
    return made_of(
        schema.Decision,
        decision,
        vertex_name=name,
        groups=decision.groups if with_groups else None,
        sentence=decision_sentence(name, decision, is_running=run.state == "RUNNING"),
        region_run=run,
    )


def _run(
    state: JobState, progress: BatchProgress, decision: Decision, written: Written | None
) -> schema.RegionRun:
    """The run that a decision was for. Of all but the last run of a region only the start is kept."""
    region = progress.regions[decision.region]
    is_last = region.run == decision.run
    end_ms = region.finished_ms if is_last else None
    left = written if end_ms is not None else None
    run_state: Literal["RUNNING", "FINISHED", "DISCARDED"] = "DISCARDED"
    if is_last and region.status is RegionStatus.FINISHED:
        run_state = "FINISHED"
    elif is_last and region_status(state, region.status) == "RUNNING":
        run_state = "RUNNING"
    return schema.RegionRun(
        state=run_state,
        start_timestamp_ms=decision.at_ms,
        end_timestamp_ms=end_ms,
        written_bytes=left.bytes if left is not None else None,
        written_rows=left.rows if left is not None else None,
    )

"""The decisions of a BATCH job with the numbers that led to them, and what became of the runs that they were for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api.render.execution import region_status
from app.model.batch import RegionStatus
from app.scheduler.adaptive.state import JobState
from app.scheduler.batch.explain import decision_sentence
from app.scheduler.batch.progress import BatchProgress, Decision, Written
from app.worker.views import JobView

RUNNING, FINISHED, DISCARDED = "RUNNING", "FINISHED", "DISCARDED"


def decisions(view: JobView, *, with_groups: bool) -> list[dict[str, Any]]:
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
) -> dict[str, Any]:
    name = state.graph.by_id[decision.vertex_id].name
    run = _run(state, progress, decision, written.get(decision.vertex_id))
    return {
        "vertexId": decision.vertex_id,
        "vertexName": name,
        "region": decision.region,
        "run": decision.run,
        "timestampInMillis": decision.at_ms,
        "rule": decision.rule,
        "parallelism": decision.parallelism,
        "lowerBound": decision.lower,
        "upperBound": decision.upper,
        "limit": decision.limit,
        "limitedBy": decision.limited_by,
        "wanted": decision.wanted,
        "normalized": decision.normalized,
        "bytes": decision.bytes,
        "rows": decision.rows,
        "broadcastBytes": decision.broadcast_bytes,
        "countedBroadcastBytes": decision.counted_broadcast_bytes,
        "volumeBytes": decision.volume_bytes,
        "subpartitions": decision.subpartitions,
        "skewed": list(decision.skewed),
        "groups": [list(group) for group in decision.groups] if with_groups else None,
        "sentence": decision_sentence(name, decision, is_running=run["state"] == RUNNING),
        "regionRun": run,
    }


def _run(
    state: JobState, progress: BatchProgress, decision: Decision, written: Written | None
) -> dict[str, Any]:
    """The run that a decision was for. Of all but the last run of a region only the start is kept."""
    region = progress.regions[decision.region]
    is_last = region.run == decision.run
    end_ms = region.finished_ms if is_last else None
    left = written if end_ms is not None else None
    run_state = DISCARDED
    if is_last and region.status is RegionStatus.FINISHED:
        run_state = FINISHED
    elif is_last and region_status(state, region.status) == "RUNNING":
        run_state = RUNNING
    return {
        "state": run_state,
        "startTimestampInMillis": decision.at_ms,
        "endTimestampInMillis": end_ms,
        "writtenBytes": left.bytes if left is not None else None,
        "writtenRows": left.rows if left is not None else None,
    }

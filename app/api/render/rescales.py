"""Rescale records, their statistics and the options behind them, under Flink's names (FLIP-495), and our
additions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from app.model.jobgraph import JobGraph
from app.model.rescale import RescaleRecord, StateSpan, TerminalState
from app.scheduler.adaptive.state import JobState

# Flink's rendering of a profile that is not known: slots here are cores, without a memory of their own.
UNKNOWN_PROFILE: dict[str, Any] = {
    "cpuCores": -1.0,
    "taskHeapMemory": -1,
    "taskOffHeapMemory": -1,
    "managedMemory": -1,
    "networkMemory": -1,
    "extendedResources": {},
}
SLOT_PROFILE: dict[str, Any] = {
    "cpuCores": 1.0,
    "taskHeapMemory": 0,
    "taskOffHeapMemory": 0,
    "managedMemory": 0,
    "networkMemory": 0,
    "extendedResources": {},
}

_PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p999", 99.9))


def rescale_record(
    record: RescaleRecord, graph: JobGraph, spans: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """A record; without ``spans`` as the history and the overview show it."""
    terminal = record.terminal_state
    return {
        "rescaleUuid": record.uuid,
        "resourceRequirementsUuid": record.requirements_uuid,
        "rescaleAttemptId": record.attempt_id,
        "vertices": _vertices(record, graph),
        "slots": _slots(record),
        "schedulerStates": spans or [],
        "startTimestampInMillis": record.start_ms,
        "endTimestampInMillis": record.end_ms,
        "terminalState": None if terminal is None else terminal.value,
        "triggerCause": record.cause.value,
        "terminatedReason": None if record.reason is None else record.reason.value,
        "number": record.number,
        "requestedBy": record.requested_by,
        "reason": record.request_reason,
        "message": record.message,
        "rung": None if record.rung is None else record.rung.value,
        "outputGapInMillis": record.output_gap_ms,
        "reprocessedRecords": record.reprocessed_records,
        "rollbackOf": record.rollback_of,
    }


def rescale_details(record: RescaleRecord, state: JobState, now_ms: int) -> dict[str, Any]:
    """A record with its scheduler states; the state that an open record is in lasts until now."""
    spans = [_span(span, now_ms) for span in record.spans]
    if record.is_open and (not record.spans or record.spans[-1].leave_ms is not None):
        enter_ms = max(state.phase_since_ms, record.start_ms)
        spans.append(_span(StateSpan(state.phase.kind, enter_ms, None), now_ms))
    return rescale_record(record, state.graph, spans)


def _vertices(record: RescaleRecord, graph: JobGraph) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for entry in record.vertices:
        vertex = graph.by_id.get(entry.vertex_id)
        if vertex is None:
            # Of a version of the job that had it.
            continue
        result[entry.vertex_id] = {
            "jobVertexId": entry.vertex_id,
            "jobVertexName": vertex.name,
            "slotSharingGroupId": vertex.slot_sharing_group_id,
            "slotSharingGroupName": vertex.slot_sharing_group,
            "desiredParallelism": entry.desired,
            "sufficientParallelism": entry.sufficient,
            "preRescaleParallelism": entry.pre,
            "postRescaleParallelism": entry.post,
        }
    return result


def _slots(record: RescaleRecord) -> dict[str, Any]:
    return {
        group.group_id: {
            "slotSharingGroupId": group.group_id,
            "slotSharingGroupName": group.group_name,
            "requestResourceProfile": UNKNOWN_PROFILE,
            "desiredSlots": group.desired,
            "minimalRequiredSlots": group.minimal,
            "preRescaleSlots": group.pre,
            "postRescaleSlots": group.post,
            "acquiredResourceProfile": UNKNOWN_PROFILE if group.post is None else SLOT_PROFILE,
        }
        for group in record.groups
    }


def _span(span: StateSpan, now_ms: int) -> dict[str, Any]:
    leave_ms = max(now_ms, span.enter_ms) if span.leave_ms is None else span.leave_ms
    return {
        "state": span.state,
        "enterTimestampInMillis": span.enter_ms,
        "leaveTimestampInMillis": leave_ms,
        "durationInMillis": leave_ms - span.enter_ms,
        "stringifiedException": span.exception,
    }


def rescale_counts(state: JobState) -> dict[str, int]:
    """How many records ended how, over the life of the job, evicted ones included."""
    counts = dict(state.timeline.counts)
    return {
        "ignored": counts.get(TerminalState.IGNORED, 0),
        "inProgress": 0 if state.timeline.open is None else 1,
        "completed": counts.get(TerminalState.COMPLETED, 0),
        "failed": counts.get(TerminalState.FAILED, 0),
    }


def rescales_summary(state: JobState, durations_ms: Mapping[TerminalState, Sequence[int]]) -> dict[str, Any]:
    def of(*terminal_states: TerminalState) -> dict[str, Any]:
        return statistics([value for terminal in terminal_states for value in durations_ms.get(terminal, ())])

    return {
        "rescalesCounts": rescale_counts(state),
        "rescalesDurationStatsInMillis": of(*TerminalState),
        "completedRescalesDurationStatsInMillis": of(TerminalState.COMPLETED),
        "ignoredRescalesDurationStatsInMillis": of(TerminalState.IGNORED),
        "failedRescalesDurationStatsInMillis": of(TerminalState.FAILED),
    }


def statistics(values: Sequence[int]) -> dict[str, Any]:
    """Minimum, maximum, integer average and percentiles; percentiles of nothing are the text NaN, as Flink
    writes it.
    """
    if not values:
        return {"min": 0, "max": 0, "avg": 0, **{name: "NaN" for name, _ in _PERCENTILES}}
    ordered = sorted(values)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": sum(ordered) // len(ordered),
        **{name: percentile(ordered, percent) for name, percent in _PERCENTILES},
    }


def percentile(ordered: Sequence[int], percent: float) -> float:
    """The percentile as Flink estimates it: linear between the values around the rank percent * (n + 1) /
    100.
    """
    rank = percent * (len(ordered) + 1) / 100
    below = math.floor(rank)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[below - 1], ordered[below]
    return low + (rank - below) * (high - low)


def rescales_config(state: JobState) -> dict[str, Any]:
    options = state.options
    return {
        "rescaleHistoryMax": options.rescale_history_size,
        "schedulerExecutionMode": "REACTIVE" if options.is_reactive else None,
        "submissionResourceWaitTimeoutInMillis": options.submission_wait_ms,
        "submissionResourceStabilizationTimeoutInMillis": options.submission_stabilization_ms,
        "slotIdleTimeoutInMillis": options.slot_idle_timeout_ms,
        "executingCooldownTimeoutInMillis": options.executing_cooldown_ms,
        "executingResourceStabilizationTimeoutInMillis": options.executing_stabilization_ms,
        "maximumDelayForTriggeringRescaleInMillis": options.max_delay_ms,
        "rescaleOnFailedCheckpointCount": options.max_checkpoint_failures,
        "inPlaceCooldownTimeoutInMillis": options.in_place_cooldown_ms,
        "inPlaceResourceStabilizationTimeoutInMillis": options.in_place_stabilization_ms,
        "inPlaceMaximumDelayInMillis": options.in_place_max_delay_ms,
    }

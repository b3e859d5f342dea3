"""Rescale records, their statistics and the options behind them, under Flink's names (FLIP-495), and our additions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from app.api.schema.base import made_of
from app.api.schema.rescales import (
    DurationStatistics,
    Rescale,
    RescaleCounts,
    RescalesConfig,
    RescalesSummary,
    ResourceProfile,
    SchedulerStateSpan,
    SlotGroupRescale,
    VertexRescale,
)
from app.model.jobgraph import JobGraph
from app.model.rescale import RescaleRecord, StateSpan, TerminalState, TriggerCause
from app.scheduler.adaptive import resources
from app.scheduler.adaptive.state import JobState

_CAUSES: Final = {
    TriggerCause.INITIAL_SCHEDULE: "first start",
    TriggerCause.UPDATE_REQUIREMENT: "bounds were declared",
    TriggerCause.UPDATE_POLICY: "a floor or ceiling was set",
    TriggerCause.NEW_RESOURCE_AVAILABLE: "slots came or went",
    TriggerCause.RECOVERABLE_FAILOVER: "a failure",
}


def cores(count: float, memory: int = 0) -> ResourceProfile:
    """Slots here are cores, without a memory of their own."""
    return ResourceProfile(
        cpu_cores=count,
        task_heap_memory=memory,
        task_off_heap_memory=memory,
        managed_memory=memory,
        network_memory=memory,
        extended_resources={},
    )


# Flink's rendering of a profile that is not known.
_UNKNOWN_PROFILE = cores(-1.0, -1)
_SLOT_PROFILE = cores(1.0)


def rescale_record(
    record: RescaleRecord, graph: JobGraph, spans: Sequence[SchedulerStateSpan] = ()
) -> Rescale:
    """A record; without ``spans`` as the history and the overview show it."""
    vertices = _vertices(record, graph)
    return made_of(
        Rescale,
        record,
        cause_in_words=_CAUSES[record.cause],
        parallelism_in_words=parallelism_in_words(vertices.values(), is_open=record.is_open),
        vertices=vertices,
        slots=_slots(record),
        scheduler_states=list(spans),
    )


def rescale_details(record: RescaleRecord, state: JobState, now_ms: int) -> Rescale:
    """A record with its scheduler states; the state that an open record is in lasts until now."""
    spans = [_span(span, now_ms) for span in record.spans]
    if record.is_open and (not record.spans or record.spans[-1].leave_ms is not None):
        enter_ms = max(state.phase_since_ms, record.start_ms)
        spans.append(_span(StateSpan(state.phase.kind, enter_ms, None), now_ms))
    return rescale_record(record, state.graph, spans)


def parallelism_in_words(vertices: Iterable[VertexRescale], *, is_open: bool) -> str | None:
    """`delays 1->4, store 1->2`: the vertices that changed, or `unchanged: delays 4` what stayed. At the first start
    there is no before: `start: delays 4, store 2`."""
    both = [(one.name, one.pre, one.post) for one in vertices]
    if is_open and all(after is None for _, _, after in both):
        return None
    is_first = all(before is None for _, before, _ in both)
    changed = [
        f"{name} {after}" if before is None else f"{name} {before}->{after}"
        for name, before, after in both
        if after not in (None, before)
    ]
    if changed:
        return ("start: " if is_first else "") + ", ".join(changed)
    kept = [f"{name} {before}" for name, before, _ in both if before is not None]
    return f"unchanged: {', '.join(kept)}" if kept else None


def _vertices(record: RescaleRecord, graph: JobGraph) -> dict[str, VertexRescale]:
    result = {}
    for entry in record.vertices:
        vertex = graph.by_id.get(entry.vertex_id)
        if vertex is None:
            # Of a version of the job that had it.
            continue
        result[entry.vertex_id] = made_of(
            VertexRescale,
            entry,
            name=vertex.name,
            slot_sharing_group_id=vertex.slot_sharing_group_id,
            slot_sharing_group=vertex.slot_sharing_group,
        )
    return result


def _slots(record: RescaleRecord) -> dict[str, SlotGroupRescale]:
    return {
        group.group_id: made_of(
            SlotGroupRescale,
            group,
            request_resource_profile=_UNKNOWN_PROFILE,
            acquired_resource_profile=_UNKNOWN_PROFILE if group.post is None else _SLOT_PROFILE,
        )
        for group in record.groups
    }


def _span(span: StateSpan, now_ms: int) -> SchedulerStateSpan:
    leave_ms = max(now_ms, span.enter_ms) if span.leave_ms is None else span.leave_ms
    return made_of(SchedulerStateSpan, span, leave_ms=leave_ms, duration_ms=leave_ms - span.enter_ms)


def rescale_counts(state: JobState) -> RescaleCounts:
    """How many records ended how, over the life of the job, evicted ones included."""
    counts = dict(state.timeline.counts)
    return RescaleCounts(
        ignored=counts.get(TerminalState.IGNORED, 0),
        in_progress=0 if state.timeline.open is None else 1,
        completed=counts.get(TerminalState.COMPLETED, 0),
        failed=counts.get(TerminalState.FAILED, 0),
    )


def rescales_summary(state: JobState, durations_ms: Mapping[TerminalState, Sequence[int]]) -> RescalesSummary:
    def of(*terminal_states: TerminalState) -> DurationStatistics:
        return statistics([value for terminal in terminal_states for value in durations_ms.get(terminal, ())])

    return RescalesSummary(
        rescales_counts=rescale_counts(state),
        rescales_duration_stats_ms=of(*TerminalState),
        completed_rescales_duration_stats_ms=of(TerminalState.COMPLETED),
        ignored_rescales_duration_stats_ms=of(TerminalState.IGNORED),
        failed_rescales_duration_stats_ms=of(TerminalState.FAILED),
    )


def statistics(values: Sequence[int]) -> DurationStatistics:
    """Minimum, maximum, integer average and percentiles; of nothing they are the text NaN, as Flink writes it."""
    ordered = sorted(values) or [0]

    def at(percent: float) -> float | Literal["NaN"]:
        return percentile(ordered, percent) if values else "NaN"

    return DurationStatistics(
        min=ordered[0],
        max=ordered[-1],
        avg=sum(ordered) // len(ordered),
        p50=at(50.0),
        p90=at(90.0),
        p95=at(95.0),
        p99=at(99.0),
        p999=at(99.9),
    )


def percentile(ordered: Sequence[int], percent: float) -> float:
    """The percentile as Flink estimates it: linear between the values around the rank percent * (n + 1) / 100."""
    rank = percent * (len(ordered) + 1) / 100
    below = math.floor(rank)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[below - 1], ordered[below]
    return low + (rank - below) * (high - low)


def rescales_config(state: JobState) -> RescalesConfig:
    mode = "REACTIVE" if state.options.is_reactive else None
    stabilization_ms = resources.stabilization_ms(state)
    return made_of(
        RescalesConfig,
        state.options,
        scheduler_execution_mode=mode,
        submission_stabilization_ms=stabilization_ms,
    )

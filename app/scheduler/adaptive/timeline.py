"""The rescale timeline: every attempt to bring a plan into force has one record (FLIP-495, with what Flink omits).

At most one record is open. Its spans are the phases that the scheduler went through while it was open, without gaps:
together they last exactly from its start to its end. A record is COMPLETED when a batch was committed at the new
parallelism (or the queries are idle), not already when the plan was sent. A failover has a record of its own.
"""

from __future__ import annotations

from app.model.ids import derive_id
from app.model.plan import Plan, Rung
from app.model.rescale import (
    RescaleRecord,
    SlotGroupRescale,
    TerminalState,
    TerminatedReason,
    TriggerCause,
    VertexRescale,
)
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.state import JobState, Timeline
from app.scheduler.slots import Demand

_RUNGS = tuple(Rung)

MAX_MESSAGE_CHARS = 4_000
"""A record gathers sentences while it is open; slots that flap for days must not make it grow without end."""


def open_record(
    draft: Draft,
    cause: TriggerCause,
    *,
    start_ms: int | None = None,
    message: str | None = None,
) -> None:
    """Begin a record for the bounds in force. None may be open.

    Its attempt id is 1 for requirements that no record had before, else one more than that of the last record.
    """
    state = draft.state
    timeline = state.timeline
    if timeline.open is not None:
        raise draft.refuse(f"Rescale record {timeline.open.number} is still open")
    known = timeline.requirements_uuid == state.requirements.uuid
    attempt_id = timeline.attempt_id + 1 if known else 1
    number = timeline.records + 1
    vertices, groups = _wishes(state, draft.demand)
    asked = cause is TriggerCause.UPDATE_REQUIREMENT
    record = RescaleRecord(
        uuid=derive_id(state.job_id, "rescale", number),
        number=number,
        requirements_uuid=state.requirements.uuid,
        attempt_id=attempt_id,
        cause=cause,
        start_ms=draft.now_ms if start_ms is None else start_ms,
        vertices=vertices,
        groups=groups,
        message=message,
        requested_by=state.requirements.requested_by if asked else None,
        request_reason=state.requirements.reason if asked else None,
    )
    draft.set_timeline(
        open=record, records=number, requirements_uuid=state.requirements.uuid, attempt_id=attempt_id
    )


def close_record(
    draft: Draft,
    reason: TerminatedReason,
    *,
    message: str | None = None,
    exception: str | None = None,
    output_gap_ms: int | None = None,
    reprocessed_records: int | None = None,
) -> None:
    """End the open record, if there is one. The span of the current phase is added first."""
    record = draft.state.timeline.open
    if record is None:
        return
    ended = evolve(
        record,
        spans=draft.spans_until_now(record, exception),
        end_ms=draft.now_ms,
        reason=reason,
        message=_joined(record.message, message),
        output_gap_ms=output_gap_ms,
        reprocessed_records=reprocessed_records,
    )
    timeline = draft.state.timeline
    done = reason is TerminatedReason.SUCCEEDED
    draft.set_timeline(
        open=None,
        closed=(*timeline.closed, ended),
        counts=_counted(timeline, reason.terminal_state),
        last_completed=ended if done else timeline.last_completed,
    )


def complete_record(draft: Draft, output_gap_ms: int | None, reprocessed_records: int | None) -> None:
    """End the open record as a success if it is that of the plan that has just been confirmed."""
    if has_plan(draft.state.timeline.open):
        close_record(
            draft,
            TerminatedReason.SUCCEEDED,
            output_gap_ms=output_gap_ms,
            reprocessed_records=reprocessed_records,
        )


def plan_chosen(draft: Draft, plan: Plan, rung: Rung) -> None:
    """``plan`` is being brought into force: fill in what it means per vertex and group.

    The rung is the most expensive one that was climbed while the record was open.
    """
    record = draft.state.timeline.open
    if record is None:
        return
    parallelism = dict(plan.parallelism)
    slots = {name: len(own) for name, own in plan.group_slots}
    bounds = draft.demand.bounds
    vertices = tuple(
        [
            VertexRescale(
                vertex_id=one.vertex_id,
                desired=bounds[one.vertex_id].upper,
                sufficient=bounds[one.vertex_id].lower,
                pre=one.pre,
                post=parallelism[one.vertex_id],
            )
            for one in record.vertices
        ]
    )
    wishes = {one.name: one for one in draft.demand.groups}
    groups = tuple(
        [
            SlotGroupRescale(
                group_id=one.group_id,
                group_name=one.group_name,
                desired=wishes[one.group_name].upper,
                minimal=wishes[one.group_name].lower,
                pre=one.pre,
                post=slots[one.group_name],
            )
            for one in record.groups
        ]
    )
    if record.rung is not None:
        rung = max(record.rung, rung, key=_RUNGS.index)
    record = evolve(record, vertices=vertices, groups=groups, rung=rung)
    draft.set_timeline(open=record)


def note(draft: Draft, message: str) -> None:
    """Add a sentence to the open record."""
    record = draft.state.timeline.open
    if record is not None:
        record = evolve(record, message=_joined(record.message, message))
        draft.set_timeline(open=record)


def has_plan(record: RescaleRecord | None) -> bool:
    """Whether a plan was chosen for ``record`` already."""
    return record is not None and record.rung is not None


def _wishes(
    state: JobState, demand: Demand
) -> tuple[tuple[VertexRescale, ...], tuple[SlotGroupRescale, ...]]:
    before = state.last_plan
    parallelism = dict(before.parallelism) if before else {}
    slots = {name: len(own) for name, own in before.group_slots} if before else {}
    bounds = demand.bounds
    vertices = tuple(
        VertexRescale(
            vertex.id, bounds[vertex.id].upper, bounds[vertex.id].lower, parallelism.get(vertex.id), None
        )
        for vertex in state.graph.vertices
    )
    ids = {vertex.slot_sharing_group: vertex.slot_sharing_group_id for vertex in state.graph.vertices}
    groups = tuple(
        SlotGroupRescale(ids[one.name], one.name, one.upper, one.lower, slots.get(one.name), None)
        for one in demand.groups
    )
    return vertices, groups


def _counted(timeline: Timeline, terminal: TerminalState) -> tuple[tuple[str, int], ...]:
    counts = {state.value: 0 for state in TerminalState}
    counts.update(timeline.counts)
    counts[terminal.value] += 1
    return tuple(counts.items())


def _joined(first: str | None, second: str | None) -> str | None:
    """Both sentences; the second one only if it says anything new, and there is room for it."""
    if not first or not second:
        return first or second
    if second in first or len(first) + len(second) >= MAX_MESSAGE_CHARS:
        return first
    return f"{first} {second}"

"""The public events of a step of a job: made of the facts that the step has told, and of the state behind it.

Whoever writes the step writes these events with it, in one transaction, so that none is lost and none is told of what
did not happen. One step may lead through several phases; it is told by where it ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.model.job_state.failures import Failure
from app.model.job_state.no_change import NoChange
from app.model.jobgraph import JobGraph
from app.model.public_event import PublicEvent, PublicEventType
from app.model.requirements import Deadline, Requirements
from app.model.rescale import RescaleRecord
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStartFailed,
    AttemptStopped,
    Event,
)
from app.scheduler.adaptive.journal import (
    AttemptBegun,
    AttemptEnded,
    GraphReplaced,
    LeftAsItIs,
    Moved,
    RecordBegun,
    Restarted,
    StatusChanged,
    Told,
    facts_of,
)
from app.scheduler.adaptive.state import CreatingExecutionGraph, Finished, JobState

ERROR_MAX_CHARS: Final = 2_000
"""Of a text of a failure. The exception history has more of it."""

Fields = dict[str, Any]
Facts = tuple[Told, ...]
_Events = Iterator[tuple[PublicEventType, Fields]]


def submission_events(state: JobState, now_ms: int) -> tuple[PublicEvent, ...]:
    """Of a job that was just submitted."""
    status = {"status": status_of(state).value, "previousStatus": None}
    return (
        PublicEvent(PublicEventType.STATUS, now_ms, status),
        PublicEvent(PublicEventType.REQUIREMENTS, now_ms, _requirements(state.requirements)),
    )


def step_events(told: Facts, event: Event, after: JobState, now_ms: int) -> list[PublicEvent]:
    """What ``event`` has made of the job, causes first. ``told`` and ``after`` are as `step` returned them."""
    return [
        PublicEvent(kind, now_ms, fields)
        for events_of in _IN_ORDER
        for kind, fields in events_of(told, event, after)
    ]


def _declared(facts: Facts, _: Event, after: JobState) -> _Events:
    """Of a graph that has other vertices, and of requests. What counts for a moment only is not told."""
    for graph in facts_of(GraphReplaced, facts)[:1]:
        if after.graph.by_id.keys() != graph.before.by_id.keys():
            yield PublicEventType.GRAPH, _graph(graph.before, after.graph)
    for requirements in facts_of(Requirements, facts)[-1:]:
        yield PublicEventType.REQUIREMENTS, _requirements(requirements, _deadline_of(after))
    for policy in facts_of(ScalingPolicy, facts)[-1:]:
        yield PublicEventType.SCALING_POLICY, _scaling_policy(policy)
    for share in facts_of(SlotShare, facts)[-1:]:
        yield PublicEventType.SLOT_SHARE, _slot_share(share)


def _failures(facts: Facts, event: Event, _: JobState) -> _Events:
    for failure in facts_of(Failure, facts):
        yield PublicEventType.FAILURE, _failure(failure)
    for ended in facts_of(AttemptEnded, facts):
        yield PublicEventType.ATTEMPT_ENDED, {"attempt": ended.attempt, "outcome": _outcome(event)}


def _rescales(facts: Facts, _: Event, after: JobState) -> _Events:
    """Of records that began, continued and ended. The event of a begin has the decisions of this step."""
    records = {one.number: one for one in facts_of(RescaleRecord, facts)}
    begun = {one.number for one in facts_of(RecordBegun, facts)}
    for one in facts:
        if isinstance(one, RecordBegun):
            yield PublicEventType.RESCALE_BEGUN, _begun(records[one.number], after)
        elif isinstance(one, RescaleRecord) and not one.is_open:
            yield PublicEventType.RESCALE_ENDED, _ended(one)
    record = after.timeline.open
    if record is not None and record.number not in begun and facts_of(Moved, facts):
        yield PublicEventType.RESCALE_STEP, {**_naming(record), **_step(record, after)}


def _reactions(facts: Facts, _: Event, __: JobState) -> _Events:
    for restarted in facts_of(Restarted, facts):
        yield PublicEventType.RESTART, _restart(restarted)
    for left in facts_of(LeftAsItIs, facts):
        # Each reason when it is new, at each power of ten of its count, and when it is over if that has grown since.
        if _is_power_of_ten(left.decision.count) is not left.over:
            yield PublicEventType.NO_CHANGE, _no_change(left.decision, over=left.over)


def _statuses(facts: Facts, _: Event, after: JobState) -> _Events:
    for begun in facts_of(AttemptBegun, facts):
        yield PublicEventType.ATTEMPT_BEGUN, _attempt(begun, after)
    changes = facts_of(StatusChanged, facts)
    if changes and changes[0].before is not changes[-1].after:
        status: Fields = {"status": changes[-1].after.value, "previousStatus": changes[0].before.value}
        if isinstance(after.phase, Finished) and after.phase.cause is not None:
            status["cause"] = _shortened(after.phase.cause)
        yield PublicEventType.STATUS, status


_IN_ORDER: Final = (_declared, _failures, _rescales, _reactions, _statuses)


def _is_power_of_ten(count: int) -> bool:
    return str(count).strip("0") == "1"


def _no_change(one: NoChange, *, over: bool) -> Fields:
    return {
        "reason": str(one.reason),
        "message": one.message,
        "requirementsVersion": one.version,
        "count": one.count,
        "firstTimestampInMillis": one.first_ms,
        "lastTimestampInMillis": one.last_ms,
        "over": over,
    }


def _restart(one: Restarted) -> Fields:
    return {
        "scope": "job" if one.query is None else "query",
        "query": one.query,
        "number": one.number,
        "backoffInMillis": one.backoff_ms,
    }


def _deadline_of(state: JobState) -> Deadline | None:
    """That of the newest bounds, if they wait for it."""
    version = state.requirements.version
    return next((one.deadline for one in state.queued if one.version == version and one.begun is None), None)


def _graph(before: JobGraph, after: JobGraph) -> Fields:
    def names(graph: JobGraph, other: JobGraph) -> Fields:
        return {vertex.id: vertex.name for vertex in graph.vertices if vertex.id not in other.by_id}

    return {"added": names(after, before), "removed": names(before, after)}


def _requirements(requirements: Requirements, deadline: Deadline | None = None) -> Fields:
    return {
        "version": requirements.version,
        "requestedBy": requirements.requested_by,
        "reason": requirements.reason,
        "bounds": {
            vertex: {"lowerBound": bounds.lower, "upperBound": bounds.upper}
            for vertex, bounds in requirements
        },
        "deadlineTimestampInMillis": None if deadline is None else deadline.at_ms,
        "onTimeout": None if deadline is None else deadline.on_timeout.value,
    }


def _scaling_policy(policy: ScalingPolicy) -> Fields:
    def limits(own: FloorCeiling) -> Fields:
        return {"floor": own.floor, "ceiling": own.ceiling}

    return {
        "version": policy.version,
        "requestedBy": policy.requested_by,
        "reason": policy.reason,
        "allVertices": limits(policy.all_vertices),
        "vertices": {vertex: limits(own) for vertex, own in policy.vertices},
    }


def _slot_share(share: SlotShare) -> Fields:
    return {
        "version": share.version,
        "requestedBy": share.requested_by,
        "reason": share.reason,
        "weight": share.weight,
        "priority": share.priority,
        "cap": share.cap,
    }


def _failure(failure: Failure) -> Fields:
    return {
        "error": _shortened(failure.error),
        "attempt": failure.attempt,
        "vertex": failure.vertex,
        "failedTimestampInMillis": failure.at_ms,
        "why": failure.why or None,
    }


def _attempt(begun: AttemptBegun, state: JobState) -> Fields:
    plan = state.phase.plan if isinstance(state.phase, CreatingExecutionGraph) else None
    # What is not decided yet of a BATCH job has no parallelism.
    known = plan is not None and not state.graph.runs_by_regions
    return {"attempt": begun.attempt, "parallelism": dict(plan.parallelism) if plan and known else None}


def _outcome(event: Event) -> str:
    """How the attempt ended that ``event`` ended."""
    match event:
        case AttemptFinished():
            return "finished"
        case AttemptStopped(drained=True):
            return "drained"
        case AttemptStopped():
            return "stopped"
        case AttemptStartFailed():
            return "start-failed"
        case AttemptFailed():
            return "failed"
        case _:
            return "given-up"


def _naming(record: RescaleRecord) -> Fields:
    return {"rescaleUuid": record.uuid, "number": record.number}


def _step(record: RescaleRecord, state: JobState) -> Fields:
    """How far a record has come by the end of a step."""
    return {
        "schedulerState": state.phase.kind,
        "rung": None if record.rung is None else str(record.rung),
        "postRescaleParallelism": {one.vertex_id: one.post for one in record.vertices},
    }


def _begun(record: RescaleRecord, state: JobState) -> Fields:
    return {
        **_naming(record),
        "triggerCause": str(record.cause),
        "requestedBy": record.requested_by,
        "reason": record.request_reason,
        "rollbackOf": record.rollback_of,
        "startTimestampInMillis": record.start_ms,
        "preRescaleParallelism": {one.vertex_id: one.pre for one in record.vertices},
        **_step(record, state),
    }


def _ended(record: RescaleRecord) -> Fields:
    assert record.reason is not None and record.end_ms is not None
    return {
        **_naming(record),
        "triggerCause": str(record.cause),
        "terminalState": str(record.reason.terminal_state),
        "terminatedReason": str(record.reason),
        "message": None if record.message is None else _shortened(record.message),
        "rung": None if record.rung is None else str(record.rung),
        "durationInMillis": record.end_ms - record.start_ms,
        "outputGapInMillis": record.output_gap_ms,
        "reprocessedRecords": record.reprocessed_records,
        "preRescaleParallelism": {one.vertex_id: one.pre for one in record.vertices},
        "postRescaleParallelism": {one.vertex_id: one.post for one in record.vertices},
    }


def _shortened(text: str) -> str:
    return text if len(text) <= ERROR_MAX_CHARS else f"{text[:ERROR_MAX_CHARS]} ..."

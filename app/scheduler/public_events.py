"""The public events of a step of a job: a pure function of the states before and after the step.

Whoever writes the step writes these events with it, in one transaction, so that none is lost and none is told of what
did not happen. One step may lead through several phases; it is told by where it ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

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
from app.scheduler.adaptive.failure_state import Failure
from app.scheduler.adaptive.no_change_state import NoChange
from app.scheduler.adaptive.state import (
    CreatingExecutionGraph,
    Finished,
    JobState,
    Restarting,
)

ERROR_MAX_CHARS: Final = 2_000
"""Of a text of a failure. The exception history has more of it."""

Fields = dict[str, Any]
_Told = Iterator[tuple[PublicEventType, Fields]]


def submission_events(state: JobState, now_ms: int) -> tuple[PublicEvent, ...]:
    """Of a job that was just submitted."""
    status = {"status": status_of(state).value, "previousStatus": None}
    return (
        PublicEvent(PublicEventType.STATUS, now_ms, status),
        PublicEvent(PublicEventType.REQUIREMENTS, now_ms, _requirements(state.requirements)),
    )


def step_events(before: JobState, event: Event, after: JobState, now_ms: int) -> list[PublicEvent]:
    """What ``event`` has made of the job, causes first. ``after`` is as `step` returned it."""
    return [PublicEvent(kind, now_ms, fields) for kind, fields in _told(before, event, after)]


def _told(before: JobState, event: Event, after: JobState) -> _Told:
    yield from _declared(before, after)
    if after.failures is not before.failures:
        known = {id(failure) for entry in before.failures for failure in entry}
        for failure in (failure for entry in after.failures for failure in entry):
            if id(failure) not in known:
                yield PublicEventType.FAILURE, _failure(failure)
    began = after.attempt != before.attempt
    if before.attempt_alive and (began or not after.attempt_alive):
        yield PublicEventType.ATTEMPT_ENDED, {"attempt": before.attempt, "outcome": _outcome(event)}
    if after.timeline is not before.timeline or after.phase_version != before.phase_version:
        yield from _rescales(before, after)
    if after.local is not before.local or after.num_restarts != before.num_restarts:
        yield from _restarts(before, after)
    if after.no_change is not before.no_change:
        yield from _no_changes(before, after)
    if began:
        yield PublicEventType.ATTEMPT_BEGUN, _attempt(after)
    status, previous = status_of(after), status_of(before)
    if status is not previous:
        fields: Fields = {"status": status.value, "previousStatus": previous.value}
        if isinstance(after.phase, Finished) and after.phase.cause is not None:
            fields["cause"] = _shortened(after.phase.cause)
        yield PublicEventType.STATUS, fields


def _declared(before: JobState, after: JobState) -> _Told:
    """Events of requests, and of a graph that has other vertices."""
    if after.graph is not before.graph and after.graph.by_id.keys() != before.graph.by_id.keys():
        yield PublicEventType.GRAPH, _graph(before.graph, after.graph)
    if after.requirements is not before.requirements:
        yield PublicEventType.REQUIREMENTS, _requirements(after.requirements, _deadline_of(after))
    if after.policy is not before.policy:
        yield PublicEventType.SCALING_POLICY, _scaling_policy(after.policy)
    if after.share is not before.share:
        yield PublicEventType.SLOT_SHARE, _slot_share(after.share)


def _rescales(before: JobState, after: JobState) -> _Told:
    """Events of records that began, continued and ended. The event of a begin has the decisions of this step."""
    known = before.timeline.records
    record_now, record_before = after.timeline.open, before.timeline.open
    closed = after.timeline.closed
    # A record that is only told begins and ends while another one is open.
    new = [one for one in (*closed, record_now) if one is not None and one.number > known]
    new.sort(key=lambda one: one.number)
    for record in closed:
        while new and new[0].number <= record.number:
            yield PublicEventType.RESCALE_BEGUN, _begun(new.pop(0), after)
        yield PublicEventType.RESCALE_ENDED, _ended(record)
    for record in new:
        yield PublicEventType.RESCALE_BEGUN, _begun(record, after)
    if record_now is None or record_now.number > known:
        return
    if after.phase_version != before.phase_version or (
        record_before is not None and record_now.rung is not record_before.rung
    ):
        yield PublicEventType.RESCALE_STEP, {**_naming(record_now), **_step(record_now, after)}


def _no_changes(before: JobState, after: JobState) -> _Told:
    """Decisions not to act: each reason when it is new, at each power of ten of its count, and when it is over if the
    count has grown since."""
    known, now = ({_of_no_change(one): one for one in state.no_change} for state in (before, after))
    for key, one in known.items():
        goes_on = key in now and now[key].count >= one.count
        if not goes_on and not _is_power_of_ten(one.count):
            yield PublicEventType.NO_CHANGE, _no_change(one, over=True)
    for key, one in now.items():
        told = key in known and known[key].count == one.count
        if not told and _is_power_of_ten(one.count):
            yield PublicEventType.NO_CHANGE, _no_change(one, over=False)


def _of_no_change(one: NoChange) -> tuple[str, int, int, int]:
    """What it goes on as. A version of the policy that forgets limits of vertices that are gone makes no difference."""
    return one.reason, one.version, one.plan_version, one.first_ms


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


def _restarts(before: JobState, after: JobState) -> _Told:
    known = {(one.query, one.number) for one in before.local}
    alone = [one for one in after.local if (one.query, one.number) not in known]
    for one in alone:
        backoff_ms = max(0, one.restart_ms - one.since_ms)
        yield PublicEventType.RESTART, _restart("query", one.query, one.number, backoff_ms)
    # Those of single queries are counted as restarts of the job too.
    if after.num_restarts - before.num_restarts > len(alone):
        backoff_ms = after.phase.backoff_ms if isinstance(after.phase, Restarting) else 0
        yield PublicEventType.RESTART, _restart("job", None, after.num_restarts, backoff_ms)


def _restart(scope: str, query: str | None, number: int, backoff_ms: int) -> Fields:
    return {"scope": scope, "query": query, "number": number, "backoffInMillis": backoff_ms}


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


def _attempt(state: JobState) -> Fields:
    plan = state.phase.plan if isinstance(state.phase, CreatingExecutionGraph) else None
    # What is not decided yet of a BATCH job has no parallelism.
    known = plan is not None and not state.graph.runs_by_regions
    return {"attempt": state.attempt, "parallelism": dict(plan.parallelism) if plan and known else None}


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

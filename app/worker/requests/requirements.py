"""A PUT of resource requirements, and the cancellation of a rescale: accepted or refused by the state at the moment
when the request is processed.

The function `app.model.requirements.validate_bounds` has the sentences for wrong bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

from app.model.ids import derive_id
from app.model.job_state.changes import Change, Patch
from app.model.jobgraph import JobGraph, JobType, JobVertex
from app.model.requirements import Bounds, Deadline, Requirements, bounds_at_first, validate_bounds
from app.model.rescale import RescaleRecord, TriggerCause
from app.model.sentences import ended
from app.model.state_partitions import Numbers, why_fixed
from app.scheduler.adaptive.bounds_declared import (
    bounds_to_count,
    bounds_with_queue,
    cancelable_of,
    changed_by,
    kept_waiting,
    undoing,
)
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import RequirementsUpdated
from app.scheduler.adaptive.program_queries import GONE_MS, absent_vertices
from app.scheduler.adaptive.state import Created, JobState
from app.scheduler.adaptive.timeline import next_record_uuid
from app.worker.job.mailbox import RequestDecision
from app.worker.refusals import InvalidRequest, NotYet, StateConflict
from app.worker.requests.declared import refusal_by_cap, refuse_ended, refuse_stale
from app.worker.views import (
    GivenDeadline,
    RequirementsResult,
    RequirementsUpdate,
    Update,
)

DEADLINE_HEADER: Final = "X-Slotwise-Deadline"
MAX_DEADLINE_MS: Final = 30 * 86_400_000
"""Beyond it a deadline is a mistake."""


def initial_requirements(
    job_id: str, graph: JobGraph, requested_by: str | None, *, reactive: bool = False
) -> Requirements:
    """The bounds that the graph declares: version 1. In reactive mode there is no upper one but the max parallelism."""
    return Requirements(
        uuid=derive_id(job_id, "requirements", 1),
        version=1,
        bounds=tuple((vertex.id, bounds_at_first(vertex, reactive=reactive)) for vertex in graph.vertices),
        requested_by=requested_by,
    )


def resolve_bounds(
    state: JobState, wanted: Mapping[str, tuple[int, int]], now_ms: int
) -> tuple[dict[str, Bounds], list[str]]:
    """Bounds by vertex id or unique name, as bounds by id in the graph's order, and all errors.

    An upper bound above the state partitions of a vertex is allowed if the state can be redistributed. Vertices of
    queries that do not run may be left out: their bounds stay. Who has left the graph is passed over for a day.
    """
    graph = state.graph
    by_id: dict[str, tuple[int, int]] = {}
    errors: list[str] = []
    gone = {vertex for vertex, at_ms in state.gone if now_ms - at_ms < GONE_MS}
    for key, bounds in wanted.items():
        vertex = graph.by_id.get(key.lower()) or graph.by_name.get(key)
        if vertex is None and key.lower() in gone:
            continue
        target = vertex.id if vertex else key
        if target in by_id:
            errors.append(f"Job vertex {target} is given twice (as {key!r} and by another key).")
        by_id[target] = bounds
    if not by_id.keys() >= graph.by_id.keys():
        for idle in graph.over | absent_vertices(state):
            own = state.requirements[idle]
            by_id.setdefault(idle, (own.lower, own.upper))
    resolved, more = validate_bounds(
        graph, by_id, lambda vertex, upper: _why_not_beyond(state, vertex, upper)
    )
    return {v.id: resolved[v.id] for v in graph.vertices if v.id in resolved}, errors + more


def _why_not_beyond(state: JobState, vertex: JobVertex, upper: int) -> str | None:
    # Of a vertex that Spark has not analysed yet nobody knows why.
    if not vertex.stateful or vertex.max_is_assumed or state.graph.type is not JobType.STREAMING:
        return ""
    return why_fixed(state.graph, state.options, vertex, upper, state.driver.fixed)


def resolve_partitions(
    state: JobState, bounds: Mapping[str, Bounds], wanted: Mapping[str, int]
) -> tuple[Numbers, list[str]]:
    """The numbers of state partitions that count with ``bounds``, and all errors in ``wanted``, those of a request.

    A number that was asked for before and is not there yet counts on, unless an upper bound is above it.
    """
    graph, errors = state.graph, []
    by_id: dict[str, int] = {}
    for key, number in wanted.items():
        vertex = graph.by_id.get(key.lower()) or graph.by_name.get(key)
        if vertex is None:
            continue  # its bounds have been refused
        label = f"job vertex {vertex.id} ({vertex.name})"
        upper = bounds[vertex.id].upper if vertex.id in bounds else 1
        floor = state.policy[vertex.id].floor or 1
        why_not = None
        if number != vertex.max_parallelism:
            why_not = why_fixed(graph, state.options, vertex, number, state.driver.fixed)
        if number < 1:
            errors.append(f"The requested statePartitions {number} for {label} must be greater than zero.")
        elif number < upper:
            errors.append(
                f"The requested statePartitions {number} for {label} are fewer than its upper bound {upper}."
            )
        elif number < floor:
            errors.append(
                f"The requested statePartitions {number} for {label} are fewer than its floor {floor} (scaling policy)."
            )
        elif why_not is not None:
            errors.append(f"The requested statePartitions {number} for {label} are not possible. {why_not}")
        else:
            by_id[vertex.id] = number
    before = dict(not_there_yet(state)) | _waiting_numbers(state, bounds)
    if not by_id and not before:
        return (), errors
    numbers = []
    for vertex in graph.vertices:
        wish = by_id.get(vertex.id, before.get(vertex.id))
        if wish is None or vertex.id not in bounds or wish == vertex.max_parallelism:
            continue
        if wish >= bounds[vertex.id].upper:
            numbers.append((vertex.id, wish))
    return tuple(numbers), errors


def _waiting_numbers(state: JobState, bounds: Mapping[str, Bounds]) -> dict[str, int]:
    """The numbers of state partitions in the queue, of vertices whose bounds there are declared once more."""
    found: dict[str, int] = {}
    for one in state.queued:
        queued = dict(one.bounds)
        found |= {vertex: own for vertex, own in one.partitions if bounds.get(vertex) == queued[vertex]}
    return found


def reactive_sentence(state: JobState) -> str:
    """Why bounds of a job in reactive mode cannot be declared, as in production Flink."""
    return (
        f"Job {state.job_id} runs in reactive mode (scheduler-mode: reactive): it follows the slots that there are, "
        "and its resource requirements cannot be changed."
    )


def deadline_of(state: JobState, given: GivenDeadline | None, now_ms: int, ahead_ms: int) -> Deadline | None:
    """``now_ms`` is by the time of the job, which is ``ahead_ms`` ahead of the clock.

    Raises:
        StateConflict: the job is no STREAMING one. InvalidRequest: the deadline is too early or too late.
    """
    if given is None:
        return None
    if state.graph.type is not JobType.STREAMING:
        raise StateConflict(
            f"Job {state.job_id} is a {state.graph.type} job: its bounds apply at once to vertices that are not "
            f"decided yet, so a deadline ({DEADLINE_HEADER}) is not possible."
        )
    at_ms = now_ms + given.wait_ms if given.at_ms is None else given.at_ms + ahead_ms
    if not now_ms < at_ms <= now_ms + MAX_DEADLINE_MS:
        raise InvalidRequest(
            f"The header {DEADLINE_HEADER} should be later than now ({instant(now_ms)}) by 30 days at most, found "
            f"{instant(at_ms)}."
        )
    return Deadline(at_ms, given.on_timeout)


_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999, behind which there is no date."""


def instant(at_ms: int) -> str:
    """As ISO 8601 has it, to the second."""
    at_ms = min(at_ms, _LAST_MS)
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def decide_update(state: JobState, update: RequirementsUpdate, now_ms: int, ahead_ms: int) -> RequestDecision:
    """What a PUT of requirements does, seeing the state that is current when its turn comes."""
    refuse_ended(state.job_id, status_of(state), update.refusal)
    refuse_early(state)
    refuse_stale(update, state.requirements.version)
    deadline = deadline_of(state, update.deadline, now_ms, ahead_ms)
    bounds, errors = resolve_bounds(state, update.bounds, now_ms)
    numbers, more = resolve_partitions(state, bounds, update.state_partitions)
    if errors or more:
        raise InvalidRequest(*errors, *more)
    requirements = state.requirements.following(
        state.job_id,
        tuple(bounds.items()),
        requested_by=update.requested_by,
        reason=update.reason,
        state_partitions=numbers,
    )
    same = not changed_by(state, requirements)
    again = update.retry and state.trial.taken_back is not None
    if state.options.is_reactive and not (same and again):
        raise StateConflict(reactive_sentence(state))
    if same and not again and not is_another_try(state):
        return RequestDecision(None, RequirementsResult(state.requirements.version, changed=False))
    for declared in (bounds_to_count(state, requirements), bounds_with_queue(state, requirements)):
        if (refused := refusal_by_cap(state, declared)) is not None:
            raise StateConflict(refused)
    event = RequirementsUpdated(requirements, deadline)
    waiting = () if deadline is None else kept_waiting(state, requirements)
    # That of the bounds, or that of the start of a job that has no record yet: what waits has the one behind that.
    waits_for_start = deadline is not None and isinstance(state.phase, Created)
    rescale = next_record_uuid(state, ahead=1 + len(state.queued) if waits_for_start else 0)
    return RequestDecision(event, RequirementsResult(requirements.version, True, waiting, rescale))


def refuse_early(state: JobState) -> None:
    """Raises NotYet: there is no vertex that could have bounds."""
    if state.graph.awaits_query and not status_of(state).is_globally_terminal:
        raise NotYet(
            f"The program of job {state.job_id} has not started a query yet, so it has no vertices. Bounds that it was "
            "submitted with, by name, apply when they come."
        )


def is_another_try(state: JobState) -> bool:
    """Whether a redistribution of state was given up that the same requirements would ask for again.

    Not while a rescale is taken back: what comes again and again does not lift that, a retry does.
    """
    refused = state.partitions.refused
    if state.trial.taken_back is not None:
        return False
    return refused is not None and state.with_wanted_partitions() is not state.graph


def not_there_yet(state: JobState) -> Numbers:
    """The numbers that were asked for expressly and are not those of the state."""
    graph = state.graph
    return tuple(
        (vertex, number)
        for vertex, number in state.requirements.state_partitions
        if vertex in graph.by_id and graph.by_id[vertex].max_parallelism != number
    )


@dataclass(frozen=True, slots=True)
class RescaleCancellation(Update):
    """A DELETE of the rescale ``uuid``. If-Match is about the requirements."""

    subject: ClassVar[str] = RequirementsUpdate.subject
    refusal: ClassVar[str] = "no rescale of it can be canceled"

    uuid: str

    def parts(self) -> list[object]:
        return ["cancel-rescale", self.uuid, self.if_match, self.reason]


def decide_cancellation(
    state: JobState, record: RescaleRecord, asked: RescaleCancellation
) -> RequestDecision:
    """What a request to cancel the rescale of ``record`` does.

    Raises:
        StateConflict: nothing of that rescale waits, or the cap does not allow what would come back.
        StaleVersion: If-Match names another version of the requirements than the one in force.
    """
    refuse_stale(asked, state.requirements.version)
    one = _canceled_by(state, record)
    if one is None:
        raise StateConflict(" ".join([_why_not_canceled(state, record), *_what_can_be_canceled(state)]))
    who = f"Canceled by {asked.requested_by}" if asked.requested_by else "Canceled"
    why = ended(f"{who}: {asked.reason}" if asked.reason else who)
    event = undoing(state, one, asked.requested_by, why, asked.reason)
    refused = refusal_by_cap(state, event.requirements)
    if refused is not None:
        raise StateConflict(f"The bounds before rescale {record.number} cannot come back. {refused}")
    return RequestDecision(event, RequirementsResult(event.requirements.version, changed=True))


def _canceled_by(state: JobState, record: RescaleRecord) -> Patch | Change | None:
    """What of the job the cancellation of ``record`` takes back. What has waited may have another record by now than
    its PUT was answered with: both are its own."""

    def numbers_of(one: Patch | Change) -> tuple[int, ...]:
        return (one.record, one.first_record) if isinstance(one, Patch) else (one.record,)

    return next((one for one in cancelable_of(state) if record.number in numbers_of(one)), None)


def _why_not_canceled(state: JobState, record: RescaleRecord) -> str:
    what, now = f"Rescale {record.number} of job {state.job_id}", state.timeline.open
    is_begun = any(one.record == record.number for one in state.queued)
    if not is_begun and (now is None or now.number != record.number):
        return f"{what} has ended: there is nothing of it to cancel. To change the bounds, declare others."
    if record.cause is not TriggerCause.UPDATE_REQUIREMENT:
        return (
            f"{what} does not follow from declared bounds ({record.cause}), so there are none to take back."
        )
    if record.rollback_of is not None:
        return f"{what} takes back rescale {record.rollback_of}. To change the bounds, declare others."
    if now is not None and now.number == record.number and state.open_change is not None:
        return f"{what} cannot be canceled any more: the vertices whose bounds it changed have later bounds."
    return (
        f"{what} cannot be canceled any more: it is being carried out. To change the bounds, declare others."
    )


def _what_can_be_canceled(state: JobState) -> list[str]:
    """The record of what waits may have ended, by a failover for instance: it is not the one that is open now."""
    return [
        f"Rescale {one.record} can be canceled: bounds of version {one.version} still wait."
        for one in cancelable_of(state)
    ]

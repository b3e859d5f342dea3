"""The rescale timeline: every attempt to bring a plan into force has one record (FLIP-495, with what Flink omits).

At most one record is open. Its spans are the phases that the scheduler went through while it was open, without gaps:
together they last exactly from its start to its end. A record is COMPLETED when a batch was committed at the new
parallelism (or the queries are idle), not already when the plan was sent; or when another change began while its plan
was in force, which it then says. A failover has a record of its own, and so has whatever begins while bounds wait for
their deadline.

A BATCH job is not rescaled but decided, region by region. Its records are of attempts, which are COMPLETED when the
driver is there, and of bounds that were declared: COMPLETED if they count for a vertex that is not decided yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from app.model import sentences
from app.model.batch import RegionStatus
from app.model.ids import derive_id
from app.model.job_state.changes import Author, Parallelism, Patch
from app.model.job_state.supply import CapRaise
from app.model.plan import Plan, Rung
from app.model.requirements import Requirements
from app.model.rescale import (
    NOTHING_MEASURED,
    Measured,
    RescaleRecord,
    SlotGroupRescale,
    TerminalState,
    TerminatedReason,
    TriggerCause,
    VertexRescale,
)
from app.model.scaling_policy import ScalingPolicy
from app.model.slot_share import SlotShare
from app.model.value import evolve
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.goal import goal_of
from app.scheduler.adaptive.journal import Moved
from app.scheduler.adaptive.queued_slots import QueuedSlots
from app.scheduler.adaptive.record_figures import (
    before_of,
    cap_change_of,
    numbers_in_plan,
    rows_of_new_record,
    rows_of_record,
)
from app.scheduler.adaptive.state import (
    Executing,
    JobState,
    Restarting,
    StopWithSavepoint,
    Timeline,
    WaitingForResources,
)
from app.scheduler.slots import Demand

_RUNGS = tuple(Rung)
_NONE_YET = tuple((state.value, 0) for state in TerminalState)

_OVERTAKEN = (
    "Other bounds were declared while its plan was being brought into force; it may have been in force since."
)
_NO_BATCH_YET = "Its plan was in force, and no batch had been committed at it, when another change began."
_NO_QUERY_YET = "The program had not started a query in this attempt yet."
_CAME_FIRST = "The plan of an earlier record came into force first; the parallelism before is that plan's."
_WAITS_ON = "Its bounds still wait for their deadline; what began meanwhile has a record of its own."

MAX_MESSAGE_CHARS = 4_000
"""A record gathers sentences while it is open; slots that flap for days must not make it grow without end."""


def open_record(
    draft: Draft,
    cause: TriggerCause,
    *,
    start_ms: int | None = None,
    message: str | None = None,
    rollback_of: int | None = None,
    asked: Patch | Author | None = None,
) -> None:
    """Begin a record for the bounds in force, or for queued ones of its number. None may be open. ``asked``: as in
    `add_closed_record`."""
    record = draft.state.timeline.open
    if record is not None:
        raise draft.refuse(f"Rescale record {record.number} is still open")
    record = _new_record(draft, cause, start_ms, message, rollback_of, asked)
    draft.set_record(record, **_numbers_after(record))


def add_closed_record(
    draft: Draft,
    cause: TriggerCause,
    message: str | None,
    *,
    rollback_of: int | None = None,
    asked: Patch | Author | None = None,
) -> None:
    """A record that ends as it begins, of what changes no parallelism by itself. Another one may be open. ``asked``:
    by whom and why it is, if not by the author of the bounds in force."""
    record = _new_record(draft, cause, None, message, rollback_of, asked)
    reason = TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE
    _tell_closed(draft, evolve(record, end_ms=draft.now_ms, reason=reason))


def tell_grown(draft: Draft, new: Parallelism, message: str) -> None:
    """A record, which ends as it begins, of vertices that have come with what they run at, if any have. One that is
    open goes on."""
    at = dict(new)
    if new:
        record = _new_record(draft, TriggerCause.INITIAL_SCHEDULE, None, message, None)
        own = (one for one in record.vertices if one.vertex_id in at)
        ended = evolve(
            record,
            vertices=tuple(evolve(one, pre=None, post=at[one.vertex_id]) for one in own),
            end_ms=draft.now_ms,
            reason=TerminatedReason.SUCCEEDED,
            rung=Rung.IN_PLACE,
            request_reason=None,
        )
        _tell_closed(draft, ended)
    keep_open(draft, new)


def _tell_closed(draft: Draft, ended: RescaleRecord) -> None:
    """The new record ``ended`` was never open."""
    draft.set_record(ended, counts=_counted(draft.state.timeline, ended), **_numbers_after(ended))


def keep_open(draft: Draft, new: Parallelism = ()) -> None:
    """The open record goes on under the requirements of now, with the vertices that there are and what ``new`` ones
    run at."""
    timeline, uuid, at = draft.state.timeline, draft.state.requirements.uuid, dict(new)
    record = timeline.open
    if record is None:
        return
    number = timeline.attempt_id + 1 if timeline.requirements_uuid == uuid else 1
    posts = {one.vertex_id: one.post for one in record.vertices if one.post is not None}
    slots = {one.group_name: one.post for one in record.groups if one.post is not None}
    vertices, groups = rows_of_record(_declared_of(draft, record), *before_of(record), posts, slots)
    vertices = tuple([evolve(one, pre=at.get(one.vertex_id, one.pre)) for one in vertices])
    record = evolve(record, requirements_uuid=uuid, attempt_id=number, vertices=vertices, groups=groups)
    draft.set_record(record, requirements_uuid=uuid, attempt_id=number)


def draw_grown(draft: Draft, new: Parallelism) -> None:
    """The open record is of the first vertices of the job, which run at ``new``."""
    record = draft.state.timeline.open
    assert record is not None
    slots = {one.group_name: one.post for one in record.groups if one.post is not None}
    after = dict(new) if record.has_plan else {}
    _draw(draft, record, *rows_of_record(goal_of(draft).declared, {}, before_of(record)[1], after, slots))


def next_record_uuid(state: JobState, ahead: int = 0) -> str:
    """Of the record that begins next, whatever it is of, or of one ``ahead`` of that."""
    return derive_id(state.job_id, "rescale", state.timeline.records + 1 + ahead)


def _new_record(
    draft: Draft,
    cause: TriggerCause,
    start_ms: int | None,
    message: str | None,
    rollback_of: int | None,
    asked_before: Patch | Author | None = None,
) -> RescaleRecord:
    """The next record. Its attempt id is 1 for requirements that no record had before, else one more than that of the
    last record."""
    state = draft.state
    timeline = state.timeline
    known = timeline.requirements_uuid == state.requirements.uuid
    attempt_id = timeline.attempt_id + 1 if known else 1
    number, uuid = timeline.records + 1, next_record_uuid(state)
    # Failovers and changes of slots have no author, but for slots that a cap has kept away.
    waiting = _waiting_patch(state, number)
    goal = goal_of(draft).declared_whole if waiting is None else QueuedSlots.of(state).demand_with(waiting)
    vertices, groups = rows_of_new_record(goal, state)
    asked: Requirements | ScalingPolicy | Patch | SlotShare | CapRaise | Author | None = (
        asked_before or waiting
    )
    if asked is None and cause in (TriggerCause.INITIAL_SCHEDULE, TriggerCause.UPDATE_REQUIREMENT):
        asked = state.requirements
    elif asked is None and cause is TriggerCause.UPDATE_POLICY:
        asked = state.policy
    elif asked is None and cause is TriggerCause.NEW_RESOURCE_AVAILABLE:
        asked = cap_change_of(state)
    if isinstance(asked, CapRaise):
        message = _joined(message, f"Its cap was {asked.before} slot(s) before.")
    return RescaleRecord(
        uuid=uuid,
        number=number,
        requirements_uuid=state.requirements.uuid,
        attempt_id=attempt_id,
        cause=cause,
        start_ms=draft.now_ms if start_ms is None else start_ms,
        vertices=vertices,
        groups=groups,
        message=message,
        requested_by=None if asked is None else asked.requested_by,
        request_reason=None if asked is None else asked.reason,
        rollback_of=rollback_of,
    )


def _numbers_after(record: RescaleRecord) -> dict[str, Any]:
    """What of the timeline follows from the newest ``record``."""
    uuid, attempt_id = record.requirements_uuid, record.attempt_id
    return {"requirements_uuid": uuid, "attempt_id": attempt_id}


def _waiting_patch(state: JobState, number: int) -> Patch | None:
    """The bounds in the queue that record ``number`` is of, until they are applied."""
    return next((one for one in state.queued if one.record == number and one.begun is None), None)


def _declared_of(draft: Draft, record: RescaleRecord) -> Demand:
    """What the bounds ask for that ``record`` is of, with the state partitions that there are."""
    patch = _waiting_patch(draft.state, record.number)
    return goal_of(draft).declared if patch is None else QueuedSlots.of(draft.state).demand_with(patch)


def close_record(
    draft: Draft,
    reason: TerminatedReason,
    *,
    message: str | None = None,
    exception: str | None = None,
    measured: Measured = NOTHING_MEASURED,
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
        **({} if measured is NOTHING_MEASURED else asdict(measured)),
    )
    timeline = draft.state.timeline
    done = reason is TerminatedReason.SUCCEEDED
    draft.set_record(
        ended,
        open=None,
        counts=_counted(timeline, ended),
        last_completed=ended if done else timeline.last_completed,
    )


def close_failed(draft: Draft, reason: TerminatedReason, error: str) -> None:
    """End the open record, if there is one, because of ``error``."""
    close_record(draft, reason, message=error, exception=error)


def complete_record(draft: Draft, measured: Measured = NOTHING_MEASURED) -> None:
    """The plan in force has processed a batch, or has nothing to do. End the open record as a success if it is its."""
    waits = draft.state.is_before_query
    if draft.state.trial.unproven and not waits:
        draft.set_part("trial", unproven=False)
    record = draft.state.timeline.open
    if record is not None and record.has_plan:
        message = _NO_QUERY_YET if waits else None
        close_record(draft, TerminatedReason.SUCCEEDED, message=message, measured=measured)


def plan_chosen(draft: Draft, plan: Plan, rung: Rung) -> None:
    """``plan`` is being brought into force: fill in what it means per vertex and group.

    The rung is the most expensive one that was climbed while the record was open.
    """
    if leave_wait(draft):
        stopped = isinstance(draft.state.phase, Restarting | WaitingForResources)
        fails_over = stopped and draft.state.last_plan is not None
        open_record(
            draft, TriggerCause.RECOVERABLE_FAILOVER if fails_over else TriggerCause.NEW_RESOURCE_AVAILABLE
        )
    record = draft.state.timeline.open
    if record is None:
        return
    # A new attempt of a BATCH job keeps what is finished; the rest is decided anew.
    after = numbers_in_plan(draft.state, plan, (RegionStatus.FINISHED,))
    vertices, groups = rows_of_record(goal_of(draft).declared, *before_of(record), *after)
    if record.rung is not None:
        rung = max(record.rung, rung, key=_RUNGS.index)
    if rung is not record.rung:
        draft.tell(Moved())
    draft.set_record(evolve(record, vertices=vertices, groups=groups, rung=rung))


def overtake_record(draft: Draft, message: str | None = None) -> None:
    """End the open record, because other bounds were declared. What had been begun for it may still take effect."""
    if leave_record_in_force(draft) or leave_wait(draft):
        return
    record = draft.state.timeline.open
    begun = record is not None and record.has_plan
    close_record(
        draft, TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED, message=_OVERTAKEN if begun else message
    )


def redraw(draft: Draft) -> None:
    """Other requirements are in force, such as those of another version of the job: the open record is about those
    now."""
    record = draft.state.timeline.open
    if record is not None:
        _draw(draft, record, *rows_of_record(goal_of(draft).declared_whole, *before_of(record)))


def _draw(
    draft: Draft,
    record: RescaleRecord,
    vertices: tuple[VertexRescale, ...],
    groups: tuple[SlotGroupRescale, ...],
) -> None:
    """The open ``record`` is the first one of the requirements in force."""
    uuid = draft.state.requirements.uuid
    record = evolve(record, requirements_uuid=uuid, attempt_id=1, vertices=vertices, groups=groups)
    draft.set_record(record, requirements_uuid=uuid, attempt_id=1)


def leave_record_in_force(draft: Draft) -> bool:
    """Another change begins. A record whose plan is in force has got what it was for, if no batch yet (as in Flink)."""
    phase = draft.state.phase
    running = isinstance(phase, Executing) or (isinstance(phase, StopWithSavepoint) and phase.target is None)
    record = draft.state.timeline.open
    if not running or record is None or not record.has_plan:
        return False
    close_record(draft, TerminatedReason.SUCCEEDED, message=_NO_BATCH_YET)
    return True


def leave_wait(draft: Draft) -> bool:
    """A change begins. End the open record if its bounds wait: it is completed by what they ask for only."""
    if waits := bool(draft.state.queued) and draft.state.open_waits:
        close_record(draft, TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE, message=_WAITS_ON)
    return waits


def close_for_failover(draft: Draft, error: str, exception: str | None = None) -> None:
    """End the open record because of a failover. Bounds that wait for their deadline wait on."""
    if draft.state.open_waits:
        note(draft, _WAITS_ON)
    close_record(draft, TerminatedReason.JOB_FAILOVER_RESTARTING, message=error, exception=exception)


def redraw_for_plan_in_force(draft: Draft, plan: Plan) -> None:
    """``plan`` is in force now. For a record that was opened meanwhile, and has no plan yet, it is the one before."""
    record = draft.state.timeline.open
    if record is None or record.has_plan:
        return
    vertices, groups = rows_of_record(_declared_of(draft, record), *numbers_in_plan(draft.state, plan))
    if (vertices, groups) != (record.vertices, record.groups):
        message = _joined(record.message, _CAME_FIRST)
        draft.set_record(evolve(record, vertices=vertices, groups=groups, message=message))


def note(draft: Draft, message: str) -> None:
    """Add a sentence to the open record."""
    record = draft.state.timeline.open
    if record is not None:
        draft.set_record(evolve(record, message=_joined(record.message, message)))


def note_missing(draft: Draft, executors: int) -> None:
    """Say in the open record that the plan came into force, or will, with fewer executors than it was made for."""
    if executors:
        note(draft, f"{executors} executor(s) had not come when its plan was taken up.")


def note_not_followed(draft: Draft, told: Iterable[tuple[str, str]]) -> None:
    """Say in the open record which vertices have other tasks than the plan in force says.
    ``told``: as in `PlanApplied.not_followed`."""
    record = draft.state.timeline.open
    known = (record.message or "") if record is not None else ""
    for _, sentence in told:
        note(draft, f"The restart has not changed this: {sentence}" if sentence in known else sentence)


def _counted(timeline: Timeline, ended: RescaleRecord) -> tuple[tuple[str, int], ...]:
    counts = dict(timeline.counts or _NONE_YET)
    assert ended.reason is not None
    counts[ended.reason.terminal_state.value] += 1
    return tuple(counts.items())


def _joined(first: str | None, second: str | None) -> str | None:
    """Both sentences; the second one only if it says anything new, and there is room for it."""
    if not first or not second:
        return first or second
    if second in first or len(first) + len(second) >= MAX_MESSAGE_CHARS:
        return first
    return f"{sentences.ended(first)} {second}"

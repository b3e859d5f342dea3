"""Bounds that were declared and are not in force yet: they can be taken back, and may have a deadline (ADR 46).

* Those with a deadline are brought into force when the slots are there that they need; until then the former bounds
  hold (`hold`). At the deadline they are brought into force as far as the slots allow, or the former ones come back
  (`deadline`). The deadline limits the wait: a change that is on its way by then goes on. A job that is restarted for
  it and finds too few slots goes back to the wait.
* Those without are on their way as soon as a plan is made for them.
* Each counts for the vertices whose bounds it changed. Later bounds of other vertices leave it alone; later bounds of
  one of its vertices take its place there. If those are taken back, what comes back is what was before both.
* What was taken back by its trial (`trial`) before the change comes back with the former bounds.
"""

from __future__ import annotations

from typing import Any, Final

from app.model.ids import derive_id
from app.model.jobgraph import JobGraph
from app.model.requirements import Deadline, OnTimeout, Requirements
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.sentences import duration_in_words
from app.scheduler.adaptive import hold, slot_declaration, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import RequirementsUpdated
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.rollback_state import TakenBack
from app.scheduler.adaptive.state import (
    Canceling,
    Created,
    CreatingExecutionGraph,
    Failing,
    Finished,
    JobState,
    Restarting,
)
from app.scheduler.adaptive.trial import coming_plan, last_taken_back
from app.scheduler.adaptive.version_state import BoundsOfVertices

DEADLINE_TIMER: Final = "deadline"
_ENDS: Final = (Failing, Canceling, Finished)


def overtake(draft: Draft, event: RequirementsUpdated, was: Requirements) -> tuple[frozenset[str], list[str]]:
    """Other bounds are about to be taken over: what waits counts on for those of its vertices that they leave alone.
    The vertices that they change, also from what `before` said; and sentences about what becomes of deadlines."""
    state, kept, told = draft.state, [], []
    changed = _changed(state.requirements, event.requirements)
    undone = None if event.undoes is None else event.undoes.version
    for one in state.pending:
        if one.version == undone:
            continue
        former = tuple(pair for pair in one.former if pair[0] not in changed)
        if former:
            partitions = tuple(pair for pair in one.former_partitions if pair[0] not in changed)
            kept.append(evolve(one, former=former, former_partitions=partitions))
        if one.deadline is None or one.begun:
            continue
        # Not of a deadline that has passed: what was asked for then is done next.
        if former and one.deadline.at_ms > draft.now_ms:
            left = duration_in_words(one.deadline.at_ms - draft.now_ms)
            told.append(
                f"{_named(state, former)} of version {one.version} still wait for a deadline in {left}."
            )
        if len(former) < len(one.former):
            gone = tuple(pair for pair in one.former if pair[0] in changed)
            told.append(_does_not_count(state, gone, one, draft.now_ms))
    if len(kept) < len(state.pending) or any(one not in state.pending for one in kept):
        draft.set(pending=tuple(kept))
    return changed if was is state.requirements else changed & _changed(was, event.requirements), told


def before(state: JobState) -> Requirements:
    """What comes back if other bounds are declared now and then taken back: what holds, not what never did."""
    waiting = state.with_deadline
    return hold.without(state.requirements, waiting) if waiting else state.requirements


def begin(
    draft: Draft,
    changed: frozenset[str],
    was: Requirements,
    event: RequirementsUpdated,
    lifted: TakenBack | None = None,
) -> None:
    """The bounds of ``event`` were taken over, of which `overtake` said what they have ``changed``, and their record is
    open, if any. ``was``: what `before` said. ``lifted``: what had been taken back, and may be tried again by these."""
    state, record = draft.state, draft.state.timeline.open
    if event.undoes is not None or not changed:
        return
    one = Pending(
        version=state.requirements.version,
        record=0 if record is None else record.number,
        since_ms=draft.now_ms,
        former=tuple(pair for pair in was.bounds if pair[0] in changed),
        former_partitions=tuple(pair for pair in was.state_partitions if pair[0] in changed),
        deadline=event.deadline,
        requested_by=state.requirements.requested_by,
        reason=state.requirements.reason,
        taken_back=lifted,
    )
    draft.set(pending=(*state.pending, one))


def kept_waiting(state: JobState, wanted: Requirements) -> tuple[str, ...]:
    """The vertices that go on waiting for the deadline that they have if ``wanted`` is declared with another one, as
    their bounds do not change."""
    changed = _changed(state.requirements, wanted)
    waiting = [one for one in state.with_deadline if not one.begun]
    return tuple(vertex for one in waiting for vertex, _ in one.former if vertex not in changed)


def slots_with_deadline(state: JobState, wanted: Requirements, on_timeout: OnTimeout) -> int:
    """With how many slots ``wanted`` would count before their deadline, if they were declared with one."""
    was = before(state)
    changed = _changed(was, wanted)
    former = tuple(pair for pair in was.bounds if pair[0] in changed)
    one = Pending(wanted.version, 0, 0, former, deadline=Deadline(0, on_timeout))
    others = [other for other in state.pending if not other.vertices & changed]
    return hold.slots_needed(evolve(state, requirements=wanted, pending=(*others, one), taken_back=None), one)


def restore(draft: Draft, taken: TakenBack | None) -> None:
    """Other bounds were taken over that are no reason to try again what was ``taken`` back: it holds on, with bounds
    that wait for their deadline if there are any."""
    if taken is None or last_taken_back(draft.state) is not None:
        return
    waiting = draft.state.with_deadline
    if waiting:
        _replace(draft, waiting[0], taken_back=taken)
    else:
        draft.set(taken_back=taken, watch=None)


def undoing(
    state: JobState, one: Pending, requested_by: str | None, why: str, reason: str | None = None
) -> RequirementsUpdated:
    """The update that brings the bounds before ``one`` back. ``why``: a sentence. ``reason``: for the requirements."""
    version = state.requirements.version + 1
    back = evolve(
        hold.without(state.requirements, [one]),
        uuid=derive_id(state.job_id, "requirements", version),
        version=version,
        requested_by=requested_by,
        reason=reason or why,
    )
    return RequirementsUpdated(back, undoes=one, why=why)


def drop(draft: Draft, *gone: Pending) -> None:
    draft.set(pending=tuple(one for one in draft.state.pending if one not in gone))


def carry_over(draft: Draft, graph: JobGraph, carried: BoundsOfVertices) -> list[tuple[Pending, str]]:
    """Another version of the job comes into force, with ``graph`` and the bounds ``carried``. The deadlines that end
    by it, each with a sentence."""
    state, kept, now, ended = draft.state, [], dict(carried), []
    for one in state.pending:
        former = []
        for vertex, own in one.former:
            if vertex not in graph.by_id or now[vertex] != state.requirements[vertex]:
                continue
            most = graph.by_id[vertex].max_parallelism
            bounds = own.within(most)
            if bounds != now[vertex]:
                former.append((vertex, bounds))
        if former and one.deadline is not None:
            kept.append(evolve(one, former=tuple(former), former_partitions=(), begun=False, taken_back=None))
        gone = tuple(pair for pair in one.former if pair[0] not in dict(former))
        if gone and one.deadline is not None:
            ended.append((one, _does_not_count(state, gone, one, draft.now_ms)))
    if state.pending:
        draft.set(pending=tuple(kept))
    return ended


def settle(draft: Draft, before: JobState) -> None:
    """Forget what is on its way or over, and bring the timer in line with what is left. ``before``: at the beginning of
    the step."""
    gone = [one for one in draft.state.pending if _is_over(draft.state, one)]
    if gone:
        in_vain = [one for one in gone if _came_to_nothing(before, draft.state, one)]
        drop(draft, *gone)
        if not isinstance(draft.state.phase, _ENDS):
            slot_declaration.declare(draft)
            for one in in_vain:
                _tell_of_nothing_done(draft, one)
    for one in draft.state.with_deadline:
        begun = _is_begun(draft.state, one)
        if begun != one.begun:
            _replace(draft, one, begun=begun)
    for one in draft.state.with_deadline:
        if not one.record and draft.state.timeline.records:
            _give_record(draft, one)
    # Created is left at once.
    waits = not isinstance(draft.state.phase, (Created, *_ENDS))
    draft.keep(DEADLINE_TIMER, due_ms(draft.state) if waits else None)


def due_ms(state: JobState) -> int | None:
    """The next deadline of what still waits."""
    due = [one.deadline.at_ms for one in state.pending if one.deadline is not None and not one.begun]
    return min(due, default=None)


def in_words(state: JobState, now_ms: int) -> list[str]:
    """A sentence for each deadline that runs."""
    found = []
    for one in state.pending:
        if one.deadline is None or one.begun:
            continue
        who = f" by {one.requested_by}" if one.requested_by else ""
        then = {
            "COMMIT": "they are brought into force as far as the slots allow",
            "ROLLBACK": "the former ones come back",
        }[one.deadline.on_timeout]
        found.append(
            f"The bounds of {_named(state, one.former)} that were declared{who} as version {one.version} wait until "
            f"the job may use {hold.slots_needed(state, one)} slots; in "
            f"{duration_in_words(one.deadline.at_ms - now_ms)} {then}."
        )
    return found


def _is_over(state: JobState, one: Pending) -> bool:
    """Whether what ``one`` asks for is on its way or in force, or nothing can follow from it any more."""
    phase = state.phase
    if isinstance(phase, _ENDS):
        return True
    if one.deadline is None:
        record = state.timeline.open
        restarted = isinstance(phase, Restarting) and phase.target is not None
        # Later bounds of other vertices have a record of their own, and a plan is made for both.
        waits = record is not None and (record.number == one.record or record.cause.is_asked)
        return not waits or timeline.has_plan(record) or restarted
    if state.taken_back is not None:
        # It was tried, or something else was taken back meanwhile.
        return one.begun
    done = state.timeline.last_completed
    if one.record and done is not None and done.number == one.record:
        # Its plan was in force, even if other slots have led to another plan in this very step.
        return True
    if isinstance(phase, Restarting | CreatingExecutionGraph):
        return False
    plan = coming_plan(state) or state.plan
    return plan is not None and hold.is_met(state, one, dict(plan.parallelism))


def _is_begun(state: JobState, one: Pending) -> bool:
    """Whether the job is being restarted for ``one``: it is stopped, or started again at what that asks for. On the way
    back from what was taken back it is restarted for no bounds."""
    phase = state.phase
    if state.taken_back is not None:
        return False
    if isinstance(phase, Restarting) and phase.target is not None:
        return hold.is_met(state, one, dict(phase.target))
    if isinstance(phase, CreatingExecutionGraph):
        return hold.is_met(state, one, dict(phase.plan.parallelism))
    return False


def _came_to_nothing(before: JobState, state: JobState, one: Pending) -> bool:
    """Whether ``one``, which is over, waited for more than ran, and asks for no more now: a ceiling, a cap or the
    partitions of the state do not allow it."""
    was = next((own for own in before.pending if own.version == one.version), None)
    if was is None or was.begun or was.deadline is None or before.plan is None:
        return False
    at = dict(before.plan.parallelism)
    return hold.asks_for_more(before, was, at) and not hold.asks_for_more(state, one, at)


def _tell_of_nothing_done(draft: Draft, one: Pending) -> None:
    state = draft.state
    limits = {"the scaling policy": bool(state.policy), "the cap": state.share.cap is not None}
    names = [name for name, is_set in limits.items() if is_set] or ["the state partitions"]
    message = (
        f"The bounds of {_named(state, one.former)} of version {one.version} wait for their deadline no longer: no "
        f"more than ran is allowed by {' and '.join(names)}. They stay declared."
    )
    record = draft.state.timeline.open
    if record is None:
        timeline.tell(draft, TriggerCause.UPDATE_REQUIREMENT, message, asked=one)
    elif record.number == one.record and not timeline.has_plan(record):
        nothing = TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE
        timeline.close_record(draft, nothing, message=message)
    else:
        timeline.note(draft, message)


def _give_record(draft: Draft, one: Pending) -> None:
    """``one`` was declared before the job had any record: by the record that it gets now, it can be canceled."""
    message = (
        f"The bounds of {_named(draft.state, one.former)} of version {one.version} wait for their deadline."
    )
    timeline.tell(draft, TriggerCause.UPDATE_REQUIREMENT, message, asked=one)
    _replace(draft, one, record=draft.state.timeline.records)


def _replace(draft: Draft, one: Pending, **changes: Any) -> None:
    new = evolve(one, **changes)
    draft.set(pending=tuple(new if other is one else other for other in draft.state.pending))


def _changed(before: Requirements, after: Requirements) -> frozenset[str]:
    """The vertices of which the two ask for something else."""
    was, numbers = before.as_dict(), set(before.state_partitions) ^ set(after.state_partitions)
    moved = {vertex for vertex, _ in numbers}
    return frozenset([vertex for vertex, own in after.bounds if was[vertex] != own or vertex in moved])


def _does_not_count(state: JobState, gone: BoundsOfVertices, one: Pending, now_ms: int) -> str:
    """The deadline of ``one`` ends for the vertices of ``gone``."""
    assert one.deadline is not None
    left = duration_in_words(one.deadline.at_ms - now_ms)
    return (
        f"The bounds of {_named(state, gone)} (requirements version {one.version}) waited for a deadline in {left}, "
        "which does not count any more."
    )


def _named(state: JobState, former: BoundsOfVertices) -> str:
    return ", ".join(state.graph.by_id[vertex].name for vertex, _ in former)

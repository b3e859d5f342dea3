"""Bounds that were declared and are not on their way yet: they can be taken back, and may have a deadline (ADR 46).

* Those with a deadline are brought into force when all the slots are there that they ask for; until then the former
  bounds hold (`hold`). At the deadline they are brought into force as far as the slots allow, or the former ones come
  back (`deadline`). The deadline limits the wait: a change that is on its way by then goes on.
* Those without are on their way as soon as a plan is made for them.
* Each counts for the vertices whose bounds it changed. Later bounds of other vertices leave it alone; later bounds of
  one of its vertices take its place there. If those are taken back, what comes back is what was before both.
"""

from __future__ import annotations

from typing import Final

from app.model.ids import derive_id
from app.model.requirements import Requirements
from app.scheduler.adaptive import hold, slot_declaration, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import RequirementsUpdated
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.state import Canceling, Created, Failing, Finished, JobState, Restarting
from app.scheduler.adaptive.trial import coming_plan, effective
from app.scheduler.adaptive.version_state import BoundsOfVertices
from app.scheduler.adaptive.words import seconds

DEADLINE_TIMER: Final = "deadline"
_ENDS: Final = (Failing, Canceling, Finished)


def overtake(draft: Draft, event: RequirementsUpdated) -> list[str]:
    """Other bounds are about to be taken over: what waits counts on for those of its vertices that they leave alone.
    Sentences about what becomes of deadlines."""
    state, kept, told = draft.state, [], []
    changed = _changed(state.requirements, event.requirements)
    for one in state.pending:
        former = tuple(pair for pair in one.former if pair[0] not in changed)
        if former:
            kept.append(evolve(one, former=former))
        if one.deadline is None or (event.undoes is not None and event.undoes.version == one.version):
            continue
        left = seconds(max(0, one.deadline.at_ms - draft.now_ms))
        if former:
            told.append(
                f"{_named(state, former)} of version {one.version} still wait for a deadline in {left}."
            )
        if len(former) < len(one.former):
            gone = tuple(pair for pair in one.former if pair[0] in changed)
            told.append(
                f"{_named(state, gone)} of version {one.version} waited for a deadline in {left}, which does not count "
                "any more."
            )
    if len(kept) < len(state.pending) or any(one not in state.pending for one in kept):
        draft.set(pending=tuple(kept))
    return told


def before(state: JobState) -> Requirements:
    """What comes back if other bounds are declared now and then taken back: what holds, not what never did."""
    waiting = [one for one in state.pending if one.deadline is not None]
    holds = state.requirements if state.taken_back is None else effective(state)
    was = hold.without(holds, waiting)
    kept = [pair for pair in was.state_partitions if not any(pair[0] in one.vertices for one in waiting)]
    return evolve(was, state_partitions=(*kept, *[pair for one in waiting for pair in one.former_partitions]))


def begin(draft: Draft, declared: Requirements, was: Requirements, event: RequirementsUpdated) -> None:
    """The bounds of ``event`` were taken over in the place of ``declared``, and their record is open, if any. ``was``:
    what `before` said."""
    state, record = draft.state, draft.state.timeline.open
    if event.undoes is not None:
        return
    changed = _changed(declared, state.requirements) & _changed(was, state.requirements)
    if not changed:
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
    )
    draft.set(pending=(*state.pending, one))


def undoing(
    state: JobState, one: Pending, requested_by: str | None, why: str, reason: str | None = None
) -> RequirementsUpdated:
    """The update that brings the bounds before ``one`` back. ``why``: a sentence. ``reason``: for the requirements."""
    now = state.requirements
    version = now.version + 1
    others = tuple(pair for pair in now.state_partitions if pair[0] not in one.vertices)
    back = evolve(
        hold.without(now, [one]),
        uuid=derive_id(state.job_id, "requirements", version),
        version=version,
        requested_by=requested_by,
        reason=reason or why,
        state_partitions=(*others, *one.former_partitions),
    )
    return RequirementsUpdated(back, undoes=one, why=why)


def drop(draft: Draft, *gone: Pending) -> None:
    draft.set(pending=tuple(one for one in draft.state.pending if one not in gone))


def carry_over(draft: Draft, names: frozenset[str], carried: BoundsOfVertices) -> None:
    """Another version of the job comes into force, with the vertices ``names`` and the bounds ``carried``."""
    state, kept, now = draft.state, [], dict(carried)
    for one in state.pending:
        former = tuple(
            pair
            for pair in one.former
            if pair[0] in names and now[pair[0]] == state.requirements[pair[0]] and pair[1] != now[pair[0]]
        )
        if former and one.deadline is not None:
            kept.append(evolve(one, former=former, former_partitions=()))
    if state.pending:
        draft.set(pending=tuple(kept))


def settle(draft: Draft) -> None:
    """Forget what is on its way or over, and bring the timer in line with what is left."""
    state = draft.state
    gone = [one for one in state.pending if _is_over(state, one)]
    if gone:
        drop(draft, *gone)
        if not isinstance(state.phase, _ENDS):
            slot_declaration.declare(draft)
    # Created is left at once.
    waits = not isinstance(draft.state.phase, (Created, *_ENDS))
    due = [one.deadline.at_ms for one in draft.state.pending if one.deadline is not None]
    draft.keep(DEADLINE_TIMER, min(due) if due and waits else None)


def in_words(state: JobState, now_ms: int) -> list[str]:
    """A sentence for each deadline that runs."""
    found = []
    for one in state.pending:
        if one.deadline is None:
            continue
        who = f" by {one.requested_by}" if one.requested_by else ""
        wish = hold.asked(state).desired
        then = {
            "COMMIT": "they are brought into force as far as the slots allow",
            "ROLLBACK": "the former ones come back",
        }[one.deadline.on_timeout]
        found.append(
            f"The bounds of {_named(state, one.former)} that were declared{who} as version {one.version} wait until "
            f"the job may use {wish} slots; in {seconds(max(0, one.deadline.at_ms - now_ms))} {then}."
        )
    return found


def _is_over(state: JobState, one: Pending) -> bool:
    """Whether what ``one`` asks for is on its way or in force, or nothing can follow from it any more."""
    phase = state.phase
    if isinstance(phase, _ENDS):
        return True
    restarted_for = phase.target if isinstance(phase, Restarting) else None
    if one.deadline is None:
        record = state.timeline.open
        own = record is not None and record.number == one.record
        return not own or timeline.has_plan(record) or restarted_for is not None
    if state.taken_back is not None or hold.held_back(state) is not None:
        return False
    plan = coming_plan(state) or state.plan
    # While it is being stopped for a rescale, the job still has the plan before.
    at = restarted_for if restarted_for is not None or plan is None else plan.parallelism
    wish = hold.asked(state).parallelism(state.usable_slots)
    if at is None or wish is None or state.usable_slots < state.wanted_slots:
        return False
    now = dict(at)
    return all(now[vertex] == wish[vertex] for vertex in one.vertices)


def _changed(before: Requirements, after: Requirements) -> frozenset[str]:
    """The vertices of which the two ask for something else."""
    numbers, others = dict(before.state_partitions), dict(after.state_partitions)
    return frozenset(
        vertex
        for vertex, bounds in after.bounds
        if before[vertex] != bounds or numbers.get(vertex) != others.get(vertex)
    )


def _named(state: JobState, former: BoundsOfVertices) -> str:
    return ", ".join(state.graph.by_id[vertex].name for vertex, _ in former)

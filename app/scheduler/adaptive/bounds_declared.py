"""What a declaration of bounds says anew, beside the bounds that hold and those that wait for their deadline.

Of each vertex: what holds leaves alone what waits for it; what waits already changes nothing, with a deadline or
without; anything else is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from app.model.job_state.changes import Change, Patch
from app.model.job_state.versions import BoundsOfVertices
from app.model.requirements import Bounds, Deadline, Requirements
from app.model.value import evolve
from app.scheduler.adaptive.events import RequirementsUpdated
from app.scheduler.adaptive.queued_slots import before_change, with_patches
from app.scheduler.adaptive.state import JobState, Rescaling, Restarting

T = TypeVar("T")
_Wish = tuple[Bounds, int | None]


def changed_by(state: JobState, wanted: Requirements) -> frozenset[str]:
    """The vertices of which ``wanted`` says neither what holds nor what waits."""
    held = _wishes_of(state, state.requirements.bounds, state.requirements.state_partitions)
    waiting: dict[str, _Wish] = {}
    for one in state.queued:
        if one.begun is None:
            waiting |= _wishes_of(state, one.bounds, one.partitions)
    new = _wishes_of(state, wanted.bounds, wanted.state_partitions)
    return frozenset(
        vertex for vertex, wish in new.items() if wish != held.get(vertex) and wish != waiting.get(vertex)
    )


def holds_already(state: JobState, one: Patch) -> bool:
    """Whether what ``one`` asks for holds."""
    held = _wishes_of(state, state.requirements.bounds, state.requirements.state_partitions)
    return _wishes_of(state, one.bounds, one.partitions).items() <= held.items()


def bounds_to_count(state: JobState, wanted: Requirements) -> Requirements:
    """What holds once ``wanted`` is declared without a deadline: what waits already waits on."""
    if not state.queued:
        return wanted
    return merged_with(state, wanted, changed_by(state, wanted))


def bounds_with_queue(state: JobState, wanted: Requirements | None = None) -> Requirements:
    """What holds once all that waits is applied; and ``wanted``, if that is declared."""
    if not state.queued:
        return wanted or state.requirements
    new = frozenset[str]() if wanted is None else changed_by(state, wanted)
    left = [restricted_to(one, one.vertices - new) for one in state.queued]
    declared = state.requirements if wanted is None else merged_with(state, wanted, new)
    return with_patches(declared, [one for one in left if one is not None])


def kept_waiting(state: JobState, wanted: Requirements) -> tuple[str, ...]:
    """The vertices of which ``wanted`` has the bounds that wait: their deadline stays, if it has another one."""
    asked = _wishes_of(state, wanted.bounds, wanted.state_partitions)
    waiting = [one for one in state.queued if one.begun is None]
    return tuple(
        vertex
        for one in waiting
        for vertex, wish in _wishes_of(state, one.bounds, one.partitions).items()
        if wish == asked.get(vertex)
    )


def patch_of(wanted: Requirements, deadline: Deadline, changed: Collection[str], record: int = 0) -> Patch:
    """What waits of ``wanted``, if it is declared with ``deadline``: that of the vertices ``changed``."""
    return Patch(
        version=wanted.version,
        record=record,
        first_record=record,
        bounds=only_of(wanted.bounds, changed),
        deadline=deadline,
        partitions=only_of(wanted.state_partitions, changed),
        requested_by=wanted.requested_by,
        reason=wanted.reason,
    )


def undoing(
    state: JobState, one: Patch | Change, requested_by: str | None, why: str, reason: str | None = None
) -> RequirementsUpdated:
    """The update that drops ``one`` from the queue, or brings the bounds before it back. ``why``: a sentence.
    ``reason``: for the requirements."""
    change = one.begun if isinstance(one, Patch) else one
    back = state.requirements if change is None else before_change(state.requirements, change)
    return RequirementsUpdated(
        next_version(state, back, requested_by, reason or why), undoes=change or one, why=why
    )


def _wishes_of(
    state: JobState, bounds: BoundsOfVertices, partitions: Iterable[tuple[str, int]]
) -> dict[str, _Wish]:
    """The bounds of each vertex, and the number of state partitions that is asked for and is not there."""
    known = state.graph.by_id
    numbers = {
        vertex: number
        for vertex, number in partitions
        if vertex not in known or known[vertex].max_parallelism != number
    }
    return {vertex: (own, numbers.get(vertex)) for vertex, own in bounds}


def only_of(pairs: Iterable[tuple[str, T]], vertices: Collection[str]) -> tuple[tuple[str, T], ...]:
    return tuple(pair for pair in pairs if pair[0] in vertices)


def restricted_to(one: Patch, vertices: Collection[str]) -> Patch | None:
    """What is left of ``one`` for ``vertices``; None if nothing is."""
    bounds = only_of(one.bounds, vertices)
    if len(bounds) == len(one.bounds):
        return one
    begun = None if one.begun is None else _change_of(one.begun, vertices)
    return (
        evolve(one, bounds=bounds, partitions=only_of(one.partitions, vertices), begun=begun)
        if bounds
        else None
    )


def _change_of(change: Change, vertices: Collection[str]) -> Change:
    """What ``change`` has done to ``vertices``."""
    former, partitions = only_of(change.former, vertices), only_of(change.former_partitions, vertices)
    return evolve(change, former=former, former_partitions=partitions)


def merged_with(state: JobState, wanted: Requirements, changed: Collection[str]) -> Requirements:
    """``wanted``, but with what holds of all vertices but ``changed``."""
    held, declared = state.requirements, wanted.as_dict()
    bounds = tuple((vertex, declared[vertex] if vertex in changed else own) for vertex, own in held)
    kept = tuple(pair for pair in held.state_partitions if pair[0] not in changed)
    numbers = (*kept, *only_of(wanted.state_partitions, changed))
    return Requirements(wanted.uuid, wanted.version, bounds, wanted.requested_by, wanted.reason, numbers)


def before_begun(state: JobState, wanted: Requirements, changed: Collection[str]) -> Requirements:
    """What holds while ``wanted`` waits, as its version: of the vertices ``changed`` of patches that were applied and
    are not in force the bounds before those."""
    held = state.requirements
    for one in state.queued:
        gone = restricted_to(one, one.vertices & frozenset(changed))
        if gone is not None and gone.begun is not None:
            held = before_change(held, gone.begun)
    return Requirements(
        wanted.uuid, wanted.version, held.bounds, wanted.requested_by, wanted.reason, held.state_partitions
    )


def next_version(
    state: JobState, wanted: Requirements, requested_by: str | None, reason: str | None
) -> Requirements:
    return state.requirements.following(
        state.job_id,
        wanted.bounds,
        requested_by=requested_by,
        reason=reason,
        state_partitions=wanted.state_partitions,
    )


def cancelable_of(state: JobState) -> tuple[Patch | Change, ...]:
    """The changes of bounds that can be taken back, by the numbers of their records."""
    is_moving = state.plan is None or isinstance(state.phase, Rescaling | Restarting)
    waiting = [one for one in state.queued if one.record and not (one.begun and is_moving)]
    change = state.open_change
    if change is None or any(one.record == change.record for one in waiting):
        return tuple(waiting)
    # Vertices that have later bounds, which waited and are applied, have not those of this change any more.
    later = [one for one in state.queued if one.begun is not None and one.version != change.version]
    own = {vertex for vertex, _ in change.former}.difference(*[one.vertices for one in later])
    return (*waiting, _change_of(change, own)) if own else tuple(waiting)

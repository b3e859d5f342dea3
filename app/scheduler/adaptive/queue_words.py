"""Sentences on the bounds that wait for their deadline."""

from __future__ import annotations

from collections.abc import Iterable

from app.model.job_state.changes import Patch
from app.model.requirements import OnTimeout
from app.model.sentences import duration_in_words
from app.scheduler.adaptive.queued_slots import QueuedSlots, is_on_its_way
from app.scheduler.adaptive.state import JobState


def in_words(state: JobState, now_ms: int) -> list[str]:
    """A sentence for each deadline that runs."""
    found = []
    for one in state.queued:
        if one.begun is not None:
            found += _of_begun(state, one, now_ms)
            continue
        who = f" by {one.requested_by}" if one.requested_by else ""
        then = {
            OnTimeout.COMMIT: "they are brought into force as far as the slots allow",
            OnTimeout.ROLLBACK: "they are dropped, and the bounds that hold stay",
        }[one.deadline.on_timeout]
        found.append(
            f"The bounds of {named(state, one.vertices)} that were declared{who} as version {one.version} wait until "
            f"the job may use {QueuedSlots.of(state).needed(one)} slots; in "
            f"{duration_in_words(one.deadline.at_ms - now_ms)} {then}."
        )
    return found


def _of_begun(state: JobState, one: Patch, now_ms: int) -> list[str]:
    if is_on_its_way(state, one):
        return []
    left = duration_in_words(one.deadline.at_ms - now_ms)
    then = "stay" if one.deadline.on_timeout is OnTimeout.COMMIT else "are dropped"
    return [
        f"The slots of the bounds of {named(state, one.vertices)} of version {one.version} are there. If the rescale "
        f"has not begun in {left}, these bounds {then}."
    ]


def named(state: JobState, vertices: Iterable[str]) -> str:
    """The names of ``vertices``, in the order of the graph."""
    known = frozenset(vertices)
    return ", ".join(one.name for one in state.graph.vertices if one.id in known)


def why_applied(state: JobState, patches: Iterable[Patch]) -> str:
    """Why ``patches``, which are about to be applied, wait no longer."""
    patches, usable = list(patches), state.usable_slots
    names = named(state, [vertex for one in patches for vertex in one.vertices])
    versions = " and ".join(str(one.version) for one in patches)
    why = f"the {usable} slots that can be used are enough for them"
    if (least := QueuedSlots.of(state).least_without()) is not None:
        why = f"those before need {least} slots, and {usable} can be used"
    return f"The bounds of {names} of version {versions} wait no longer: {why}."


def why_waits_again(state: JobState, one: Patch) -> str:
    """Why ``one``, which was applied, waits again."""
    names = named(state, one.vertices)
    return f"The slots of the bounds of {names} of version {one.version} went; they wait again."


def why_not_begun(state: JobState, one: Patch) -> str:
    """Why no plan was made for ``one`` before its deadline."""
    usable, needed = state.usable_slots, QueuedSlots.of(state).needed(one)
    if usable < needed:
        return f"Not all slots had come by the deadline: {needed} are wanted, and {usable} can be used."
    return f"The rescale had not begun by the deadline, although {usable} slots can be used."


def waits_on(state: JobState, one: Patch, now_ms: int) -> str:
    """Other vertices of ``one`` have other bounds now."""
    left = duration_in_words(one.deadline.at_ms - now_ms)
    return f"{named(state, one.vertices)} of version {one.version} still wait for a deadline in {left}."


def counts_no_more(state: JobState, gone: Iterable[str], one: Patch, now_ms: int) -> str:
    """The deadline of ``one`` ends for the vertices ``gone``."""
    left = duration_in_words(one.deadline.at_ms - now_ms)
    return (
        f"The bounds of {named(state, gone)} (requirements version {one.version}) waited for a deadline in {left}, "
        "which does not count any more."
    )

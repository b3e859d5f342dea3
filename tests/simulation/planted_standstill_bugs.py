"""Defects of jobs that are left as they are: of the reasons that are told, and of deadlines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

from app.model.job_state.changes import Change, Patch
from app.model.requirements import Bounds, Requirements
from app.model.value import evolve
from app.scheduler import step
from app.scheduler.adaptive import bounds_declared, bounds_queue, no_change, queued_slots
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.queued_slots import QueuedSlots
from app.scheduler.adaptive.state import JobState
from app.store import codec
from app.worker import control_plane
from app.worker.job import public_events
from app.worker.job.mailbox import RequestDecision
from tests import invariants
from tests.simulation.planted_batch_bugs import instead
from tests.simulation.planted_member_bugs import several


def told_each_time() -> contextlib.AbstractContextManager[None]:
    """Each decision not to act is an event."""
    return instead(public_events, "_is_power_of_ten", lambda _count: True)


def silent() -> contextlib.AbstractContextManager[None]:
    """A job that is left as it is does not say why. Nor does the core check itself."""
    unchecked = tuple(one for one in invariants._CHECKS if "standstill" not in one.__name__)
    return several(
        instead(no_change, "_count", lambda *_args: None), instead(invariants, "_CHECKS", unchecked)
    )


def overwritten_by_others() -> contextlib.AbstractContextManager[None]:
    """Bounds of whatever vertex end all deadlines."""
    original = bounds_queue._leave_out

    def leave_out(draft: Draft, changed: frozenset[str]) -> str:
        original(draft, changed)
        bounds_queue._keep(draft, ())
        return ""

    return instead(bounds_queue, "_leave_out", leave_out)


def deadline_missed() -> contextlib.AbstractContextManager[None]:
    """At a deadline nothing happens."""
    return mock.patch.dict(step._TIMERS, {bounds_queue.DEADLINE_TIMER: lambda _draft: None})


def not_held() -> contextlib.AbstractContextManager[None]:
    """Bounds with a deadline are applied whatever slots there are."""
    return instead(QueuedSlots, "_suffices", lambda *_args, **_more: True)


def rolled_back_too_far() -> contextlib.AbstractContextManager[None]:
    """What comes back is 1 for every vertex that was applied and is not in force."""
    original = queued_slots.before_change

    def before_change(requirements: Requirements, change: Change) -> Requirements:
        found = original(requirements, change)
        bounds = ((vertex, own if own == requirements[vertex] else Bounds(1, 1)) for vertex, own in found)
        return evolve(found, bounds=tuple(bounds))

    return instead(bounds_queue, "before_change", before_change)


def rolled_back_in_spite_of_commit() -> contextlib.AbstractContextManager[None]:
    """Whatever was asked for, bounds are dropped at their deadline."""

    def commit(draft: Draft, one: Patch, why: str) -> None:
        back = bounds_declared.undoing(
            draft.state, one, None, why, f"The deadline of version {one.version} passed."
        )
        bounds_queue.sort_declared_bounds(draft, back)

    return instead(bounds_queue, "_commit", commit)


def applied_twice() -> contextlib.AbstractContextManager[None]:
    """What is in force waits on, and is applied again once other bounds are declared."""

    def is_over(_state: JobState, one: Patch) -> bool:
        return False

    original = bounds_queue.sort_declared_bounds

    def take(draft: Draft, event: Any) -> Any:
        left = tuple(evolve(one, begun=None) for one in draft.state.queued)
        found = original(draft, event)
        draft.set(queued=left)
        return found

    return several(
        instead(bounds_queue, "_is_over", is_over),
        instead(bounds_queue, "sort_declared_bounds", take),
        instead(invariants, "_CHECKS", ()),
    )


def lost_at_a_restart() -> contextlib.AbstractContextManager[None]:
    """Whoever takes a job over knows of nothing that waits."""
    original = codec.load_state

    def load_state(*asked: Any) -> JobState:
        return evolve(original(*asked), queued=())

    return several(
        instead(codec, "load_state", load_state), instead(invariants, "_CHECKS", _without_deadlines())
    )


def applied_after_its_cancel() -> contextlib.AbstractContextManager[None]:
    """What was canceled is told to be dropped, and waits on."""
    original = bounds_queue._drop

    def drop(draft: Draft, one: Patch, event: Any) -> None:
        queued = draft.state.queued
        original(draft, one, event)
        draft.set(queued=queued)

    return instead(bounds_queue, "_drop", drop)


def applied_over_later_bounds() -> contextlib.AbstractContextManager[None]:
    """Later bounds of a vertex leave what waits for it as it is."""

    def leave_out(_draft: Draft, _changed: frozenset[str]) -> str:
        return ""

    return several(
        instead(bounds_queue, "_leave_out", leave_out), instead(invariants, "_CHECKS", _without_deadlines())
    )


def _without_deadlines() -> tuple[Any, ...]:
    """The core does not check itself."""
    return tuple(one for one in invariants._CHECKS if "deadlines" not in one.__name__)


def canceled_in_words_only() -> contextlib.AbstractContextManager[None]:
    """A canceled rescale is answered, and goes on."""
    original = control_plane.decide_cancellation
    return instead(
        control_plane,
        "decide_cancellation",
        lambda *asked: RequestDecision(None, original(*asked).answer),
    )


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a decision not to act is told each time": told_each_time,
    "a job that is left as it is does not say why": silent,
    "bounds of one vertex end the deadline of another": overwritten_by_others,
    "a deadline passes and nothing follows": deadline_missed,
    "bounds with a deadline do not wait for all slots": not_held,
    "other bounds come back than were there before": rolled_back_too_far,
    "COMMIT drops the bounds": rolled_back_in_spite_of_commit,
    "bounds that waited are applied twice": applied_twice,
    "bounds that wait are lost at a restart": lost_at_a_restart,
    "bounds that wait are applied after their cancel": applied_after_its_cancel,
    "bounds that wait are applied over later ones": applied_over_later_bounds,
    "a canceled rescale goes on": canceled_in_words_only,
}

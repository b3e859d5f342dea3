"""Defects of jobs that are left as they are: of the reasons that are told, and of deadlines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from app.model.requirements import Bounds, Requirements
from app.scheduler import public_events, validate
from app.scheduler.adaptive import deadline, hold, no_change, pending
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.evolve import evolve
from app.worker import control_plane
from app.worker.job.mailbox import RequestDecision
from tests.simulation.planted_batch_bugs import instead
from tests.simulation.planted_member_bugs import several


def told_each_time() -> contextlib.AbstractContextManager[None]:
    """Each decision not to act is an event."""
    return instead(public_events, "_is_power_of_ten", lambda _count: True)


def silent() -> contextlib.AbstractContextManager[None]:
    """A job that is left as it is does not say why. Nor does the core check itself."""
    unchecked = tuple(one for one in validate._CHECKS if "standstill" not in one.__name__)
    return several(instead(no_change, "_count", lambda *_args: None), instead(validate, "_CHECKS", unchecked))


def overwritten_by_others() -> contextlib.AbstractContextManager[None]:
    """Bounds of whatever vertex end all deadlines."""

    original = pending.overtake

    def overtake(draft: Draft, event: Any, was: Requirements) -> tuple[frozenset[str], list[str]]:
        changed, _ = original(draft, event, was)
        draft.set(pending=())
        return changed, []

    return instead(pending, "overtake", overtake)


def deadline_missed() -> contextlib.AbstractContextManager[None]:
    """At a deadline nothing happens."""
    return instead(deadline, "due", lambda *_args: None)


def not_held() -> contextlib.AbstractContextManager[None]:
    """Bounds with a deadline are brought into force as slots come."""
    return instead(hold, "held", lambda _state: ())


def rolled_back_too_far() -> contextlib.AbstractContextManager[None]:
    """What comes back at a deadline is 1 for every vertex that waits."""
    original = hold.without

    def without(requirements: Requirements, changes: Any) -> Requirements:
        found = original(requirements, changes)
        bounds = ((vertex, own if own == requirements[vertex] else Bounds(1, 1)) for vertex, own in found)
        return evolve(found, bounds=tuple(bounds))

    return instead(hold, "without", without)


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
    "a canceled rescale goes on": canceled_in_words_only,
}

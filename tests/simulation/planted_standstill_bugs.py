"""Defects of jobs that are left as they are: of the reasons that are told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from app.scheduler import public_events, validate
from app.scheduler.adaptive import no_change
from tests.simulation.planted_batch_bugs import instead
from tests.simulation.planted_member_bugs import several


def told_each_time() -> contextlib.AbstractContextManager[None]:
    """Each decision not to act is an event."""
    return instead(public_events, "_is_power_of_ten", lambda _count: True)


def silent() -> contextlib.AbstractContextManager[None]:
    """A job that is left as it is does not say why. Nor does the core check itself."""
    unchecked = tuple(one for one in validate._CHECKS if "standstill" not in one.__name__)
    return several(instead(no_change, "_count", lambda *_args: None), instead(validate, "_CHECKS", unchecked))


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a decision not to act is told each time": told_each_time,
    "a job that is left as it is does not say why": silent,
}

"""The slot share of a job: its weight, priority and cap."""

from __future__ import annotations

from typing import Final

from app.model.value import value

WEIGHT_MAX: Final = 1000
"""The highest weight of a job. With it, averages that differ do so by more than a float rounds."""

PRIORITY_MAX: Final = 1000
"""Priorities are from ``-PRIORITY_MAX`` to this."""

CAP_MAX: Final = 1_000_000


@value
class SlotShare:
    """What was declared last for a job.

    ``weight``: 1 to `WEIGHT_MAX`; a job of weight 2 has twice the share of one of weight 1. ``priority``: who is
    admitted first; higher before lower. ``cap``: the most slots that it may have, None for no such limit.

    ``version`` counts the changes from 1 (it is the ETag). ``requested_by`` and ``reason`` say who asked for the last
    one and why, ``changed_ms`` when.
    """

    version: int = 1
    weight: int = 1
    priority: int = 0
    cap: int | None = None
    requested_by: str | None = None
    reason: str | None = None
    changed_ms: int = 0

    def asks(self, weight: int, priority: int, cap: int | None) -> bool:
        """Whether it says exactly this: declaring it again changes nothing."""
        return (self.weight, self.priority, self.cap) == (weight, priority, cap)

    def within_cap(self, desired: int, minimal: int) -> int:
        """How many of ``desired`` slots the cap allows a job that cannot do without ``minimal``."""
        return desired if self.cap is None else min(desired, max(self.cap, minimal))

    def in_words(self) -> str:
        cap = "" if self.cap is None else f", cap {self.cap}"
        return f"weight {self.weight}, priority {self.priority}{cap}"


def beyond_cap(minimal: int, cap: int | None) -> str | None:
    """Why a job whose lower bounds need ``minimal`` slots cannot have ``cap``; None if it can."""
    if cap is None or cap >= minimal:
        return None
    return (
        f"The cap of {cap} slot(s) is below the {minimal} that the lower bounds need, so the job could not run: "
        f"lower the bounds first, or set the cap to at least {minimal}."
    )

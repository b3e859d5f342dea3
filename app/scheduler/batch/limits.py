"""The limits within which the parallelism of a vertex is decided: the declared bounds, and further limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.model.batch import LimitedBy
from app.model.options import JobOptions
from app.model.requirements import Bounds


@dataclass(frozen=True, slots=True)
class Limits:
    """The decision is between ``lowest`` and ``highest``.

    ``bounds`` are the client's. ``reason``: what keeps ``highest`` below the upper bound; None if nothing does.
    """

    bounds: Bounds
    lowest: int
    highest: int
    reason: LimitedBy | None = None

    @classmethod
    def of(cls, bounds: Bounds) -> Limits:
        return cls(bounds, bounds.lower, bounds.upper)

    def at_most(self, most: int, reason: LimitedBy) -> Limits:
        """More than ``most`` would be of no use, but what has to be has to be: ``lowest`` still holds."""
        most = max(self.lowest, most)
        return self if most >= self.highest else replace(self, highest=most, reason=reason)

    def readable(self, subpartitions: int) -> Limits:
        """More tasks than ``subpartitions`` would have nothing to read, whatever lower bound came after the write."""
        if subpartitions >= self.highest:
            return self
        return Limits(self.bounds, min(self.lowest, subpartitions), subpartitions, LimitedBy.SUBPARTITIONS)

    def clamp(self, wanted: int) -> int:
        return min(max(wanted, self.lowest), self.highest)

    def effect(self, unlimited: int, decided: int) -> tuple[int | None, LimitedBy | None]:
        """The limit that led to ``decided`` where the bounds alone would give ``unlimited``, and where it is from."""
        if decided < unlimited:
            return self.highest, self.reason
        if decided > unlimited:
            return self.lowest, LimitedBy.OPTIONS
        return None, None


def limits(bounds: Bounds, options: JobOptions) -> Limits:
    """``bounds``, and within them the job's options."""
    if not options.auto_enabled:
        return Limits(bounds, bounds.upper, bounds.upper)
    found = Limits.of(bounds).at_most(options.auto_max, LimitedBy.OPTIONS)
    return replace(found, lowest=min(found.highest, max(bounds.lower, options.auto_min)))

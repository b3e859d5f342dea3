"""How much a source may give to the next batch, by what it gave to the last ones and how long these took.

A batch takes a time of its own, however few rows it has (a table that is written anew, a side table that is read, the
files of state), and some for each row. Two batches of different size tell one from the other. The limit is what fills
the target by that; where a batch alone takes long, the target is longer, or less and less would get done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_FULL: Final = 0.9
"""A batch with at least this part of its limit may have left something behind."""
_CLOSE: Final = 0.1
"""A limit that would change by less stays."""
_APART: Final = 0.2
"""Batches whose sizes differ by less tell nothing of what a batch takes by itself."""
_OWN_SHARE: Final = 0.25
"""At most this part of a batch is to be what it takes by itself."""
_LIGHT: Final = 0.1
"""A source with less than this part of the rows does not make a batch long."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a source has given to a batch, in ``unit``: files or rows. ``count`` None: that is not known, but it was no
    more than its limit. ``own``: the most that the program allows; ``least``: what it waits for. ``share``: the part of
    all rows of the batch; None: not known."""

    unit: str
    count: int | None
    own: int | None = None
    least: int = 0
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Aim:
    """``target_ms``: how long a batch should take. ``growth``: a limit becomes so many times as high at once, at most.
    ``tasks``: of the source. A file may be one that only one task can read."""

    target_ms: float
    growth: float = 4.0
    tasks: int = 1


class SourceLimit:
    """Of one source. ``most``: of a batch, None: what its program allows. ``is_full``: the last batch had as much."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.is_full = False
        # The size and time of a batch to compare with, and what a batch takes by itself.
        self._point: tuple[int, float] | None = None
        self._own_ms = 0.0

    def forget_point(self) -> None:
        """Batches have other numbers of tasks from now on."""
        self._point = None

    def note(self, taken: Taken, took_ms: float, aim: Aim) -> None:
        """A batch has ended: `most` is that of the next one."""
        known = [one for one in (taken.count, self.most or taken.own) if one is not None]
        # What a sink reads twice, Spark has counted twice.
        count = min(known, default=0)
        self.is_full = self.most is not None and count >= _FULL * self.most
        if not count:
            return
        if taken.count is not None:
            self._learn(count, took_ms)
        is_light = taken.share is not None and taken.share < _LIGHT
        if is_light and not self.is_full:
            return
        wanted = aim.growth * count if is_light else self._fitting(count, took_ms, aim)
        if self.most is None and (is_light or took_ms <= aim.target_ms):
            return
        if self.most is not None and not self.is_full and took_ms <= aim.target_ms:
            return
        self.most = self._within(wanted, taken, aim)

    def _learn(self, count: int, took_ms: float) -> None:
        if self._point is None:
            self._point = (count, took_ms)
            return
        before, before_ms = self._point
        if abs(count - before) < _APART * max(count, before):
            return
        row_ms = (took_ms - before_ms) / (count - before)
        self._own_ms = max(0.0, took_ms - row_ms * count) if row_ms > 0 else took_ms
        self._point = (count, took_ms)

    def _fitting(self, count: int, took_ms: float, aim: Aim) -> float:
        own_ms = min(self._own_ms, took_ms)
        rows_ms = took_ms - own_ms
        target_ms = max(aim.target_ms, own_ms / _OWN_SHARE)
        most = aim.growth * count
        return min(most, count * (target_ms - own_ms) / rows_ms) if rows_ms > 0 else most

    def _within(self, wanted: float, taken: Taken, aim: Aim) -> int | None:
        limit = max(1, taken.least, math.ceil(wanted))
        if taken.unit == "files":
            # With fewer than there are tasks, or some more, tasks would have nothing to do.
            limit = max(aim.tasks, limit - limit % aim.tasks)
        if taken.own is not None and limit >= taken.own:
            return None
        if self.most is not None and abs(limit - self.most) <= _CLOSE * self.most:
            return self.most
        return limit

"""The pause that a change of plan makes in the output of one query."""

from __future__ import annotations

import statistics
from collections import deque
from itertools import pairwise

from app.driver.checkpoints import COMMITS_REMEMBERED, Past


class GapMeter:
    """Measures the pause that a change of plan made in the output of one query. Times are Unix milliseconds.

    A query that had committed one batch only, or none, has no steady interval: its gap is the pause itself. A pause
    without input is nobody's gap: after it the gap counts from the last moment at which there was none.

    ``since_ms``: when the change began that the attempt is for. Whatever was committed since, by attempts that were
    ended too, is part of it. 0: it begins with this attempt.
    """

    def __init__(self, past: Past, since_ms: int = 0) -> None:
        times = past.committed_ms
        before = [at_ms for at_ms in times if at_ms <= since_ms] if since_ms else times
        # A start of an attempt is no part of the steady interval.
        usual = [at_ms - last_ms for last_ms, at_ms in pairwise(before) if at_ms not in past.first_ms]
        self._usual = deque(usual, maxlen=COMMITS_REMEMBERED)
        self._last_ms = before[-1] if before else None
        self._idle_ms = past.idle_ms
        # The steady interval before the change whose gap is looked for, and the longest gap since.
        self._change: tuple[int, int | None] | None = None
        self._gap_ms: int | None = None
        if times:
            self.changing()
        for at_ms in times[len(before) :]:
            self.committed(at_ms, at_plan=False)

    def changing(self) -> None:
        """Another plan is ordered. Of several in a row the first counts: the output waits since then."""
        if self._change is None:
            self._change = (statistics.median_low(self._usual) if self._usual else 0, None)

    def committed(self, at_ms: int, *, at_plan: bool) -> None:
        """A batch with input was committed; ``at_plan`` if it ran at the newest plan."""
        if self._change is not None:
            gap_ms = self.so_far(at_ms)
            self._change = (self._change[0], gap_ms)
            if at_plan:
                self._gap_ms, self._change = gap_ms, None
        elif self._last_ms is not None:
            self._usual.append(at_ms - self._last_ms)
        self._last_ms = at_ms

    def so_far(self, at_ms: int) -> int | None:
        """The gap of the change that is under way, as long as it has lasted; None if it cannot be known."""
        if self._change is None:
            return self._gap_ms
        steady_ms, longest_ms = self._change
        if self._last_ms is None:
            return longest_ms
        gap_ms = at_ms - self._last_ms - steady_ms
        if self._idle_ms > self._last_ms:
            gap_ms = min(gap_ms, at_ms - self._idle_ms)
        return max(longest_ms or 0, gap_ms)

    def idle(self, at_ms: int, *, at_plan: bool = True) -> None:
        """There was no input at ``at_ms``. A plan that is in force then holds up no output from here on."""
        self._idle_ms = at_ms
        if self._change is not None and at_plan:
            _, longest_ms = self._change
            self._gap_ms = 0 if longest_ms is None and self._last_ms is not None else longest_ms
            self._change = None

    def forget(self) -> None:
        """What paused the output was no change of plan."""
        self._change = self._gap_ms = None

    def take(self) -> int | None:
        """The longest pause around the last change less the steady interval, once; None if it cannot be known."""
        gap, self._gap_ms = self._gap_ms, None
        return gap

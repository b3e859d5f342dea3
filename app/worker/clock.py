"""The one place where the control plane reads the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Epoch milliseconds. Within one process it never goes back and never jumps."""
        ...

    def wall_ms(self) -> int:
        """Epoch milliseconds as the clock of the machine is set now: it may jump, and be wrong."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds of a clock that cannot be set and goes on while the process is stopped: for durations."""
        ...


class SystemClock:
    """Wall clock time of the start of the process, plus the time of a monotonic clock.

    Why not the wall clock alone: setting it forward by an hour would make every timeout of every job expire
    at once (a job that waits for slots would fail), and setting it back would delay them all by an hour. The price:
    times in the history follow a step of the wall clock only after the next start.
    """

    def __init__(self) -> None:
        self._ahead_ms = self.wall_ms() - self._steady_ms()

    def now_ms(self) -> int:
        return self._steady_ms() + self._ahead_ms

    def steady_ms(self) -> int:
        return self._steady_ms()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def _steady_ms(self) -> int:
        # Unlike the monotonic clock it counts the time that the machine was suspended.
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class JobClock:
    """The time of one job: that of the server, but never before what is stored of the job.

    A server whose clock is ahead may have had the job before. Each job has a clock of its own, because timers of the
    server's other jobs would expire at once if all of them went by the time of one job.
    """

    def __init__(self, clock: Clock, latest_ms: int) -> None:
        """``latest_ms``: when the last of what is stored of the job happened, in epoch milliseconds."""
        self._clock = clock
        self.ahead_ms = max(0, latest_ms - clock.now_ms())

    def now_ms(self) -> int:
        """Epoch milliseconds. It never goes back and never jumps while this server has the job."""
        return self._clock.now_ms() + self.ahead_ms

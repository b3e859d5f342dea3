"""The one place where the control plane reads the time, and how long it may be certain of its leases by it."""

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


class LeaseCertainty:
    """No other server can take a lease before its time to live has passed since this server asked for the renewal. Only
    the length of that time is compared, so no two clocks need agree.

    The database checks each unit of work, whatever this says (`app.store.merged_units.lost_leases`). This is for what
    is done without a write: an effect, an answer. A process that was stopped (SIGSTOP, a suspended machine) or cut off
    from the database finds here that it must ask first. Where leases cannot be lost, it is always sure.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: int | None = None

    def is_sure(self) -> bool:
        return self._until_ms is None or self._clock.steady_ms() < self._until_ms

    def now_ms(self) -> int:
        """To be read before a renewal is asked for."""
        return self._clock.steady_ms()

    def renewed(self, asked_ms: int, ttl_ms: int) -> None:
        """All leases were renewed, by a call that began at ``asked_ms``, for ``ttl_ms``."""
        self._until_ms = asked_ms + ttl_ms

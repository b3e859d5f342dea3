"""The clock of the control plane: it does not jump when somebody sets the wall clock, and never goes back."""

from __future__ import annotations

import time

from app.worker.clock import JobClock, SystemClock


class Machine(SystemClock):
    wall = 5_000_000
    steady = 100

    def wall_ms(self) -> int:
        return self.wall

    def _steady_ms(self) -> int:
        return self.steady


def test_it_starts_at_wall_clock_time_and_goes_on_steadily() -> None:
    clock = Machine()
    assert clock.now_ms() == 5_000_000
    clock.steady += 70
    clock.wall -= 3_600_000
    assert clock.now_ms() == 5_000_070


def test_the_time_of_a_job_is_never_before_what_is_stored_of_it_and_that_of_others_stays() -> None:
    clock = Machine()
    behind, ahead = JobClock(clock, 4_000_000), JobClock(clock, 6_000_000)
    assert (behind.now_ms(), ahead.now_ms()) == (5_000_000, 6_000_000)
    clock.steady += 1
    assert (clock.now_ms(), behind.now_ms(), ahead.now_ms()) == (5_000_001, 5_000_001, 6_000_001)


def test_the_real_one_advances_from_the_wall_clocks_time() -> None:
    clock = SystemClock()
    first = clock.now_ms()
    assert abs(first - time.time() * 1000) < 5_000
    ends_at = time.monotonic() + 5
    while clock.now_ms() == first and time.monotonic() < ends_at:
        pass
    assert clock.now_ms() > first

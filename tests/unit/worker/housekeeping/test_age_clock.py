"""Ages are told by the wall clock, and by a jump of it only when a day has passed: a wrong clock removes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from app.store.store import Store
from app.worker.housekeeping.age_clock import AgeClock
from tests import stored
from tests.unit.store import samples
from tests.unit.worker.housekeeping.test_housekeeping import DAY_MS, JOB, fill, housekeeper, numbers, view

HOUR_MS = 3_600_000
NOW_MS = samples.NOW_MS


@dataclass
class Machine:
    """A machine whose clock may be set; ``up_ms``: how long it has run."""

    wall: int = NOW_MS
    up_ms: int = 5_000

    def wall_ms(self) -> int:
        return self.wall

    def steady_ms(self) -> int:
        return self.up_ms

    def now_ms(self) -> int:
        raise AssertionError

    def run(self, duration_ms: int) -> Machine:
        self.wall += duration_ms
        self.up_ms += duration_ms
        return self

    def set(self, days: float) -> Machine:
        self.wall += round(days * DAY_MS)
        return self


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(database_url, "owner-1", durable=False)
    yield opened
    await opened.close()


def days_since(start_ms: int) -> Callable[[int], float]:
    return lambda at_ms: round((at_ms - start_ms) / DAY_MS, 2)


async def test_a_start_with_the_clock_100_days_ahead_removes_nothing(store: Store) -> None:
    machine = Machine()
    await fill(store, 1, 9)
    jobs = [view(JOB, 1000)]
    assert await housekeeper(store, lambda: jobs, machine).tidy() == (0, 0)
    machine.set(100).run(10_000)
    wrong = housekeeper(store, lambda: jobs, machine)
    assert await wrong.tidy() == (0, 0)
    for _ in range(23):
        machine.run(HOUR_MS)
        assert await wrong.tidy() == (0, 0)
    assert len(await numbers(store)) == 10
    assert await store.answer(JOB, "key-2") is not None
    assert len(await stored.requirements(store, JOB)) == 10
    machine.run(HOUR_MS)
    assert (await wrong.tidy())[0] > 0, "it has been plausible for a day"


async def test_it_does_not_get_further_by_starting_again_and_again(store: Store) -> None:
    machine, day = Machine(), days_since(NOW_MS)
    await AgeClock(store, machine).trusted_ms()
    machine.set(100)
    for _ in range(50):
        clock = AgeClock(store, machine)
        assert day(await clock.trusted_ms()) == 0
        machine.run(23 * HOUR_MS)
        assert day(await clock.trusted_ms()) == 0


async def test_after_a_long_time_without_a_server_ages_are_told_after_a_day(store: Store) -> None:
    machine = Machine()
    await AgeClock(store, machine).trusted_ms()
    machine.set(100).up_ms = 10
    clock = AgeClock(store, machine)
    assert await clock.trusted_ms() == NOW_MS
    machine.run(DAY_MS - 1)
    assert await clock.trusted_ms() == NOW_MS
    machine.run(1)
    assert await clock.trusted_ms() == machine.wall
    assert await AgeClock(store, machine).trusted_ms() == machine.wall, "another start need not wait again"


async def test_a_night_without_a_server_is_no_jump(store: Store) -> None:
    machine = Machine()
    await AgeClock(store, machine).trusted_ms()
    machine.set(1).up_ms = 10
    assert await AgeClock(store, machine).trusted_ms() == machine.wall


async def test_a_clock_that_is_set_while_it_is_doubted_is_doubted_anew(store: Store) -> None:
    machine = Machine()
    clock = AgeClock(store, machine)
    await clock.trusted_ms()
    for _ in range(3):
        machine.set(100)
        assert await clock.trusted_ms() == NOW_MS
        machine.run(DAY_MS - 1)
        assert await clock.trusted_ms() == NOW_MS
    machine.run(1)
    assert await clock.trusted_ms() == machine.wall


async def test_a_server_that_runs_all_the_time_tells_the_time_of_the_wall_clock(store: Store) -> None:
    machine = Machine()
    clock = AgeClock(store, machine)
    for _ in range(100):
        assert await clock.trusted_ms() == machine.wall
        machine.run(300_000)


@pytest.mark.parametrize("again", [False, True], ids=["the same server", "another one"])
async def test_a_clock_that_is_set_back_is_followed_at_once_and_forward_again_too(
    store: Store, again: bool
) -> None:
    machine = Machine()
    clock = AgeClock(store, machine)
    await clock.trusted_ms()
    machine.set(-400)
    clock = AgeClock(store, machine) if again else clock
    assert await clock.trusted_ms() == machine.wall
    machine.set(400)
    clock = AgeClock(store, machine) if again else clock
    assert await clock.trusted_ms() == machine.wall


async def test_a_server_with_a_wrong_clock_does_not_get_far_beside_one_with_a_right_clock(
    store: Store,
) -> None:
    right, wrong = Machine(), Machine().set(100)
    servers = [AgeClock(store, right), AgeClock(store, wrong)]
    for _ in range(20):
        assert await servers[0].trusted_ms() == right.wall
        assert await servers[1].trusted_ms() <= right.wall
        right.run(6 * HOUR_MS)
        wrong.run(6 * HOUR_MS)


async def test_it_is_written_once_an_hour(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    advance = store.advance_age_clock

    async def counted(reached_ms: int) -> None:
        written.append(reached_ms)
        await advance(reached_ms)

    monkeypatch.setattr(store, "advance_age_clock", counted)
    machine = Machine()
    clock = AgeClock(store, machine)
    for _ in range(24):
        await clock.trusted_ms()
        machine.run(300_000)
    assert written == [NOW_MS, NOW_MS + HOUR_MS]


async def test_the_mark_never_goes_back(store: Store) -> None:
    assert await store.age_clock() is None
    await store.advance_age_clock(7)
    await store.advance_age_clock(5)
    assert await store.age_clock() == 7

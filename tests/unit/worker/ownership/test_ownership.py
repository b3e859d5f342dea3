"""Who takes which jobs, who hands one over, and for how long a process is sure of what it has."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.store.members import Member, MemberState, Spread
from app.worker.clock import LeaseCertainty
from app.worker.job.places import write_address
from app.worker.ownership.leases import receiver, share


def member(seat: int) -> Member:
    return Member(f"m{seat}", "home", seat, f"http://m{seat}", "host", "place", seat, "1", 4)


def spread(*jobs: int, free: int = 0, dead: int = 0) -> Spread:
    """``jobs`` by seat; the last ``dead`` members are dead."""
    alive = len(jobs) - dead
    return Spread(
        tuple(MemberState(member(seat), 0, seat <= alive, count) for seat, count in enumerate(jobs, 1)), free
    )


@pytest.mark.parametrize("seed", range(50))
def test_shares_are_enough_for_all_that_is_free_and_even(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [rng.randint(0, 9) for _ in range(rng.randint(1, 5))]
    free = rng.randint(0, 20)
    shares = [share(spread(*jobs, free=free), member(seat)) for seat in range(1, len(jobs) + 1)]
    assert sum(shares) >= free
    fair = -(-(sum(jobs) + free) // len(jobs))
    assert all(have + more <= max(have, fair) for have, more in zip(jobs, shares, strict=True))


def test_the_dead_have_no_share_and_one_that_is_alone_takes_all() -> None:
    assert share(spread(0, 0, 0, free=4, dead=1), member(1)) == 2
    assert share(spread(0, 0, 0, free=4, dead=2), member(1)) == 4


def test_only_the_one_with_the_most_gives_and_only_to_one_with_two_fewer() -> None:
    assert receiver(spread(3, 2), member(1)) is None
    assert receiver(spread(3, 1), member(1)) == member(2)
    assert receiver(spread(3, 1), member(2)) is None
    assert receiver(spread(3, 3, 0), member(1)) == member(3)
    assert receiver(spread(3, 3, 0), member(2)) is None, "one at a time"
    assert receiver(spread(3, 0, 0, dead=1), member(1)) == member(2)
    assert receiver(spread(3, 2, 0, dead=1), member(1)) is None, "the dead get nothing"


@pytest.mark.parametrize("seed", range(50))
def test_handing_over_comes_to_an_end(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [rng.randint(0, 12) for _ in range(rng.randint(2, 5))]
    total = sum(jobs)
    for _ in range(total + 1):
        now = spread(*jobs)
        gifts = [
            (seat, to.seat)
            for seat in range(1, len(jobs) + 1)
            if (to := receiver(now, member(seat))) is not None
        ]
        if not gifts:
            break
        ((giver, to),) = gifts
        jobs[giver - 1] -= 1
        jobs[to - 1] += 1
    assert max(jobs) - min(jobs) <= 1
    assert sum(jobs) == total


@dataclass
class Clock:
    at_ms: int = 1000

    def steady_ms(self) -> int:
        return self.at_ms

    def now_ms(self) -> int:
        raise AssertionError("clocks that are set have no say in this")

    wall_ms = now_ms


def test_one_is_sure_until_the_lease_time_after_the_renewal_was_asked_for() -> None:
    clock = Clock()
    lease_certainty = LeaseCertainty(clock)
    assert lease_certainty.is_sure(), "where there are no leases to lose"
    asked_ms = lease_certainty.now_ms()
    clock.at_ms += 900  # the answer took long
    lease_certainty.renewed(asked_ms, 1000)
    assert lease_certainty.is_sure()
    clock.at_ms += 100
    assert not lease_certainty.is_sure()


def test_an_address_of_an_epoch_that_is_over_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "job" / "address"
    assert write_address(file, "http://one", 1)
    assert write_address(file, "http://two", 2)
    assert not write_address(file, "http://one", 1), "it woke up late"
    assert write_address(file, "http://two-again", 2)
    assert file.read_text().split() == ["http://two-again", "2"]

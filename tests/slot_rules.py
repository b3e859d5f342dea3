"""The rules of docs/slots.md by brute force: every way to divide the slots is looked at, and the rules leave one.

It shares nothing with the arbiter, neither code nor way of working: that one deals slots one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True)
class Asks:
    """What a job asks for, in slots, and what it ``held`` when everything was at rest before. ``cap`` None: none."""

    name: str
    lower: int
    upper: int
    weight: int = 1
    priority: int = 0
    cap: int | None = None
    held: int = 0

    @property
    def most(self) -> int:
        return self.upper if self.cap is None else min(self.upper, self.cap)


Division = tuple[int, ...]


def division(jobs: Sequence[Asks], total: int) -> dict[str, int]:
    """What each job has when everything is at rest. ``jobs`` are in the order in which they came."""
    legal = [one for one in _all(jobs, total) if _is_in_order(jobs, one, total)]
    best = max(_admitted(jobs, one) for one in legal)
    admitting = [one for one in legal if _admitted(jobs, one) == best]
    fair = [one for one in admitting if _is_fair(jobs, one, total)]
    least = min(_moves(jobs, one) for one in fair)
    steady = [one for one in fair if _moves(jobs, one) == least]
    return {
        job.name: count
        for job, count in zip(jobs, max(steady, key=lambda one: _first(jobs, one)), strict=True)
    }


def at_rest(jobs: Sequence[Asks], total: int) -> list[Asks]:
    """``jobs`` with what they have when everything is at rest again."""
    found = division(jobs, total)
    return [replace(job, held=found[job.name]) for job in jobs]


def _all(jobs: Sequence[Asks], total: int) -> Iterator[Division]:
    """Each job has what it can run with, or nothing; or what it runs with already, if that is less."""
    choices = [
        sorted({job.held if job.held < job.lower else job.lower, *range(job.lower, job.most + 1)})
        if job.held
        else [0, *range(job.lower, job.most + 1)]
        for job in jobs
    ]
    return (one for one in itertools.product(*choices) if sum(one) <= total)


def _in_turn(jobs: Sequence[Asks]) -> list[int]:
    return sorted(range(len(jobs)), key=lambda index: (-jobs[index].priority, index))


def _is_in_order(jobs: Sequence[Asks], counts: Division, total: int) -> bool:
    """Nobody is admitted while one of higher priority waits for room, unless there never will be room for that one."""
    waiting = [job for job, count in zip(jobs, counts, strict=True) if count < job.lower <= total]
    newly = [
        job for job, count in zip(jobs, counts, strict=True) if count >= job.lower and job.held < job.lower
    ]
    return not any(waits.priority > new.priority for waits in waiting for new in newly)


def _admitted(jobs: Sequence[Asks], counts: Division) -> list[bool]:
    """Who has its lower bounds, in the order in which jobs are admitted."""
    return [
        counts[index] >= jobs[index].lower for index in _in_turn(jobs) if jobs[index].held < jobs[index].lower
    ]


def _is_fair(jobs: Sequence[Asks], counts: Division, total: int) -> bool:
    """No slot is left over that somebody could use, and none would do more elsewhere."""
    pairs = [(job, count) for job, count in zip(jobs, counts, strict=True) if count >= job.lower]
    takers = [(job, count) for job, count in pairs if count < job.most]
    givers = [(job, count) for job, count in pairs if count > job.lower]
    if takers and sum(counts) < total:
        return False
    return all(
        Fraction(has + 1, taker.weight) >= Fraction(gives, giver.weight)
        for giver, gives in givers
        for taker, has in takers
        if taker is not giver
    )


def _moves(jobs: Sequence[Asks], counts: Division) -> int:
    return sum(abs(count - job.held) for job, count in zip(jobs, counts, strict=True))


def _first(jobs: Sequence[Asks], counts: Division) -> list[int]:
    """Of divisions that are as good, the one in which those of higher priority, then the earlier ones, have more."""
    return [counts[index] for index in _in_turn(jobs)]

"""The parallelism that FLIP-187 decides for a vertex whose inputs are finished: bytes over bytes per task.

Powers of two, so that every decision divides the number of subpartitions, and each task reads as many of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

MAX_BROADCAST_RATIO = 0.5
"""Broadcast bytes count up to this share of a task's volume: every task reads them, and there must be room left."""


@dataclass(frozen=True, slots=True)
class Formula:
    """What the bytes ask for, before bounds.

    ``wanted``: so many tasks. ``normalized``: the power of two next to it. ``counted_broadcast_bytes``: what of the
    volume of each task was set aside for broadcast inputs.
    """

    wanted: int
    normalized: int
    counted_broadcast_bytes: int

    def within(self, lowest: int, highest: int) -> int:
        """The parallelism within these bounds.

        ``lowest`` is rounded up and ``highest`` down to a power of two; where no power of two lies between them, they
        hold as they are, and the decision is not a power of two.
        """
        low, high = power_of_two_from(lowest), power_of_two_to(highest)
        if low <= high:
            return min(max(self.normalized, low), high)
        return min(max(self.wanted, lowest), highest)


def formula(
    bytes_: int,
    broadcast_bytes: int,
    *,
    volume_bytes: int,
    max_broadcast_ratio: float = MAX_BROADCAST_RATIO,
) -> Formula:
    """For inputs of ``bytes_`` that are divided among the tasks, and of ``broadcast_bytes`` for each."""
    counted = min(broadcast_bytes, int(volume_bytes * max_broadcast_ratio))
    wanted = max(1, ceil(bytes_ / (volume_bytes - counted)))
    return Formula(wanted, nearest_power_of_two(wanted), counted)


def power_of_two_to(number: int) -> int:
    """The largest power of two that is not above ``number`` (at least 1)."""
    return 1 << (number.bit_length() - 1)


def power_of_two_from(number: int) -> int:
    """The smallest power of two that is not below ``number`` (at least 1)."""
    return 1 << (number - 1).bit_length()


def nearest_power_of_two(number: int) -> int:
    """The power of two next to ``number`` (at least 1); the larger one of two that are as near."""
    below, above = power_of_two_to(number), power_of_two_from(number)
    return below if number - below < above - number else above

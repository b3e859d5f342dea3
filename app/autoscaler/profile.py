"""The start time of a job's tasks, learned from its past at different loads.

A task takes some time before its first row: it is started, and so may be a Python worker. While batches follow each
other without a pause, small batches are many, so this time fills what the rows leave: busy time then says little of the
rows. It does not depend on them, though. Over different loads busy time is a straight line over the rows per task, and
its height at no rows is that time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import linear_regression
from typing import Final

KEPT_MS: Final = 24 * 3_600_000
SATURATED_MS: Final = 900.0
"""Near 1000 the line ends: tasks cannot be busy for longer."""
WITHOUT_PAUSE_MS: Final = 900.0
"""Of batches that run for longer of each second, one begins when the one before is over."""
LEAST_POINTS: Final = 3
LEAST_SPREAD: Final = 1.5
"""The most rows per task by the fewest, below which a line would be made of noise."""
_RATIO: Final = 1.2


@dataclass(frozen=True, slots=True)
class Point:
    """``busy_ms`` of each second, by the average task of each stage, at ``rows_per_task`` rows per second."""

    rows_per_task: float
    busy_ms: float
    at_ms: int

    @property
    def bin(self) -> int:
        """Points of one bin are of about the same load: the latest one counts."""
        return round(math.log(self.rows_per_task, _RATIO))


def learned(profile: Iterable[Point], point: Point) -> tuple[Point, ...]:
    """The profile with a point more, if it says anything."""
    kept = [each for each in profile if each.at_ms > point.at_ms - KEPT_MS]
    if point.rows_per_task <= 0 or point.busy_ms <= 0 or point.busy_ms > SATURATED_MS:
        return tuple(kept)
    return (*(each for each in kept if each.bin != point.bin), point)


def own_ms(profile: Iterable[Point], busy_ms: float, batch_ms_per_second: float) -> float:
    """The part of ``busy_ms`` that tasks cost by themselves; 0 while that is not known.

    Without pauses between batches, what rows take leaves less time for batches: there are fewer of them, and less of
    this time. The line is less steep by that.
    """
    at_rest_ms = min(height(profile), busy_ms)
    if batch_ms_per_second < WITHOUT_PAUSE_MS:
        return at_rest_ms
    rows_ms = (busy_ms - at_rest_ms) / max(0.1, 1 - at_rest_ms / 1000)
    return max(0.0, busy_ms - rows_ms)


def height(profile: Iterable[Point]) -> float:
    """Busy time without rows, by the straight line that fits best; 0 while it is not known."""
    points = list(profile)
    if len(points) < LEAST_POINTS:
        return 0.0
    rows = [each.rows_per_task for each in points]
    if max(rows) < LEAST_SPREAD * min(rows):
        return 0.0
    slope, at_no_rows = linear_regression(rows, [each.busy_ms for each in points])
    return max(0.0, at_no_rows) if slope > 0 else 0.0

"""The percentage and the remaining time of a region's run, from its Spark tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskCount:
    """Spark tasks of one run of a region: those that are done, and those that are known so far.

    Adaptive execution makes stages as it goes, so ``known`` may grow until the run ends.
    """

    done: int
    known: int


def percent(count: TaskCount) -> int:
    """Of a run that has not ended: 0 to 99, since more tasks may become known."""
    if count.known <= 0:
        return 0
    return min(99, max(0, 100 * count.done // count.known))


def rest_ms(count: TaskCount, elapsed_ms: int) -> int | None:
    """Milliseconds that a run needs still if its tasks go on as in the ``elapsed_ms`` since its start.

    None while no task is done, and when all that are known are: nothing tells how long the rest takes.
    """
    if not 0 < count.done < count.known:
        return None
    return round(max(0, elapsed_ms) * (count.known - count.done) / count.done)

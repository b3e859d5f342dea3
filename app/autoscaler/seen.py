"""The snapshot of a job that the autoscaler reads, its decision, and what it has learned of the job: the start time of
its tasks.

A task takes some time before its first row: it is started, and so may be a Python worker. While batches follow each
other without a pause, small batches are many, so this time fills what the rows leave: busy time then says little of the
rows. It does not depend on them, though. Over different loads busy time is a straight line over the rows per task, and
its height at no rows is that time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import linear_regression
from typing import Final

from app.model.requirements import Bounds
from app.model.scaling_policy import NO_LIMITS, FloorCeiling

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
class Vertex:
    """``parallelism`` is in force, ``lower`` and ``upper`` are declared, ``most`` is the max parallelism: of a stateful
    vertex its number of state partitions. An upper bound above it asks for more of them, which are not there yet.

    ``busy_ms``: of each second, by its average task. ``skew``: how many times as long the longest task is. ``working``:
    as how many tasks its stage ran in the last batch, which may have had parts for fewer; None: not known.
    ``operator``: the floor and ceiling of the job's scaling policy, which hold whatever bounds are declared.
    """

    id: str
    name: str
    group: str
    parallelism: int
    lower: int
    upper: int
    most: int
    busy_ms: float = 0.0
    skew: float = 1.0
    operator: FloorCeiling = NO_LIMITS
    working: int | None = None

    @property
    def effective(self) -> Bounds:
        """The bounds that count: those declared, within the operator's floor and ceiling."""
        return self.operator.within(Bounds(self.lower, self.upper), self.most)


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of a job since its parallelism last changed. None: not known.

    ``length_ms``: the time that rates are over. ``batch_ms_per_second``: while a batch ran. ``fixed_share``: the part
    of that in which no task worked. ``batch_ms``: how long the last batch took. ``rows_per_busy_second``: what a second
    of batches works off; 0: not known.
    """

    length_ms: int
    rows_per_second: float
    backlog_rows: float | None
    growth_per_second: float | None
    batch_ms_per_second: float
    fixed_share: float
    batch_ms: float
    rows_per_busy_second: float = 0.0

    @property
    def arrival_per_second(self) -> float:
        """The rows that come to the sources; as many as are processed, where the backlog is not known."""
        return max(0.0, self.rows_per_second + (self.growth_per_second or 0.0))


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The parallelism per vertex id that the load asked for at one moment, whether or not it was declared."""

    at_ms: int
    tasks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StepUp:
    """Higher bounds that were declared: upper bounds ``before`` and ``after``, per vertex id, of those that changed.

    ``rows_per_busy_second``: how many rows a second of batches had worked off; ``expected_gain``: by which part more
    it should be.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    rows_per_busy_second: float
    expected_gain: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """No upper bound above ``upper``, per vertex id, is declared until ``until_ms``: more tasks brought nothing."""

    upper: Mapping[str, int]
    until_ms: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What a decision leaves to the next one: ``recommended``, oldest first, and the ``profile`` of the tasks of an
    ``attempt`` of the job: the next may run another program. ``step``: the last one up, until it is known what it has
    brought."""

    recommended: tuple[Recommendation, ...] = ()
    profile: tuple[Point, ...] = ()
    attempt: int = 0
    step: StepUp | None = None
    held: Held | None = None


NO_MEMORY = Memory()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job at ``now_ms``, by the clock of its server.

    ``since_ms``: since when it runs at its parallelism under this server: a rescale, a restart and a takeover move it.
    ``steady_ms``: the same without rescales for slots that came or went, which other jobs cause.
    ``slots``: those that the cluster has; None: that is not known.
    ``queries``: the vertex ids of each query; a vertex may be part of several. ``load``: None if there are no figures.
    ``quiet_ms``: since the last batch. ``is_idle``: all queries have said since that there is nothing to do.
    ``taken_back``: why the server has taken the last rescale back, while that holds.
    """

    now_ms: int
    status: str
    scheduler_state: str
    since_ms: int
    vertices: tuple[Vertex, ...]
    queries: tuple[tuple[str, ...], ...]
    load: Load | None = None
    quiet_ms: int = 0
    is_idle: bool = False
    taken_back: str | None = None
    attempt: int = 0
    memory: Memory = NO_MEMORY
    steady_ms: int | None = None
    slots: int | None = None

    @property
    def changed_ms(self) -> int:
        """When the job itself was changed last."""
        return self.since_ms if self.steady_ms is None else self.steady_ms


class Action(StrEnum):
    NONE = "NONE"
    SCALE = "SCALE"
    RECOMMEND = "RECOMMEND"


@dataclass(frozen=True, slots=True)
class Decision:
    """``upper``: the new upper bounds, of those vertices that get another one. ``reason``: why, in words.

    ``utilization``: the part of the time that the load needs at the parallelism in force; ``expected``: at the one
    recommended. ``rows_per_second``: the rate that both are for. ``memory`` is what the next snapshot is given.
    """

    action: Action
    reason: str
    upper: Mapping[str, int] = field(default_factory=dict)
    utilization: float | None = None
    expected: float | None = None
    rows_per_second: float | None = None
    memory: Memory = NO_MEMORY


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

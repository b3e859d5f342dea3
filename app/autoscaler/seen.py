"""The snapshot of a job that the autoscaler reads, and its decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.autoscaler.profile import Point
from app.model.requirements import Bounds
from app.model.scaling_policy import NO_LIMITS, FloorCeiling


@dataclass(frozen=True, slots=True)
class Vertex:
    """``parallelism`` is in force, ``lower`` and ``upper`` are declared, ``most`` is the max parallelism: of a stateful
    vertex its number of state partitions. An upper bound above it asks for more of them, which are not there yet.

    ``busy_ms``: of each second, by its average task. ``skew``: how many times as long the longest task is.
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

    @property
    def effective(self) -> Bounds:
        """The bounds that count: those declared, within the operator's floor and ceiling."""
        return self.operator.within(Bounds(self.lower, self.upper), self.most)


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of a job since its parallelism last changed. None: not known.

    ``length_ms``: the time that rates are over. ``batch_ms_per_second``: while a batch ran. ``fixed_share``: the part
    of that in which no task worked. ``batch_ms``: how long the last batch took.
    """

    length_ms: int
    rows_per_second: float
    backlog_rows: float | None
    growth_per_second: float | None
    batch_ms_per_second: float
    fixed_share: float
    batch_ms: float

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
class Memory:
    """What a decision leaves to the next one: ``recommended``, oldest first, and the ``profile`` of the tasks of an
    ``attempt`` of the job: the next may run another program."""

    recommended: tuple[Recommendation, ...] = ()
    profile: tuple[Point, ...] = ()
    attempt: int = 0


NO_MEMORY = Memory()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job at ``now_ms``, by the clock of its server.

    ``since_ms``: since when it runs at its parallelism under this server: a rescale, a restart and a takeover move it.
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

"""The values that the parts of a batch job exchange: finished results, and the work of a driver.

A *region* is a part of the job graph that runs as one piece of work (FLIP: pipelined region scheduling). A *dataset* is
what a vertex leaves for regions that read it, in one partitioning; a *result* is a dataset that some run of its region
has written completely.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.model.jobgraph import Partitioner


class RegionStatus(StrEnum):
    """CREATED: waits for its inputs or its turn. RUNNING: a driver was told to run it. FINISHED: its results count."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"


class DeciderRule(StrEnum):
    """How the parallelism of a vertex follows from the bytes of its finished inputs."""

    FLIP_187 = "flip-187"
    EVEN_DATA = "even-data"


class LimitedBy(StrEnum):
    """What led to another parallelism than the bytes ask for within the bounds.

    SLOTS: more tasks of a source would only wait for one. OPTIONS: execution.batch.adaptive.auto-parallelism.*.
    SUBPARTITIONS: the inputs are written in so many parts, and a task without one has nothing to read.
    """

    SLOTS = "slots"
    OPTIONS = "options"
    SUBPARTITIONS = "subpartitions"


class SkewStrategy(StrEnum):
    """What becomes of skewed subpartitions (Flink: table.optimizer.skewed-join-optimization.strategy).

    AUTO: they are divided where that costs the region no further shuffle; FORCED: even if it does; NONE: never.
    """

    AUTO = "auto"
    FORCED = "forced"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Skew:
    """When a subpartition counts as skewed: above ``factor`` times the median and above ``threshold_bytes``."""

    strategy: SkewStrategy = SkewStrategy.AUTO
    factor: float = 4.0
    threshold_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Dataset:
    """What regions read of the vertex ``producer`` (an id), in one partitioning.

    HASH has ``keys``; every other partitioner has none. ``readers`` are vertex ids.
    """

    id: str
    producer: str
    partitioner: Partitioner
    keys: tuple[str, ...]
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A complete dataset on durable storage, as run ``run`` of its region wrote it.

    ``bytes_of`` and ``rows_of`` are per subpartition: for HASH one per bucket, for BROADCAST one, else one per task of
    the producer. ``manifest_sha256`` is of the file beside the data that names each file with its length.
    """

    dataset: str
    run: int
    path: str
    manifest_sha256: str
    bytes_of: tuple[int, ...]
    rows_of: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes_of)

    @property
    def total_rows(self) -> int:
        return sum(self.rows_of)


@dataclass(frozen=True, slots=True)
class Read:
    """A finished result that vertex ``vertex_id`` of a region reads, as its input ``producer``.

    ``groups`` has for each task the subpartitions that it reads, empty where Spark divides the files as it likes.
    """

    vertex_id: str
    producer: str
    result: Result
    groups: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """A dataset that a region is to leave, in ``subpartitions`` parts (HASH only; else 0)."""

    dataset: str
    producer: str
    partitioner: Partitioner
    keys: tuple[str, ...]
    subpartitions: int


@dataclass(frozen=True, slots=True)
class RegionOrder:
    """One run of a region. ``parallelism`` is per vertex id, in topological order.

    ``volume_bytes``: about how much a task should read where Spark decides the number of tasks. ``skew``: which
    parts of a shuffle it should divide.
    """

    region: int
    run: int
    parallelism: dict[str, int]
    volume_bytes: int
    reads: tuple[Read, ...] = ()
    outputs: tuple[Output, ...] = ()
    skew: Skew = Skew()

"""The progress of a batch job: its regions, the results in use, and the decisions. Part of `JobState`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.model.batch import LimitedBy, RegionStatus, Result

REGION_TIMER: Final = "region-backoff"
"""While it is held, no region is started that has run before."""


@dataclass(frozen=True, slots=True)
class RegionState:
    """A region. ``run`` counts its runs; ``attempt`` is the driver's that was told of the last one."""

    status: RegionStatus = RegionStatus.CREATED
    run: int = 0
    attempt: int = 0
    started_ms: int | None = None
    finished_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The parallelism of a vertex in one run of its region, with the numbers that led to it.

    ``rule``: flip-187 or even-data; ``fixed`` (the bounds leave no choice), ``source`` (from the sizes of its files),
    ``pipelined`` (all inputs are in its own region: Spark divides the rows, ``parallelism`` is its limit).
    ``lower`` and ``upper`` are the client's bounds of that moment. ``limit``: what else it had to keep to, where that
    made a difference, and ``limited_by`` says where it is from; else None.
    ``wanted`` is what the bytes ask for, before bounds; flip-187 takes the power of two next to it, ``normalized``, and
    sets ``counted_broadcast_bytes`` of each task's volume aside for broadcast inputs.
    ``subpartitions`` is how many the inputs have, the smallest number if they differ; None without.
    ``groups``: the subpartitions of each task (modulo that number, of inputs that have more); none if there are
    ``skewed`` ones, which Spark is to divide.
    ``rows``: of all inputs from other regions, broadcast ones once.
    """

    vertex_id: str
    region: int
    run: int
    at_ms: int
    rule: str
    parallelism: int
    lower: int
    upper: int
    wanted: int | None = None
    bytes: int | None = None
    rows: int | None = None
    broadcast_bytes: int = 0
    volume_bytes: int = 0
    subpartitions: int | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    skewed: tuple[int, ...] = ()
    normalized: int | None = None
    counted_broadcast_bytes: int = 0
    limit: int | None = None
    limited_by: LimitedBy | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What the last finished run of its region left of a vertex for other regions."""

    vertex_id: str
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """``regions`` are in the order of `regions_of`; ``results`` are those that may be read.

    ``subpartitions`` has, per dataset id, into how many parts the running or finished run of its region writes it.
    ``source_bytes``: sizes of the sources' files by vertex id, as the driver found them.
    ``written``: what vertices left, whether it is still there or not.
    ``decisions``: the latest ones of each vertex, oldest first.
    """

    regions: tuple[RegionState, ...] = ()
    results: tuple[Result, ...] = ()
    subpartitions: tuple[tuple[str, int], ...] = ()
    source_bytes: tuple[tuple[str, int], ...] = ()
    decisions: tuple[Decision, ...] = ()
    written: tuple[Written, ...] = ()

    def decision(self, vertex_id: str) -> Decision | None:
        """The latest decision for a vertex."""
        return next((one for one in reversed(self.decisions) if one.vertex_id == vertex_id), None)

    def parallelism(self, *statuses: RegionStatus) -> dict[str, int]:
        """What the vertices of the regions in ``statuses`` were decided to run at."""
        latest = {one.vertex_id: one for one in self.decisions}
        return {
            vertex: one.parallelism
            for vertex, one in latest.items()
            if self.regions[one.region].status in statuses
        }

    def in_force(self, vertex_id: str) -> Decision | None:
        """The decision that the vertex runs, or has run, at; None while its region is still to run, or to run again."""
        found = self.decision(vertex_id)
        if found is None or self.regions[found.region].status is RegionStatus.CREATED:
            return None
        return found

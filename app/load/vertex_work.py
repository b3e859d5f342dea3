"""The work of a vertex: in one batch, in several batches, since a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from app.model.jobgraph import JobVertex
from app.model.measured import VertexBatch


class Work(NamedTuple):
    """What a vertex did in some batches. None: of none of them it is known.

    ``slot_busy_us``: of the average slot, at the parallelism that each batch had. ``slot_held_ms``: for how long each
    slot of a source had rows to read while no batch ran.
    """

    records_in: int | None = None
    records_out: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    busy_ms: int | None = None
    longest_task_ms: int | None = None
    median_task_ms: int | None = None
    slot_busy_us: int | None = None
    slot_held_ms: int | None = None

    def plus(self, other: Work) -> Work:
        return Work(*map(_sum, self, other))

    @property
    def unknown(self) -> frozenset[str]:
        if None not in self:
            return NOTHING
        return frozenset(name for name, value in zip(self._fields, self, strict=True) if value is None)


_NO_WORK: Final = Work()
NOTHING: Final[frozenset[str]] = frozenset()


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def work_of(batch: VertexBatch, vertex: JobVertex, held_ms: int) -> Work:
    """A source reads the rows that it hands on, unless reported otherwise. Task times give a ratio, or nothing."""
    records_in = batch.records_in
    if records_in is None and vertex.is_source:
        records_in = batch.records_out
    longest_ms, median_ms = batch.longest_task_ms, batch.median_task_ms
    if longest_ms is None or median_ms is None:
        longest_ms = median_ms = None
    return Work(
        records_in,
        batch.records_out,
        batch.bytes_in,
        batch.bytes_out,
        batch.busy_ms,
        longest_ms,
        median_ms,
        None if batch.busy_ms is None else 1000 * batch.busy_ms // max(1, batch.parallelism),
        held_ms,
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """Since some moment. ``unknown``: of these figures some batch that had rows told nothing, so they are too small.

    ``busy_ms``, ``idle_ms``, ``held_ms``: how the time of all slots of the vertex divides, up to the end of the last
    batch. Held is a source that had rows to read while no batch ran. A vertex of whose tasks nothing is told is busy
    while a batch runs.
    """

    work: Work = _NO_WORK
    busy_ms: int = 0
    idle_ms: int = 0
    held_ms: int = 0
    unknown: frozenset[str] = frozenset()
    batches: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.work.plus(other.work),
            self.busy_ms + other.busy_ms,
            self.idle_ms + other.idle_ms,
            self.held_ms + other.held_ms,
            self.unknown | other.unknown,
            self.batches + other.batches,
        )

    def is_complete(self, name: str) -> bool:
        return self.batches > 0 and name not in self.unknown


NO_TOTALS: Final = Totals()


def of_queries(found: list[Totals]) -> Totals | None:
    """Each figure is that of the query with most of it, since each of them reads the rows; busy time is the sum, as far
    as there is so much time."""
    if len(found) <= 1:
        return found[0] if found else None
    figures = [
        max((value for value in values if value is not None), default=None)
        for values in zip(*(each.work for each in found), strict=True)
    ]
    whole_ms = max(each.busy_ms + each.idle_ms + each.held_ms for each in found)
    busy_ms = min(sum(each.busy_ms for each in found), whole_ms)
    held_ms = min(max(each.held_ms for each in found), whole_ms - busy_ms)
    work_ms = None
    for each in found:
        work_ms = _sum(work_ms, each.work.busy_ms)
    return Totals(
        Work(*figures)._replace(busy_ms=work_ms),
        busy_ms,
        whole_ms - held_ms - busy_ms,
        held_ms,
        frozenset().union(*(each.unknown for each in found)),
        max(each.batches for each in found),
    )

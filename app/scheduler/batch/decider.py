"""VertexParallelismDecider: how parallel a vertex of a batch job runs, once its inputs are complete.

Both rules of FLIP-187's component of that name: the FLIP's own formula, and production Flink's even data (since 1.17).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from app.model.batch import DeciderRule, Result, Skew, SkewStrategy
from app.scheduler.batch import flip187
from app.scheduler.batch.even_data import InputBytes, Slice, even_ranges, skewed, slices_of
from app.scheduler.batch.ranges import by_count, by_remainder

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Finished inputs of one vertex.

    ``hashed`` are partitioned by keys that belong together; ``others`` lie as they were written; each task reads
    ``broadcast`` whole.
    """

    hashed: tuple[Result, ...] = ()
    others: tuple[Result, ...] = ()
    broadcast: tuple[Result, ...] = ()

    @property
    def divided_bytes(self) -> int:
        return sum(result.total_bytes for result in (*self.hashed, *self.others))

    @property
    def broadcast_bytes(self) -> int:
        return sum(result.total_bytes for result in self.broadcast)

    @property
    def subpartitions(self) -> tuple[int, ...]:
        """The numbers of subpartitions of the hashed inputs, smallest first, each once."""
        return tuple(sorted({len(result.bytes_of) for result in self.hashed}))


@dataclass(frozen=True, slots=True)
class Verdict:
    """``wanted``: what the bytes ask for, before bounds.

    ``groups``: the subpartitions of each task, where they are chosen by their bytes; else see `groups_of`.
    ``skewed``: subpartitions that are much larger than the others. Then Spark shuffles the rows once more, and divides
    those if the operation allows it.
    """

    parallelism: int
    wanted: int
    groups: Groups = ()
    skewed: tuple[int, ...] = ()


def decide(
    inputs: Inputs, rule: DeciderRule, *, volume_bytes: int, lower: int, upper: int, skew: Skew | None = None
) -> Verdict:
    """The parallelism for ``inputs`` within ``lower`` to ``upper``, about ``volume_bytes`` for each task.

    More tasks than the hashed inputs have subpartitions would have nothing to read, so there are never more.
    """
    parts = inputs.subpartitions
    if parts:
        lower, upper = min(lower, parts[0]), min(upper, parts[0])
    if rule is DeciderRule.EVEN_DATA:
        return _even_data(inputs, volume_bytes, lower, upper, skew or Skew())
    verdict = flip187.decide(
        inputs.divided_bytes,
        inputs.broadcast_bytes,
        volume_bytes=volume_bytes,
        lowest=lower,
        highest=upper,
    )
    return Verdict(verdict.parallelism, verdict.wanted)


def groups_of(inputs: Inputs, result: Result, decided: Groups, tasks: int) -> Groups:
    """The subpartitions of the hashed input ``result`` that each of ``tasks`` reads.

    FLIP-187's ranges if none were ``decided``: equally many for each task. Empty if the hashed inputs cannot be
    divided alike; then their rows have to be shuffled once more.
    """
    if decided:
        return decided
    own = len(result.bytes_of)
    if all(parts % tasks == 0 for parts in inputs.subpartitions):
        return by_remainder(own, tasks)
    return by_count(own, tasks) if len(inputs.subpartitions) == 1 else ()


def _even_data(inputs: Inputs, volume_bytes: int, lower: int, upper: int, skew: Skew) -> Verdict:
    # Broadcast bytes are ignored, as production Flink does.
    total = inputs.divided_bytes
    wanted = ceil(total / volume_bytes)
    parallelism = min(max(wanted, lower), upper)
    if skew.strategy is not SkewStrategy.NONE and parallelism > 1:
        large = tuple(sorted({one for result in inputs.hashed for one in skewed(result.bytes_of, skew)}))
        if large:
            return Verdict(parallelism, wanted, skewed=large)
    if len(inputs.subpartitions) != 1 or not total:
        return Verdict(parallelism, wanted)
    if inputs.others:
        # Two ways to divide must agree on the number of tasks.
        lower = upper = parallelism
    hashed_bytes = sum(result.total_bytes for result in inputs.hashed)
    share = max(1, volume_bytes * hashed_bytes // total)
    slices = slices_of([InputBytes((result.bytes_of,)) for result in inputs.hashed], share)
    ranges = even_ranges(slices, share, lower, upper)
    if ranges is None:
        return Verdict(parallelism, wanted)
    return Verdict(len(ranges), wanted, _subpartitions(ranges))


def _subpartitions(ranges: Sequence[Sequence[Slice]]) -> Groups:
    """The subpartitions of each range of whole slices."""
    return tuple(
        tuple(dict.fromkeys(part.subpartition for slice_ in one for part in slice_)) for one in ranges
    )

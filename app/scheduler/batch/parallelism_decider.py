"""VertexParallelismDecider: how parallel a vertex of a batch job runs, once its inputs are complete.

Both rules of FLIP-187's component of that name: the FLIP's own formula, and production Flink's even data (since 1.17).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from app.model.batch import DeciderRule, LimitedBy, Result, Skew, SkewStrategy
from app.scheduler.batch import flip187
from app.scheduler.batch.limits import Limits
from app.scheduler.batch.ranges import by_count, by_remainder, even_ranges, skewed

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
    def all(self) -> tuple[Result, ...]:
        return (*self.hashed, *self.others, *self.broadcast)

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

    @property
    def common(self) -> int | None:
        """The number of subpartitions that all hashed inputs can be seen in; None if there is none.

        An input has more of them than another one if other vertices read it too. Where the smallest number divides
        the others, part ``p`` of each of them is in its part ``p`` modulo that number: the hashes agree.
        """
        parts = self.subpartitions
        return parts[0] if parts and all(one % parts[0] == 0 for one in parts) else None


@dataclass(frozen=True, slots=True)
class Division:
    """Among how many tasks inputs are divided, and how.

    ``wanted``: what the bytes ask for, before bounds. ``normalized``: the power of two next to it, and
    ``counted_broadcast_bytes``: what each task's volume had to leave for broadcast inputs; of FLIP-187's formula only.
    ``groups``: the subpartitions of each task, where they are chosen by their bytes; else see `groups_of`. They are
    counted in `Inputs.common`, and so is ``skewed``: subpartitions that are much larger than the others. Then Spark
    shuffles the rows once more, and divides those if the operation allows it.
    ``limit`` and ``limited_by``: see `Limits.effect`.
    """

    parallelism: int
    wanted: int
    normalized: int | None = None
    counted_broadcast_bytes: int = 0
    groups: Groups = ()
    skewed: tuple[int, ...] = ()
    limit: int | None = None
    limited_by: LimitedBy | None = None


def decide(
    inputs: Inputs, rule: DeciderRule, *, volume_bytes: int, limits: Limits, skew: Skew | None = None
) -> Division:
    """The parallelism for ``inputs`` within ``limits``, about ``volume_bytes`` for each task."""
    parts = inputs.subpartitions
    if parts:
        limits = limits.readable(parts[0])
    if rule is DeciderRule.EVEN_DATA:
        return _even_data(inputs, volume_bytes, limits, skew or Skew())
    found = flip187.formula(inputs.divided_bytes, inputs.broadcast_bytes, volume_bytes=volume_bytes)
    parallelism = found.within(limits.lowest, limits.highest)
    limit, by = limits.effect(found.within(limits.bounds.lower, limits.bounds.upper), parallelism)
    return Division(
        parallelism,
        found.wanted,
        found.normalized,
        found.counted_broadcast_bytes,
        limit=limit,
        limited_by=by,
    )


def groups_of(inputs: Inputs, result: Result, decided: Groups, tasks: int) -> Groups:
    """The subpartitions of the hashed input ``result`` that each of ``tasks`` reads.

    FLIP-187's ranges if none were ``decided``: equally many for each task. Empty if the hashed inputs cannot be
    divided alike; then their rows have to be shuffled once more.
    """
    own, common = len(result.bytes_of), inputs.common
    if not decided and all(parts % tasks == 0 for parts in inputs.subpartitions):
        return by_remainder(own, tasks)
    if common is None:
        return ()
    of_common = decided or by_count(common, tasks)
    return tuple(tuple(part for one in group for part in range(one, own, common)) for group in of_common)


def _folded(bytes_of: Sequence[int], common: int) -> tuple[int, ...]:
    """The bytes of subpartitions, merged to this number."""
    return tuple(sum(bytes_of[one::common]) for one in range(common))


def _even_data(inputs: Inputs, volume_bytes: int, limits: Limits, skew: Skew) -> Division:
    # Broadcast bytes are ignored, as production Flink does.
    total = inputs.divided_bytes
    wanted = ceil(total / volume_bytes)
    parallelism = limits.clamp(wanted)
    limit, by = limits.effect(Limits.of(limits.bounds).clamp(wanted), parallelism)
    plain = Division(parallelism, wanted, limit=limit, limited_by=by)
    sizes = [_folded(result.bytes_of, inputs.common or len(result.bytes_of)) for result in inputs.hashed]
    if skew.strategy is not SkewStrategy.NONE and parallelism > 1:
        large = tuple(sorted({one for bytes_of in sizes for one in skewed(bytes_of, skew)}))
        if large:
            return replace(plain, skewed=large)
    if inputs.common is None or not total:
        return plain
    # Two ways to divide must agree on the number of tasks.
    lowest, highest = (parallelism, parallelism) if inputs.others else (limits.lowest, limits.highest)
    bytes_of = [sum(one) for one in zip(*sizes, strict=True)]
    ranges = even_ranges(bytes_of, max(1, volume_bytes * sum(bytes_of) // total), lowest, highest)
    if ranges is None:
        return plain
    if len(ranges) != parallelism:
        # It is the sizes of the subpartitions that decided, and no limit.
        limit = by = None
    return Division(len(ranges), wanted, groups=ranges, limit=limit, limited_by=by)

"""Even amounts of data for the tasks of a vertex that reads all-to-all: production Flink's way (since 1.17, 2.x).

The subpartitions of the inputs become slices in a row; a task reads some that follow each other. A subpartition that is
much larger than the others is cut into several slices, if the operation allows that rows of one key are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from app.model.batch import Skew
from app.scheduler.batch.ranges import by_count


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one input that are read together: a subpartition, of the producer's partitions ``first`` to ``last``."""

    input: int
    subpartition: int
    first: int
    last: int
    size_bytes: int


Slice = tuple[Part, ...]
"""What a task reads whole or not at all: one part of each input."""


@dataclass(frozen=True, slots=True)
class InputBytes:
    """The bytes of a finished result: ``sizes[partition][subpartition]``, one row per task of its producer.

    ``is_splittable``: rows of one key may be read by several tasks (the probe side of a join, a rebalance).
    """

    sizes: tuple[tuple[int, ...], ...]
    is_splittable: bool = False

    @property
    def subpartitions(self) -> tuple[int, ...]:
        """Bytes per subpartition."""
        return tuple(map(sum, zip(*self.sizes, strict=True)))

    @property
    def total_bytes(self) -> int:
        return sum(map(sum, self.sizes))


def slices_of(inputs: Sequence[InputBytes], volume_bytes: int, skew: Skew | None = None) -> tuple[Slice, ...]:
    """The slices of inputs whose keys belong together (one input alone, or the sides of a join), in order.

    A skewed subpartition of a splittable input is cut along the producer's partitions. Where several inputs have parts
    of one subpartition, each part of the one meets each of the other, so that a join misses no pair.
    """
    skew = skew or Skew()
    cut: list[list[list[Part]]] = []
    for number, one in enumerate(inputs):
        bytes_of = one.subpartitions
        limit = _skew_limit(bytes_of, skew)
        target = _cut_size(bytes_of, limit, volume_bytes)
        parts = []
        for index, size in enumerate(bytes_of):
            if one.is_splittable and size > limit:
                parts.append(_cut(number, index, [row[index] for row in one.sizes], target))
            else:
                parts.append([Part(number, index, 0, len(one.sizes) - 1, size)])
        cut.append(parts)
    return tuple(together for of_index in zip(*cut, strict=True) for together in product(*of_index))


def skewed(bytes_of: Sequence[int], skew: Skew) -> tuple[int, ...]:
    """The subpartitions that are much larger than the others (flink-behaviour I.3)."""
    limit = _skew_limit(bytes_of, skew)
    return tuple(index for index, size in enumerate(bytes_of) if size > limit)


def even_ranges(
    slices: Sequence[Slice], volume_bytes: int, lowest: int, highest: int
) -> tuple[tuple[Slice, ...], ...] | None:
    """Slices for each task: about ``volume_bytes`` for each, and between ``lowest`` and ``highest`` tasks.

    None if there are too few slices for so many tasks.
    """
    if len(slices) < lowest:
        return None
    groups = _grouped(slices, volume_bytes)
    if len(groups) < lowest:
        groups = _most_even(slices, volume_bytes, lowest)
    elif len(groups) > highest:
        groups = _grouped(slices, _smallest_limit(slices, volume_bytes, lambda count: count <= highest))
    if not lowest <= len(groups) <= highest:
        groups = [list(range_) for range_ in by_count(len(slices), min(len(slices), highest))]
    return tuple(tuple(slices[index] for index in group) for group in groups)


def _skew_limit(bytes_of: Sequence[int], skew: Skew) -> float:
    """A subpartition of more bytes is skewed."""
    return max(max(1.0, median(bytes_of)) * skew.factor, float(skew.threshold_bytes))


def _cut_size(bytes_of: Sequence[int], limit: float, volume_bytes: int) -> int:
    """About how many bytes the slices of a skewed subpartition should have: as the others, but not less than asked."""
    normal = [size for size in bytes_of if size <= limit]
    average = sum(normal) // len(normal) if normal else 0
    return max(volume_bytes, average)


def _cut(number: int, subpartition: int, sizes: Sequence[int], target: int) -> list[Part]:
    """A subpartition cut along the producer's partitions into parts of about ``target`` bytes."""
    parts: list[Part] = []
    first = size = 0
    for partition, more in enumerate(sizes):
        if partition > first and size + more > target:
            parts.append(Part(number, subpartition, first, partition - 1, size))
            first, size = partition, 0
        size += more
    parts.append(Part(number, subpartition, first, len(sizes) - 1, size))
    return parts


def _grouped(slices: Sequence[Slice], limit: int) -> list[list[int]]:
    """Slices by index, each group filled until the next slice would make it larger than ``limit`` bytes.

    A part that is in the group already, with another part of the other input, is read once.
    """
    groups: list[list[int]] = []
    held: set[Part] = set()
    size = 0
    for index, parts in enumerate(slices):
        more = sum(part.size_bytes for part in parts if part not in held)
        if groups and size + more <= limit:
            groups[-1].append(index)
            size += more
            held.update(parts)
        else:
            groups.append([index])
            size = sum(part.size_bytes for part in parts)
            held = set(parts)
    return groups


def _most_even(slices: Sequence[Slice], volume_bytes: int, lowest: int) -> list[list[int]]:
    """At least ``lowest`` groups, as few of them as that allows, and those as even as can be."""
    low, high = _search_interval(slices, volume_bytes)
    # The largest limit that gives enough groups ...
    while low < high:
        middle = (low + high + 1) // 2
        if len(_grouped(slices, middle)) >= lowest:
            low = middle
        else:
            high = middle - 1
    count = len(_grouped(slices, low))
    # ... and the smallest one that gives just as many.
    return _grouped(slices, _smallest_limit(slices, volume_bytes, lambda found: found <= count))


def _smallest_limit(slices: Sequence[Slice], volume_bytes: int, fits: Callable[[int], bool]) -> int:
    """The smallest limit whose number of groups ``fits``; the larger the limit, the fewer groups there are."""
    low, high = _search_interval(slices, volume_bytes)
    while low < high:
        middle = (low + high) // 2
        if fits(len(_grouped(slices, middle))):
            high = middle
        else:
            low = middle + 1
    return low


def _search_interval(slices: Sequence[Slice], volume_bytes: int) -> tuple[int, int]:
    sizes = [sum(part.size_bytes for part in parts) for parts in slices]
    return min(volume_bytes, *sizes), sum(sizes)

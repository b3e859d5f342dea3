"""Which subpartitions of a result each task of its consumer reads: as many, or with as much data, as any other.

A result has as many subpartitions as its consumer may have tasks at most; rows with the same key are in the same one.

Even amounts of data are production Flink's way (since 1.17, 2.x). A task reads subpartitions that follow each other,
whole: a subpartition that is much larger than the others is found here and divided by Spark (Flink cuts
it along the producer's partitions, which needs bytes per partition of the producer; Spark's adaptive execution has
those, and knows which side of a join may be cut).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

from app.model.batch import Skew


def by_count(subpartitions: int, tasks: int) -> tuple[tuple[int, ...], ...]:
    """Contiguous ranges that differ by one at most: task k reads [k*S div N, (k+1)*S div N - 1] (FLIP-187).

    Raises:
        ValueError: there are more tasks than subpartitions.
    """
    if not 1 <= tasks <= subpartitions:
        raise ValueError(f"{subpartitions} subpartitions cannot be read by {tasks} tasks")
    bounds = [task * subpartitions // tasks for task in range(tasks + 1)]
    return tuple(tuple(range(first, end)) for first, end in pairwise(bounds))


def by_remainder(subpartitions: int, tasks: int) -> tuple[tuple[int, ...], ...]:
    """Task k reads the subpartitions that are k modulo the number of tasks.

    It is FLIP-187's range under another numbering: with subpartitions by hash modulo S, and N a divisor of S, these
    are the rows by hash modulo N, which is what Spark takes for the buckets of a table of N buckets.

    Raises:
        ValueError: the number of tasks does not divide that of subpartitions.
    """
    if tasks < 1 or subpartitions % tasks:
        raise ValueError(f"{tasks} tasks do not divide {subpartitions} subpartitions")
    return tuple(tuple(range(task, subpartitions, tasks)) for task in range(tasks))


# ---- even amounts of data


def skewed(bytes_of: Sequence[int], skew: Skew) -> tuple[int, ...]:
    """The subpartitions that are much larger than the others, as Flink's adaptive batch scheduler judges it."""
    limit = max(max(1.0, median(bytes_of)) * skew.factor, float(skew.threshold_bytes))
    return tuple(index for index, size in enumerate(bytes_of) if size > limit)


def even_ranges(
    bytes_of: Sequence[int], volume_bytes: int, lowest: int, highest: int
) -> tuple[tuple[int, ...], ...] | None:
    """Subpartitions for each task: about ``volume_bytes`` for each, and between ``lowest`` and ``highest`` tasks.

    ``bytes_of`` has for each subpartition the bytes of all inputs whose keys belong together (one input alone, or the
    sides of a join). None if there are too few subpartitions for so many tasks.
    """
    if len(bytes_of) < lowest:
        return None
    groups = _grouped(bytes_of, volume_bytes)
    if len(groups) < lowest:
        groups = _most_even(bytes_of, volume_bytes, lowest)
    elif len(groups) > highest:
        groups = _grouped(bytes_of, _smallest_limit(bytes_of, volume_bytes, lambda count: count <= highest))
    if not lowest <= len(groups) <= highest:
        return by_count(len(bytes_of), min(len(bytes_of), highest))
    return tuple(map(tuple, groups))


def _grouped(bytes_of: Sequence[int], limit: int) -> list[list[int]]:
    """Subpartitions, each group filled until the next one would make it larger than ``limit`` bytes."""
    groups: list[list[int]] = []
    held = 0
    for index, size in enumerate(bytes_of):
        if groups and held + size <= limit:
            groups[-1].append(index)
            held += size
        else:
            groups.append([index])
            held = size
    return groups


def _most_even(bytes_of: Sequence[int], volume_bytes: int, lowest: int) -> list[list[int]]:
    """At least ``lowest`` groups, as few of them as that allows, and those as even as can be."""
    low, high = _search_interval(bytes_of, volume_bytes)
    # The largest limit that gives enough groups ...
    while low < high:
        middle = (low + high + 1) // 2
        if len(_grouped(bytes_of, middle)) >= lowest:
            low = middle
        else:
            high = middle - 1
    count = len(_grouped(bytes_of, low))
    # ... and the smallest one that gives just as many.
    return _grouped(bytes_of, _smallest_limit(bytes_of, volume_bytes, lambda found: found <= count))


def _smallest_limit(bytes_of: Sequence[int], volume_bytes: int, fits: Callable[[int], bool]) -> int:
    """The smallest limit whose number of groups ``fits``; the larger the limit, the fewer groups there are."""
    low, high = _search_interval(bytes_of, volume_bytes)
    while low < high:
        middle = (low + high) // 2
        if fits(len(_grouped(bytes_of, middle))):
            high = middle
        else:
            low = middle + 1
    return low


def _search_interval(bytes_of: Sequence[int], volume_bytes: int) -> tuple[int, int]:
    return min(volume_bytes, *bytes_of), sum(bytes_of)

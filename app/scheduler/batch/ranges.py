"""Which subpartitions of a result each task of its consumer reads.

A result has as many subpartitions as its consumer may have tasks at most; rows with the same key are in the same one.
"""

from __future__ import annotations

from itertools import pairwise


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

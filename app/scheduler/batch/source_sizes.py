"""Limits that are computed from the sizes of files: the most tasks of a source, and the subpartitions of
results.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

from app.model.analysis import upstream
from app.model.jobgraph import JobGraph
from app.scheduler.batch.flip187 import power_of_two_from, power_of_two_to

LARGEST_SPLIT_BYTES: Final = 128 * 1024 * 1024
"""A source gets more tasks than there are slots for it only where they would read more than this each."""

GROWTH: Final = 8
"""Results are expected to be at most this many times as large as their source files."""


def source_limit(size_bytes: int | None, held_slots: int) -> int | None:
    """The most tasks that are of use to a source; None if its size is not known.

    A task that waits for its turn makes nothing faster, and each makes a file for each subpartition that it writes.
    """
    if size_bytes is None:
        return None
    return max(1, held_slots, ceil(size_bytes / LARGEST_SPLIT_BYTES))


def bytes_before(graph: JobGraph, vertex_id: str, source_bytes: Mapping[str, int]) -> int | None:
    """The bytes of all sources that ``vertex_id`` depends on; None if one of them is not known."""
    sources = [found for found in upstream(vertex_id, graph.by_id) if graph.by_id[found].is_source]
    if any(source not in source_bytes for source in sources):
        return None
    return sum(source_bytes[source] for source in sources)


def subpartitions_for(
    lower: int, upper: int, *, known_bytes: int | None = None, volume_bytes: int = 1
) -> int:
    """Into how many parts a result is written for a reader of these bounds: a power of two if one lies between them.

    Every power of two below it divides it, so each task reads equally many. Where ``known_bytes`` of all that the
    reader depends on are known, not many more parts than they could ask for.
    """
    if known_bytes is not None:
        wanted = power_of_two_from(max(1, ceil(known_bytes * GROWTH / volume_bytes)))
        upper = max(lower, min(upper, wanted))
    power = power_of_two_to(upper)
    return power if power >= lower else upper

"""The positions of the lines of a log, by their numbers. Each request reads the log once, which takes 50 ms for
the longest log that is kept (64 MiB).
"""

from __future__ import annotations

from dataclasses import dataclass

from app.cluster.driverlogs import OpenLog

_CHUNK_BYTES = 1 << 20
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FoundLines:
    """Lines from number ``first`` on, counted from 0, are between the places ``begin`` and ``end``. ``lines``: how many
    there are in all. ``is_cut``: there is no room for all that were asked for."""

    begin: int
    end: int
    first: int
    lines: int
    is_cut: bool


def find_lines(
    opened: OpenLog, bounds: tuple[int, int], first: int | None, most: int, *, behind: int, is_over: bool
) -> FoundLines:
    """Up to ``most`` lines between ``bounds``: from number ``first`` on, or the last ones if ``behind`` others come
    behind those of the log. At most 1 MiB.

    ``is_over``: nothing more is written, so what has no end is a line too.
    """
    begin, end = bounds
    counts = [
        (at, opened.read(at, min(at + _CHUNK_BYTES, end)).count(b"\n"))
        for at in range(begin, end, _CHUNK_BYTES)
    ]
    lines = sum(count for _, count in counts)
    if is_over and begin < end and opened.read(end - 1, end) != b"\n":
        lines += 1
    if first is None:
        first = max(0, lines + behind - most)
    start = _begin_of(first, opened, counts, bounds)
    stop = _begin_of(first + most, opened, counts, bounds)
    end = min(stop, start + MOST_BYTES)
    return FoundLines(start, end, first, lines, is_cut=end < stop)


def _begin_of(number: int, opened: OpenLog, counts: list[tuple[int, int]], bounds: tuple[int, int]) -> int:
    """The place where a line begins; the end if the log has fewer lines."""
    if number == 0:
        return bounds[0]
    for at, count in counts:
        if number <= count:
            chunk = opened.read(at, at + _CHUNK_BYTES)
            place = -1
            for _ in range(number):
                place = chunk.find(b"\n", place + 1)
            return at + place + 1
        number -= count
    return bounds[1]

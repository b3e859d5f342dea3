"""What waits at sources of files: Spark tells nobody how many of them it has not read, so we look ourselves.

How many records they have is estimated: as many for each byte as the files of the batches before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from app.driver.progress import SourceTold

_REST: Final = 20
"""A look at directories may take long: for so many times as long there is no other. Until then what batches have read
is taken off what the last one has found."""
_FADES: Final = 0.9
"""With each batch the rows and bytes of earlier batches are multiplied by this factor."""


class Waiting(NamedTuple):
    """``read_bytes``: of the files of the batch; None if some are not known."""

    files: int
    size_bytes: int
    read_bytes: int | None


Find = Callable[[int, int, int, bool], Waiting | None]
"""What waits at a source. The arguments: the place of the source in the query; the number of the source's log before
the batch; that of the batch; whether to list the directories. None: it cannot be found."""


@dataclass(slots=True)
class _Source:
    """``rest_until_s``: without a look; None if nothing is known. ``known_rows``, ``known_bytes``: what was read."""

    after: int
    rest_until_s: float | None = None
    known_rows: float = 0.0
    known_bytes: float = 0.0

    def find(self, find: Find, place: int, end: int, rows: int) -> Waiting | None:
        began_s = time.monotonic()
        look = self.rest_until_s is None or began_s >= self.rest_until_s
        found = find(place, self.after, end, look)
        self.after = end
        if found is None:
            self.rest_until_s = None
            return None
        if look:
            ended_s = time.monotonic()
            self.rest_until_s = ended_s + _REST * (ended_s - began_s)
        if found.read_bytes:
            self.known_rows = _FADES * self.known_rows + rows
            self.known_bytes = _FADES * self.known_bytes + found.read_bytes
        return found

    def rows_in(self, waiting: Waiting) -> int | None:
        if waiting.files == 0:
            return 0
        return round(waiting.size_bytes * self.known_rows / self.known_bytes) if self.known_bytes else None


class FileBacklog:
    """The backlog of the file sources of one run of a query. For the thread of its attempt."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._sources: dict[int, _Source] = {}

    def told(self, sources: tuple[SourceTold, ...]) -> tuple[SourceTold, ...]:
        """``sources`` of a batch in the order of Spark's plan, with what waits in files."""
        return tuple(self._with_files(place, each) for place, each in enumerate(sources))

    def _with_files(self, place: int, told: SourceTold) -> SourceTold:
        if told.log is None:
            return told
        before, end = told.log
        source = self._sources.setdefault(place, _Source(before))
        waiting = source.find(self._find, place, end, told.rows)
        if waiting is None:
            return told
        return replace(
            told, waiting=source.rows_in(waiting), files=waiting.files, size_bytes=waiting.size_bytes
        )

"""What was rendered, kept while it is true.

A closed record of a rescale never changes, so it is rendered once, and so is what the list of all jobs says of one that
has ended. A whole answer about the history of a job stays true as long as the job's timeline is the same value: every
record is written in the transaction that makes a new one. Only pruning by age is not, which is why an answer is kept
for a second at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from app.scheduler.adaptive.state import Timeline

_MAX_ANSWERS_BYTES = 32 * 1024 * 1024
_LIFE_S = 1.0


class Rendered:
    """At most ``most`` texts, the least lately used ones dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, tuple[object, bytes]] = {}

    def get(self, key: str, stamp: object, render: Callable[[], bytes]) -> bytes:
        """The text under ``key``; what ``render`` gives if there is none with this ``stamp``."""
        kept = self._kept.pop(key, None)
        if kept is None or (kept[0] is not stamp and kept[0] != stamp):
            kept = (stamp, render())
            if len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
        self._kept[key] = kept
        return kept[1]


@dataclass(frozen=True, slots=True)
class _Answer:
    timeline: Timeline
    until: float
    response: Response


class AnswerCache:
    """At most `_MAX_ANSWERS_BYTES` of answers, the oldest ones dropped first."""

    def __init__(self) -> None:
        self._kept: dict[str, _Answer] = {}
        self._size_bytes = 0

    def find(self, key: str, timeline: Timeline) -> Response | None:
        """The answer under ``key`` if it still holds for ``timeline``."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.timeline is timeline and time.monotonic() < kept.until:
            return kept.response
        self._drop(key)
        return None

    def keep(self, key: str, timeline: Timeline, response: Response) -> Response:
        """Keep an answer. ``timeline`` is that of before the records were read: they may be newer, never older."""
        if key in self._kept:
            self._drop(key)
        size_bytes = len(response.body)
        while self._kept and self._size_bytes + size_bytes > _MAX_ANSWERS_BYTES:
            self._drop(next(iter(self._kept)))
        self._kept[key] = _Answer(timeline, time.monotonic() + _LIFE_S, response)
        self._size_bytes += size_bytes
        return response

    def _drop(self, key: str) -> None:
        self._size_bytes -= len(self._kept.pop(key).response.body)

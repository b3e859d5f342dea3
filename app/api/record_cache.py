"""What was rendered, kept while it is true.

A closed record of a rescale never changes, so it is rendered once, and so is what the list of all jobs says of one that
has ended. A whole answer about the history of a job stays true as long as the job's timeline is the same value: every
record is written in the transaction that makes a new one. Only pruning by age is not, which is why an answer is kept
for a second at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cachetools import LRUCache, TTLCache
from starlette.responses import Response

from app.scheduler.adaptive.state import Timeline

_MAX_ANSWERS_BYTES = 32 * 1024 * 1024
_LIFE_S = 1.0


class Rendered:
    """At most ``most`` texts, the least lately used ones dropped first."""

    def __init__(self, most: int) -> None:
        self._kept: LRUCache[str, tuple[object, bytes]] = LRUCache(most)

    def get(self, key: str, stamp: object, render: Callable[[], bytes]) -> bytes:
        """The text under ``key``; what ``render`` gives if there is none with this ``stamp``."""
        kept = self._kept.get(key)
        if kept is None or (kept[0] is not stamp and kept[0] != stamp):
            kept = self._kept[key] = (stamp, render())
        return kept[1]


class AnswerCache:
    """At most `_MAX_ANSWERS_BYTES` of answers, the least lately used ones dropped first."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._kept: TTLCache[str, tuple[Timeline, Response]] = TTLCache(
            _MAX_ANSWERS_BYTES, _LIFE_S, now_s, getsizeof=lambda kept: len(kept[1].body)
        )

    def find(self, key: str, timeline: Timeline) -> Response | None:
        """The answer under ``key`` if it still holds for ``timeline``."""
        kept = self._kept.get(key)
        return kept[1] if kept is not None and kept[0] is timeline else None

    def keep(self, key: str, timeline: Timeline, response: Response) -> Response:
        """Keep an answer, if it is not too long. ``timeline`` is that of before the records were read: they may be
        newer, never older."""
        if len(response.body) <= _MAX_ANSWERS_BYTES:
            self._kept[key] = (timeline, response)
        return response

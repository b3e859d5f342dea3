"""The clock that measures the age of rows and files.

A server whose clock is wrong by months would remove the whole history within seconds, and it could not be
restored. Removing something too late does no harm. So this clock follows the wall clock by at most one day for
each hour of a running server, measured by a monotonic clock, and is never later than the wall clock. Its
position is in the database, so restarts do not advance it. After a long time without a server it is behind, and
catches up.
"""

from __future__ import annotations

from typing import Final

import structlog

from app.store.store import Store
from app.worker.clock import Clock

log = structlog.get_logger()

AT_MOST_TIMES: Final = 24
_HOUR_MS: Final = 60 * 60 * 1000


class AgeClock:
    """Several servers may share a database: the mark is that of the one that has come furthest."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reached: tuple[int, int] | None = None
        self._written_ms = 0

    async def now_ms(self) -> int:
        """Epoch milliseconds, as far as they can be trusted.

        Raises:
            StoreError: it cannot be read how far it has come, or be written.
        """
        wall_ms, steady_ms = self._clock.wall_ms(), self._clock.steady_ms()
        if self._reached is None:
            stored = await self._store.age_clock()
            # A database without a mark is a new one: there is nothing in it that could be removed too early.
            reached_ms = wall_ms if stored is None else stored
            self._written_ms = -1 if stored is None else stored
            _tell(wall_ms - reached_ms)
        else:
            before_ms, then_ms = self._reached
            reached_ms = max(before_ms, min(wall_ms, before_ms + AT_MOST_TIMES * (steady_ms - then_ms)))
        if reached_ms >= self._written_ms + _HOUR_MS:
            await self._store.advance_age_clock(reached_ms)
            self._written_ms = reached_ms
        self._reached = (reached_ms, steady_ms)
        return min(reached_ms, wall_ms)


def _tell(behind_ms: int) -> None:
    if behind_ms > AT_MOST_TIMES * _HOUR_MS:
        log.warning(
            "no server has run for long, or the clock is wrong: what is old is removed later",
            days_behind=round(behind_ms / (24 * _HOUR_MS), 1),
            hours_to_catch_up=round(behind_ms / (AT_MOST_TIMES * _HOUR_MS), 1),
        )

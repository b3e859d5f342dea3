"""The time by which the ages of rows and files are told: the wall clock, once it is plausible.

A server whose clock is months ahead would remove the whole history within seconds, and it could not be restored;
removing something too late does no harm. So the database has the last time that was trusted. A wall clock that is at
most a day ahead of it is trusted. One that is further ahead has jumped, or no server has run for long: ages stay as
they were until one server has run for a day in which its wall clock was not set and no other server told a lesser
time. A start begins that day anew, so restarts do not help a wrong clock.
"""

from __future__ import annotations

from typing import Final

import structlog

from app.store.store import Store
from app.worker.clock import Clock

log = structlog.get_logger()

_HOUR_MS: Final = 60 * 60 * 1000
_DAY_MS: Final = 24 * _HOUR_MS


class AgeClock:
    """Several servers may share a database: the mark is the latest time that one of them has trusted."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # Since when, by the steady clock, nothing has contradicted the wall clock; how far it is ahead of the steady
        # clock; and the mark.
        self._since_ms, self._ahead_ms, self._mark_ms = 0, 0, -1

    async def trusted_ms(self) -> int:
        """Epoch milliseconds, as far as they can be trusted; never later than the wall clock.

        Raises:
            StoreError: the mark cannot be read or written.
        """
        wall_ms, steady_ms = self._clock.wall_ms(), self._clock.steady_ms()
        # A database without a mark is a new one: there is nothing in it that could be removed too early.
        stored_ms = await self._store.age_clock()
        mark_ms = wall_ms if stored_ms is None else stored_ms
        if mark_ms != self._mark_ms or abs(wall_ms - steady_ms - self._ahead_ms) > _HOUR_MS:
            self._since_ms, self._ahead_ms, self._mark_ms = steady_ms, wall_ms - steady_ms, mark_ms
        if wall_ms > mark_ms + _DAY_MS and steady_ms - self._since_ms < _DAY_MS:
            if self._since_ms == steady_ms:
                log.warning(
                    "the clock was set, or no server has run for long: nothing is removed for its age for a day",
                    days_ahead=round((wall_ms - mark_ms) / _DAY_MS, 1),
                )
            return mark_ms
        if stored_ms is None or wall_ms >= mark_ms + _HOUR_MS:
            await self._store.advance_age_clock(wall_ms)
            self._mark_ms = wall_ms
        return wall_ms

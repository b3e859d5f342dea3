"""Periodic activities: a defect in one turn must neither end the activity nor go unnoticed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

log = structlog.get_logger()

_LONGEST_PAUSE_S = 30.0


class Periodic:
    """Activities that are repeated while the server runs. ``troubles``: a sentence on each that fails by a defect."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]] | None = None) -> None:
        self._sleep = sleep or asyncio.sleep
        self._troubles: dict[str, str] = {}

    @property
    def troubles(self) -> list[str]:
        return list(self._troubles.values())

    async def run(self, activity: str, once: Callable[[], Awaitable[None]], *, every_s: float) -> NoReturn:
        """Repeat ``once`` until cancelled; after each defect the pause grows."""
        pause_s = every_s
        while True:
            try:
                await once()
            except Exception:
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
                log.exception(
                    "a periodic activity failed because of a defect", activity=activity, again_in_s=pause_s
                )
                self._troubles[activity] = (
                    f"The server meets a defect of its own when it {activity}: its log says which. It tries again."
                )
            else:
                pause_s = every_s
                if self._troubles.pop(activity, None) is not None:
                    log.info("a periodic activity works again", activity=activity)
            await self._sleep(pause_s)

"""Wakes the tasks that wait for a change of a job: its orders, its slots, its end in this process."""

from __future__ import annotations

import asyncio


class Bell:
    """Wakes the tasks that wait for a change of the job."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def ring(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, timeout_ms: int) -> bool:
        """Whether it rang within ``timeout_ms``."""
        try:
            async with asyncio.timeout(max(0, timeout_ms) / 1000):
                return await self._next.wait()
        except TimeoutError:
            return False

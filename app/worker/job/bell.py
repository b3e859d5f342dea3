"""Wakes the tasks that wait for a change of a job: its orders, its slots, its end in this process."""

from __future__ import annotations

import asyncio


class Bell:
    """Wakes the tasks that wait for a change of the job."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def ring(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def wait(self, timeout_ms: int) -> bool:
        """Whether it rang within ``timeout_ms``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await asyncio.wait_for(future, max(0, timeout_ms) / 1000)
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(future, None)
        return True

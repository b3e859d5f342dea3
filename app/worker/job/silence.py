"""A driver that is silent for too long is ended: one that was suspended, is frozen or hangs neither ends nor reports.

A driver asks its JVM something and then the server for its orders, again as soon as it is answered, whatever its job
does. Its silence counts only while this server runs and can be called. So looks are counted, not seconds: a look that
comes late does not count, because this process was stopped or busy; nor does one, in the second half of the time, after
which this server does not answer at the address that the driver calls. A silent driver is not taken for dead: it is
killed, and its job goes on once nothing of it lives.
"""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_LOOKS = 10


@dataclass(frozen=True, slots=True)
class Silence:
    """``limit_s``: how long a driver may be silent."""

    limit_s: float
    # One driver at a time: threads are few, and a server that does not answer is waited for.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def longest_wait_ms(self) -> int:
        """How long a driver may be kept waiting for orders, so that one that lives is heard in time."""
        return int(500 * self.limit_s)

    async def reached(self, calls: Callable[[], int | None], address_file: Path) -> str:
        """Returns when a driver has been silent for too long, with a sentence. ``calls``: how often it has called;
        None: it cannot be expected to call."""
        loop, every_s = asyncio.get_running_loop(), self.limit_s / _LOOKS
        known, looks = calls(), 0
        while looks < _LOOKS:
            begun_s = loop.time()
            await asyncio.sleep(every_s)
            is_reachable = looks < _LOOKS // 2
            if not is_reachable:
                async with self._turn:
                    is_reachable = await asyncio.to_thread(_answers, address_file, every_s)
            is_late = loop.time() - begun_s > 2 * every_s
            before, known = known, calls()
            counts = is_reachable and not is_late and known is not None and known == before
            looks = looks + 1 if counts else 0
        return (
            f"The driver did not ask for its orders for {self.limit_s:g} s (driver_standstill_seconds), while the "
            "server could be called: it was suspended, or it hung. It was ended."
        )


def _answers(address_file: Path, timeout_s: float) -> bool:
    """Whether a server answers at the address in the file from which drivers have it. Blocks."""
    try:
        place = urlsplit(address_file.read_text(encoding="utf-8").split()[0])
        with closing(
            http.client.HTTPConnection(place.hostname or "", place.port, timeout=timeout_s)
        ) as asked:
            asked.request("GET", "/health/live")
            return asked.getresponse().status == http.HTTPStatus.OK
    except (OSError, ValueError, IndexError, http.client.HTTPException):
        return False

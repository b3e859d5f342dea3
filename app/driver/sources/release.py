"""The replay rate: how much of what exists a source may show by now. Pure: the time is passed in."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReleaseClock:
    """Rows and files are released at a steady rate from ``anchor_ms`` on, when ``row`` rows and ``file`` files were.

    The clock is kept in the checkpoint and goes on while a job is down, as the world does: after a restart the
    source has a backlog. It stands still (``idle``) while there is nothing left to release, so a file that comes
    later is not released at once for the time that nothing happened.
    """

    anchor_ms: int
    row: int = 0
    file: int = 0
    idle: bool = False

    def rows_released(self, rows_per_second: float, now_ms: int) -> int:
        """The number of rows, of all from the first on, that may be read at ``now_ms``."""
        return self.row + math.floor(rows_per_second * self._elapsed_s(now_ms))

    def files_released(self, files_per_second: float, now_ms: int) -> int:
        """As `rows_released`; the first file is released at once."""
        return self.file + 1 + math.floor(files_per_second * self._elapsed_s(now_ms))

    def _elapsed_s(self, now_ms: int) -> float:
        # A clock that was set back must not take back what was released: nothing is released until it catches up.
        return 0.0 if self.idle else max(0, now_ms - self.anchor_ms) / 1000

"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere.

A display is told each ``step`` that begins, in a ``note`` what came of it, and with a ``tick`` how the job is now.
"""

from __future__ import annotations

import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from app.cli.output import format_number
from app.cli.watch import Look, plain_line, render

LINE_INTERVAL_S = 5.0


def _elapsed(start: float) -> str:
    return f"[{time.monotonic() - start:6.1f} s]"


class PlainDisplay:
    """Lines with the seconds since the start; the state of the job every few seconds."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._stream = sys.stderr if to_stderr else sys.stdout
        self._start = time.monotonic()
        self._last_tick = 0.0
        self._last_line = ""

    def step(self, text: str) -> None:
        self._print(f"{_elapsed(self._start)} {text}")

    def note(self, text: str) -> None:
        self._print(f"{'':11}{text}")

    def tick(self, look: Look, rows_done: int, rows_total: int) -> None:
        # A change of state or parallelism is told at once, progress every few seconds.
        line = plain_line(look, with_rates=False)
        now = time.monotonic()
        if line == self._last_line and now - self._last_tick < LINE_INTERVAL_S:
            return
        self._last_line, self._last_tick = line, now
        done = f"{format_number(rows_done)} of {format_number(rows_total)} rows"
        self.note(f"{plain_line(look)}  {done}")

    def close(self) -> None:
        """Nothing to end."""

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class LiveDisplay:
    """Steps scroll by above a table that is drawn anew."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._live = Live(console=Console(), auto_refresh=False, transient=True)
        self._live.start()

    def step(self, text: str) -> None:
        self._live.console.print(Text.assemble((_elapsed(self._start), "dim"), " ", (text, "bold")))

    def note(self, text: str) -> None:
        self._live.console.print(Text(f"{'':11}{text}"))

    def tick(self, look: Look, rows_done: int, rows_total: int) -> None:
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=rows_total, completed=rows_done, width=50),
            f"{format_number(rows_done)} of {format_number(rows_total)} rows",
        )
        self._live.update(Group(Text(""), render(look), Text(""), bar), refresh=True)

    def close(self) -> None:
        self._live.stop()


Display = PlainDisplay | LiveDisplay

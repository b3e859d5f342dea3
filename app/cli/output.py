"""Output of answers: rich tables on a terminal, aligned plain lines otherwise, JSON on request."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

STATUS_STYLES = {
    "RUNNING": "green",
    "FINISHED": "blue",
    "COMPLETED": "green",
    "FAILED": "red",
    "IGNORED": "yellow",
    "FAILING": "red",
    "RESTARTING": "yellow",
    "CANCELED": "magenta",
    "CANCELLING": "magenta",
    "CREATED": "yellow",
    "INITIALIZING": "yellow",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def printable(text: str) -> str:
    """Foreign text without the control characters by which it could command a terminal."""
    return _CONTROL.sub("?", text)


def say(line: str = "") -> None:
    """One line of plain text on stdout."""
    print(printable(line), flush=True)


def say_wrapped(sentence: str) -> None:
    """A sentence, on a terminal in lines that fit and are indented after the first; elsewhere in one line."""
    if not is_terminal():
        say(sentence)
        return
    width = max(40, shutil.get_terminal_size().columns)
    for line in textwrap.wrap(sentence, width, subsequent_indent="  ", break_on_hyphens=False) or [""]:
        say(line)


def warn(line: str) -> None:
    """One line on stderr: progress and remarks that are not the answer."""
    print(printable(line), file=sys.stderr, flush=True)


def until_interrupted() -> contextlib.suppress:
    """For a command that goes on until Ctrl-C, which is no failure of it."""
    return contextlib.suppress(KeyboardInterrupt)


def print_json(value: Any, *, compact: bool = False) -> None:
    print(json.dumps(value, indent=None if compact else 2, ensure_ascii=False), flush=True)


Columns = Mapping[str, Callable[[Any], object]]
"""Header -> the cell of a record. A header behind > is aligned to the right; what is under one behind ~ may be broken
into lines on a terminal. A cell of None is shown as `-`."""


class Table:
    """``records`` as lines of cells under ``columns``."""

    def __init__(self, columns: Columns, records: Iterable[Any]) -> None:
        self._marks = [header[0] if header[0] in ">~" else "" for header in columns]
        headers = [header.removeprefix(mark) for header, mark in zip(columns, self._marks, strict=True)]
        self.rows = [[_text(cell(each)) for cell in columns.values()] for each in records]
        self._lines = [headers, *self.rows]
        self._widths = [max(map(len, column)) for column in zip(*self._lines, strict=True)]

    def show(self) -> None:
        """Print it: on a terminal with colours, if it fits."""
        lines = self.plain()
        # What may be broken needs some room. Where even that is lacking the terminal breaks the lines, and nothing is
        # cut.
        foldable = sum(
            max(0, width - 8) for width, mark in zip(self._widths, self._marks, strict=True) if mark == "~"
        )
        if is_terminal() and max(map(len, lines)) - foldable <= shutil.get_terminal_size().columns:
            Console().print(self.rich())
            return
        for line in lines:
            say(line)

    def plain(self) -> list[str]:
        """Lines with columns padded to their widest cell, two spaces apart, nothing cut."""
        return [
            "  ".join(
                cell.rjust(width) if mark == ">" else cell.ljust(width)
                for cell, width, mark in zip(cells, self._widths, self._marks, strict=True)
            ).rstrip()
            for cells in self._lines
        ]

    def rich(self) -> RichTable:
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for header, mark in zip(self._lines[0], self._marks, strict=True):
            table.add_column(
                header,
                justify="right" if mark == ">" else "left",
                overflow="fold",
                no_wrap="~" in self._marks and mark != "~",
            )
        for row in self.rows:
            table.add_row(*map(styled, row))
        return table


def show_table(columns: Columns, records: Iterable[Any]) -> None:
    Table(columns, records).show()


def time_column(word: str, field: str, records: Sequence[Mapping[str, Any]]) -> Columns:
    """The column of the times in ``field``, in milliseconds since 1970; the header has their zone: `when (CET)`."""
    zones = {
        time.localtime(at / 1000).tm_zone for each in records if (at := each[field]) is not None and at > 0
    }
    # Around a change of the clocks there are two.
    zone = zones.pop() if len(zones) == 1 else "local time"
    return {f"{word} ({zone})": lambda each: format_time(each[field])}


def _text(cell: object) -> str:
    return "-" if cell is None else str(cell)


def styled(cell: str) -> str:
    """A cell as rich markup: statuses in their colour, everything else as it is."""
    style = STATUS_STYLES.get(cell)
    return f"[{style}]{cell}[/{style}]" if style else escape(printable(cell))


def format_time(epoch_ms: int | None) -> str:
    """Local time to the second; `-` for none (Flink writes -1 or 0 for 'not yet')."""
    if epoch_ms is None or epoch_ms <= 0:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_ms / 1000))


def format_moment(epoch_ms: int | None) -> str:
    """Local time with the name of its zone, `-` for none."""
    if epoch_ms is None or epoch_ms <= 0:
        return "-"
    return f"{format_time(epoch_ms)} {time.localtime(epoch_ms / 1000).tm_zone}"


def say_changed(declared: dict[str, Any]) -> None:
    """When what was declared was changed last, by whom and why; nothing of what never was."""
    if declared["version"] > 1:
        by = f" by {declared['requestedBy']}" if declared["requestedBy"] else ""
        why = f": {declared['reason']}" if declared["reason"] else ""
        say_wrapped(f"changed {format_moment(declared['changedTimestampInMillis'])}{by}{why}")


def or_dash(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def format_ms(duration_ms: float | None) -> str:
    """`350 ms`, `1.2 s`, `2 min 3 s`, `5 h 1 min`; `-` for none."""
    if duration_ms is None or duration_ms < 0:
        return "-"
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def format_rest(rest_ms: int | None) -> str:
    """How long something may still take; `-` if that is not known, or nothing is left to do."""
    return format_ms(rest_ms or None)


def format_bytes(size_bytes: int | None) -> str:
    """`512 B`, `1.5 MB`, by powers of 1000; `-` for none."""
    if size_bytes is None:
        return "-"
    size, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.0f} {units[0]}" if size >= 10 or units[0] == "B" else f"{size:.1f} {units[0]}"


def format_percent(percent: int | None) -> str:
    """`30 %`, `-` for none."""
    return "-" if percent is None else f"{percent} %"


def format_number(value: float | None) -> str:
    """Thousands separated by commas, fractions only below ten; `-` for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10 or float(value).is_integer() else f"{value:.1f}"

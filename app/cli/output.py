"""Output of answers: rich tables on a terminal, aligned plain lines otherwise, JSON on request."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

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


def show_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    wrap: Sequence[str] = (),
) -> None:
    """Print a table; ``right`` names the columns that are aligned to the right, ``wrap`` those that may be
    broken into lines on a terminal.
    """
    lines = plain_table(headers, rows, right=right)
    # What may be broken needs some room. Where even that is lacking the terminal breaks the lines, and nothing is cut.
    foldable = sum(max(0, len_of_widest(headers, rows, header) - 8) for header in wrap)
    if is_terminal() and max(len(line) for line in lines) - foldable <= shutil.get_terminal_size().columns:
        Console().print(rich_table(headers, rows, right=right, wrap=wrap))
        return
    for line in lines:
        say(line)


def len_of_widest(headers: Sequence[str], rows: Sequence[Sequence[str]], header: str) -> int:
    column = headers.index(header)
    return max(len(line[column]) for line in (headers, *rows))


def rich_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    wrap: Sequence[str] = (),
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for header in headers:
        table.add_column(
            header,
            justify="right" if header in right else "left",
            overflow="fold",
            no_wrap=bool(wrap) and header not in wrap,
        )
    for row in rows:
        table.add_row(*(styled(cell) for cell in row))
    return table


def styled(cell: str) -> str:
    """A cell as rich markup: statuses in their colour, everything else as it is."""
    style = STATUS_STYLES.get(cell)
    return f"[{style}]{cell}[/{style}]" if style else escape(printable(cell))


def plain_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
) -> list[str]:
    """Lines with columns padded to their widest cell, two spaces apart, nothing cut."""
    widths = [max(len(line[i]) for line in [headers, *rows]) for i in range(len(headers))]

    def format_line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, cells, widths, strict=True)
        )
        return "  ".join(padded).rstrip()

    return [format_line(headers), *(format_line(row) for row in rows)]


def format_time(epoch_ms: int | None) -> str:
    """Local time to the second; empty for none (Flink writes -1 or 0 for 'not yet')."""
    if epoch_ms is None or epoch_ms <= 0:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_ms / 1000))


def format_moment(epoch_ms: int | None) -> str:
    """Local time with the name of its zone, `-` for none."""
    if epoch_ms is None or epoch_ms <= 0:
        return "-"
    return f"{format_time(epoch_ms)} {time.localtime(epoch_ms / 1000).tm_zone}"


def when_header(word: str, epochs_ms: Iterable[int | None]) -> str:
    """The header of a column of times, with their zone: `when (CET)`."""
    zones = {time.localtime(at / 1000).tm_zone for at in epochs_ms if at is not None and at > 0}
    # Around a change of the clocks there are two.
    return f"{word} ({zones.pop()})" if len(zones) == 1 else f"{word} (local time)"


def say_changed(declared: dict[str, Any]) -> None:
    """When what was declared was changed last, by whom and why; nothing of what never was."""
    if declared["version"] > 1:
        by = f" by {declared['requestedBy']}" if declared["requestedBy"] else ""
        why = f": {declared['reason']}" if declared["reason"] else ""
        say_wrapped(f"changed {format_moment(declared['changedTimestampInMillis'])}{by}{why}")


def or_dash(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def format_ms(duration_ms: float | None) -> str:
    """`350 ms`, `1.2 s`, `2 min 3 s`, `5 h 1 min`."""
    if duration_ms is None or duration_ms < 0:
        return ""
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


def format_bytes(size_bytes: int | None) -> str:
    """`512 B`, `1.5 MB`: powers of 1000."""
    if size_bytes is None:
        return ""
    size, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.0f} {units[0]}" if size >= 10 or units[0] == "B" else f"{size:.1f} {units[0]}"


def format_percent(percent: int | None) -> str:
    """`30 %`, empty for none."""
    return "" if percent is None else f"{percent} %"


def format_number(value: float | None) -> str:
    """Thousands separated by commas, fractions only below ten."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 10 or float(value).is_integer() else f"{value:.1f}"

"""When this process started, in the words of psutil, with which control planes find it again."""

from __future__ import annotations

import os
from pathlib import Path

_START_TICKS = 19
"""Of the fields of /proc/self/stat behind the name of the program, which may have blanks in it."""


def started_at() -> float:
    """Epoch seconds, from the boot of the host and the clock ticks since then (see proc(5))."""
    booted = next(
        line.split()[1] for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")
    )
    behind_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return float(booted) + int(behind_name[_START_TICKS]) / os.sysconf("SC_CLK_TCK")

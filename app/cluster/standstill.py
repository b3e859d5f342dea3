"""Finds drivers that live and do not run: stopped by a signal, frozen, or stuck in the kernel.

Nothing tells of that: such a process neither ends nor answers. A driver that has a job always has something to do: its
Python process looks several times a second at who owns the job, unless it waits for its JVM, which then works.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil

_LOOKS = 10


@dataclass(frozen=True, slots=True)
class _Process:
    """``used_ns``: the processor time that its threads have used, in nanoseconds."""

    name: str
    used_ns: int
    is_stopped: bool


async def standstill(pid: int, after_s: float) -> str:
    """Returns once the driver whose main process is ``pid`` has stood still for ``after_s`` seconds: a sentence that
    says so. Empty if the driver has ended.

    Looks are counted, and no time is measured: this process may have been stopped itself.
    """
    before: list[_Process] = []
    looks = 0
    while True:
        await asyncio.sleep(after_s / _LOOKS)
        found = await asyncio.to_thread(_processes, pid)
        if not found:
            return ""
        stopped = [each.name for each in found if each.is_stopped]
        # Not every kernel tells the processor time.
        is_idle = found == before and any(each.used_ns for each in found)
        looks = looks + 1 if stopped or is_idle else 0
        before = found
        if looks >= _LOOKS:
            how = f"its {stopped[0]} was stopped by a signal" if stopped else "it used no processor time"
            return (
                f"The driver process {pid} stood still: for {after_s:g} s (driver_standstill_seconds) {how}. "
                "It was ended."
            )


def _processes(pid: int) -> list[_Process]:
    """Those that a driver cannot do without; none if it has ended."""
    found: list[_Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        main = psutil.Process(pid)
        if main.status() != psutil.STATUS_ZOMBIE:
            found.append(_look("Python process", main))
            for child in main.children():
                # The program may have started it, and it may have ended since.
                with contextlib.suppress(psutil.NoSuchProcess):
                    if child.name() == "java":
                        found.append(_look("JVM", child))
    return found


def _look(name: str, process: psutil.Process) -> _Process:
    used_ns = 0
    for figures in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        # A thread may end while its figures are read.
        with contextlib.suppress(OSError):
            used_ns += int(figures.read_text().split()[0])
    return _Process(name, used_ns, process.status() == psutil.STATUS_STOPPED)

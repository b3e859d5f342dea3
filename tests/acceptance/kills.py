"""Points at which a process under test is killed: armed by the test, reached by the process itself.

A test arms one point at a time, by its name in a file; the processes look there at every point that they pass. The
file is taken away by the one that fires, so a point kills once, whatever runs at the same time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

DIRECTORY = "ACCEPTANCE_KILLS"
DRIVER_PID = "ACCEPTANCE_DRIVER_PID"

_passed: dict[str, int] = {}


class Kills:
    """The test's side."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def arm(self, point: str, hit: int = 1) -> None:
        """Kill at the ``hit``-th time that a process passes ``point`` from now on."""
        for left in self.directory.iterdir():
            left.unlink()
        temporary = self.directory / "armed.tmp"
        temporary.write_text(f"{point} {hit}", encoding="ascii")
        temporary.rename(self.directory / "armed")

    def disarm(self) -> None:
        (self.directory / "armed").unlink(missing_ok=True)

    def fired(self, point: str) -> bool:
        return (self.directory / f"fired-{point}").exists()

    def held(self, point: str) -> bool:
        return (self.directory / f"held-{point}").exists()


def is_armed(point: str) -> bool:
    return _armed()[0] == point


def reached(point: str, pid: int | None = None) -> None:
    """Kill -9 ``pid``, by default this process, if ``point`` is armed and this is the hit."""
    name, hit = _armed()
    if name != point:
        return
    _passed[point] = _passed.get(point, 0) + 1
    if _passed[point] < hit:
        return
    directory = Path(os.environ[DIRECTORY])
    try:
        (directory / "armed").rename(directory / f"fired-{point}")
    except FileNotFoundError:
        return
    _passed.clear()
    os.kill(os.getpid() if pid is None else pid, signal.SIGKILL)


def reached_in_driver(point: str) -> None:
    """`reached`, in whichever process of a driver this is: it is the driver that is killed."""
    reached(point, int(os.environ[DRIVER_PID]))


async def hold(point: str) -> None:
    """Go no further while ``point`` is armed; the test sees that it was reached, and kills."""
    while is_armed(point):
        (Path(os.environ[DIRECTORY]) / f"held-{point}").touch()
        await asyncio.sleep(0.01)


def _armed() -> tuple[str, int]:
    try:
        name, hit = (Path(os.environ[DIRECTORY]) / "armed").read_text(encoding="ascii").split()
    except (KeyError, FileNotFoundError, ValueError):
        return "", 0
    return name, int(hit)

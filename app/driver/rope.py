"""The rope on which a driver hangs until it has a job: its standard input, which the server holds the other end of.

Each line is the path of an assignment. The end of it, before any line, ends the process at once, whatever it does:
imports, the start of its JVM, a warm-up. Lines and end come through one pipe, in their order, so there is no moment at
which a driver that was given a job would end with its server.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable
from pathlib import Path


class Rope:
    """Followed from now on, by a thread. ``let_go``: what is done at the end of a process that has no job."""

    def __init__(self) -> None:
        self.let_go: Callable[[], object] = _end_all
        self._assignments: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._has_job = False
        threading.Thread(target=self._follow, name="rope", daemon=True).start()

    def next(self) -> Path | None:
        """The next assignment, when it is there; None if there will be none."""
        return self._assignments.get()

    def pull(self) -> None:
        """Whoever waits for an assignment is to get none."""
        self._assignments.put(None)

    def _follow(self) -> None:
        # Without a buffer: this thread would hold its lock while the interpreter shuts down.
        with contextlib.suppress(OSError), open(0, "rb", buffering=0, closefd=False) as lines:
            for line in lines:
                if line.strip():
                    self._has_job = True
                    self._assignments.put(Path(line.decode().strip()))
        if not self._has_job:
            self.let_go()
        self._assignments.put(None)


def _end_all() -> None:
    """End this process, and what it has started, if that is its own group."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)

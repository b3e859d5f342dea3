"""Processes that have the processor only while nobody else wants it, until they are like others again.

Two means, of which one is always without effect. Processes of one control group (all those of a container) compete by
their scheduling class. Where there is no such group, sessions compete, by their autogroup (see sched(7)).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

_LAST = 19
_BUSY_S = 0.02


def can_be_undone() -> bool:
    """Whether the kernel lets this process take the scheduling class back: that takes CAP_SYS_NICE, or an RLIMIT_NICE
    of 20 (systemd's LimitNICE=+0)."""
    done: list[bool] = []

    def attempt() -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            done.append(True)

    if os.sched_getscheduler(0) == os.SCHED_OTHER:
        # The class is that of a thread, which may have to keep it.
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    return bool(done)


def step_back(leader: int, *, undoable: bool) -> None:
    """Let the process, which leads a session and has only just been started, wait for everybody else, with all that it
    starts. ``undoable``: as `can_be_undone` says."""
    with contextlib.suppress(OSError):
        if undoable:
            os.sched_setscheduler(leader, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        _autogroup(leader).write_text(str(_LAST))


def step_forward(leader: int) -> None:
    """Make every process of the session that ``leader`` leads like others again. It takes moments."""
    while True:
        try:
            _autogroup(leader).write_text("0")
        except BlockingIOError:
            # The kernel changes ten in a second.
            time.sleep(_BUSY_S)
        except OSError:
            break
        else:
            break
    # Until there is none: those that are seen start others.
    while any([_is_brought_forward(thread) for thread in _threads(leader)]):
        pass


def _autogroup(pid: int) -> Path:
    return Path(f"/proc/{pid}/autogroup")


def _threads(leader: int) -> Iterator[int]:
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                yield from map(int, os.listdir(f"/proc/{pid}/task"))


def _is_brought_forward(thread: int) -> bool:
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(thread) == os.SCHED_IDLE:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
            return True
    return False

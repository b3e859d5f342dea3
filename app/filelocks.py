"""Locks of files (flock), which the kernel drops when the last process that holds the descriptor is gone.

One contract for the driver, which holds its lock, and for the control plane, which asks whether it is held. The
standard library only: both import this, and nothing else of each other.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(path: str | Path, *, wait: bool = False) -> int | None:
    """Lock ``path``, made if need be (mode 0600), and return the descriptor: closing it lets go.

    None if somebody else holds it, and ``wait`` is false. Children inherit the descriptor, and with it the lock, only
    where it is named to them (``pass_fds``).

    Raises:
        OSError: the file cannot be opened or locked.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_held(path: str | Path) -> bool:
    """Whether some process holds ``path``. A file that does not exist is not held.

    Raises:
        OSError: it cannot be told (no permission, too many open files). Whoever asks must take it to be held.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared: two who ask at the same time do not take each other for a holder.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False

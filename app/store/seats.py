"""Seats: the numbers of the servers that share a data directory.

A seat is a lock of the kernel, so the death of a server is known at once and with certainty: its seat is free,
or has another name in it. A suspended server keeps its seat; leases protect against it. Servers that share a
data directory run on one host, so each of them can check the seats.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from app import filelocks
from app.store.datadir import HeldLock
from app.store.errors import StoreUnavailable
from app.store.members import Member

_MOST_SEATS = 1000


class Seat(HeldLock):
    """The lowest free seat of ``data_dir``."""

    def __init__(self, data_dir: Path, number: int, lock_fd: int) -> None:
        super().__init__(lock_fd)
        self.number = number
        self._data_dir = data_dir

    @classmethod
    def take(cls, data_dir: Path) -> Seat:
        """
        Raises:
            StoreUnavailable: the directory cannot be written.
        """
        try:
            for number in range(1, _MOST_SEATS + 1):
                lock_fd = filelocks.lock(_lock_file(data_dir, number))
                if lock_fd is not None:
                    os.ftruncate(lock_fd, 0)
                    return cls(data_dir, number, lock_fd)
        except OSError as error:
            raise StoreUnavailable(
                f"The data directory {data_dir} cannot be used: {error.strerror}."
            ) from error
        raise StoreUnavailable(f"The data directory {data_dir} has {_MOST_SEATS} servers already.")

    @property
    def run_dir(self) -> Path:
        """Where the drivers of this server have their locks and logs. The first one's is that of a server alone."""
        return self._data_dir / ("run" if self.number == 1 else f"run-{self.number}")

    def name(self, member_id: str) -> None:
        """Record the holder of the seat. The previous holder is dead."""
        assert self._lock_fd is not None
        os.pwrite(self._lock_fd, member_id.encode(), 0)


def is_dead(data_dir: Path, member: Member, place: str) -> bool:
    """Whether the process of ``member`` has certainly ended. False where that cannot be told."""
    if member.place != place:
        return False
    file = _lock_file(data_dir, member.seat)
    try:
        sitting = file.read_bytes()
        # Empty: the seat was taken a moment ago, by one that is about to say who it is.
        return not filelocks.is_held(file) or (bool(sitting) and sitting.decode() != member.member_id)
    except (OSError, ValueError):
        return False


def this_place() -> str:
    """This boot of this kernel, and this process namespace: a process with another one sees other processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _lock_file(data_dir: Path, number: int) -> Path:
    return data_dir / f"seat-{number}.lock"

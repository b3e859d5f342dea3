"""The doorbell with which servers that share a data directory wake each other.

It is a datagram without content, to a socket in the directory: every process that may write to the directory
may ring. It only saves waiting: a server that is woken reads the database, which it does twice a second anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger()


class Bells(Protocol):
    """The bells of those at other seats, and one's own."""

    def listen(self, rung: Callable[[], None]) -> None:
        """Call ``rung`` at each ring, on the event loop."""
        ...

    def ring(self, seats: Iterable[int]) -> None:
        """Ring at these seats; harmless at an empty seat."""
        ...

    def close(self) -> None: ...


class NoBells:
    """A doorbell without other servers."""

    def listen(self, rung: Callable[[], None]) -> None:
        pass

    def ring(self, seats: Iterable[int]) -> None:
        pass

    def close(self) -> None:
        pass


class Doorbells:
    """Of the server at ``seat`` of ``data_dir``. Without such sockets it never rings."""

    def __init__(self, data_dir: Path, seat: int) -> None:
        self._seat = seat
        self._directory: int | None = None
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._directory = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def listen(self, rung: Callable[[], None]) -> None:
        if self._directory is None:
            return
        bell: socket.socket | None = None
        try:
            bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            # The seat is ours, and so is what is left of who had it before.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_name(self._seat), dir_fd=self._directory)
            bell.bind(self._path(self._seat))
        except OSError as error:
            if bell is not None:
                bell.close()
            log.warning("no doorbell; slots take half a second longer", error=str(error))
            return
        self._socket = bell
        asyncio.get_running_loop().add_reader(bell.fileno(), self._rung, rung)

    def _rung(self, rung: Callable[[], None]) -> None:
        assert self._socket is not None
        with contextlib.suppress(OSError):
            while True:
                self._socket.recv(16)
        rung()

    def ring(self, seats: Iterable[int]) -> None:
        bell = self._socket
        for seat in seats if bell is not None else ():
            assert bell is not None
            # Nobody is there, or has read what was sent before: both is well.
            with contextlib.suppress(OSError):
                bell.sendto(b"", self._path(seat))

    def close(self) -> None:
        bell, self._socket = self._socket, None
        if bell is not None:
            asyncio.get_running_loop().remove_reader(bell.fileno())
            bell.close()
        directory, self._directory = self._directory, None
        if directory is not None:
            with contextlib.suppress(OSError):
                os.unlink(_name(self._seat), dir_fd=directory)
            os.close(directory)

    def _path(self, seat: int) -> str:
        # Of bounded length, however long the directory's own name is: sockets have 108 characters.
        return f"/proc/self/fd/{self._directory}/{_name(seat)}"


def _name(seat: int) -> str:
    return f"seat-{seat}.bell"

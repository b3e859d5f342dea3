"""Where the owner of the job is, and calls that wait for one who is not the owner any more.

A control plane that is stopped holds the connections to it open and answers none. When another one takes the job over
it writes its address into the file: then the driver lets go of the old connections instead of waiting for timeouts.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_LOOK_EVERY_S = 0.5


class OwnerAddress:
    """The address in ``file``. `watch` until ``closed`` is set; `note` is told of connections (httpx's trace)."""

    def __init__(self, file: str, closed: threading.Event) -> None:
        self._file = Path(file)
        self._closed = closed
        self._sockets: list[socket.socket] = []
        self._guard = threading.Lock()

    def read(self) -> str:
        """
        Raises:
            OSError: the file cannot be read.
        """
        # What follows the address is for those who write it.
        return next(iter(self._file.read_text(encoding="utf-8").split()), "")

    def note(self, event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            opened = info["return_value"].get_extra_info("socket")
            with self._guard:
                self._sockets = [one for one in self._sockets if one.fileno() >= 0]
                self._sockets.append(opened)

    def watch(self) -> None:
        known = ""
        while not self._closed.wait(_LOOK_EVERY_S):
            with contextlib.suppress(OSError, ValueError):
                address = self.read()
                if address != known:
                    self._let_go(urlsplit(address).port)
                    known = address

    def _let_go(self, but_port: int | None) -> None:
        """Of all connections but those to the new address: whoever waits for an answer there tries again."""
        with self._guard:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    if one.getpeername()[1] != but_port:
                        one.shutdown(socket.SHUT_RDWR)

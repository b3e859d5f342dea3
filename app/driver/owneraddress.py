"""Where the owner of the job is, and what it is asked.

With the standard library only: a driver runs in environments of jobs, which have PySpark and nothing of ours.

A control plane that is stopped holds the connections to it open and answers none. When another one takes the job over
it writes its address into the file: then the driver lets go of the old connections instead of waiting for timeouts.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

_LOOK_EVERY_S = 0.5
_CONNECT_TIMEOUT_S = 5.0


class OwnerAddress:
    """The address in ``file``, and the sockets to what it was. `watch` until ``closed`` is set."""

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

    def call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        """The status and the body of the answer of whoever is the owner now.

        Raises:
            OSError, http.client.HTTPException, ValueError: there was none.
        """
        address = self.read()
        place = urlsplit(address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_CONNECT_TIMEOUT_S)
        with contextlib.closing(connection):
            connection.connect()
            connection.sock.settimeout(timeout_s)
            self._note(connection.sock)
            if self.read() != address:
                # Nobody would let go of this one.
                raise ConnectionAbortedError("The job has another owner.")
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()

    def _note(self, opened: socket.socket) -> None:
        with self._guard:
            self._sockets = [one for one in self._sockets if one.fileno() >= 0]
            self._sockets.append(opened)
            if self._closed.is_set():
                raise ConnectionAbortedError("The client of the control plane is closed.")

    def watch(self) -> None:
        known = ""
        while not self._closed.wait(_LOOK_EVERY_S):
            with contextlib.suppress(OSError, ValueError):
                address = self.read()
                if address != known:
                    self.let_go(urlsplit(address).port)
                    known = address

    def let_go(self, but_port: int | None = None) -> None:
        """Of all connections but those to the new address: whoever waits for an answer there tries again."""
        with self._guard:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    if one.getpeername()[1] != but_port:
                        one.shutdown(socket.SHUT_RDWR)

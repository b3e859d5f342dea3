"""Where the owner of the job is, and the connections to it.

With the standard library only: a driver runs in environments of jobs, which have PySpark and nothing of ours.

A control plane that is stopped holds the connections to it open and answers none. When another one takes the job over
it writes its address into the file: then the driver lets go of the old connections instead of waiting for timeouts.
"""

from __future__ import annotations

import contextlib
import http.client
import select
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

    def note(self, opened: socket.socket) -> None:
        """
        Raises:
            ConnectionAbortedError: nothing is to be said any more.
        """
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


class OwnerConnection:
    """Calls of one thread, over a connection that stays open for the next call."""

    def __init__(self, address: OwnerAddress) -> None:
        self._address = address
        self._open: http.client.HTTPConnection | None = None
        self._open_to = ""

    def call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        """The status and the body of the answer of whoever is the owner now.

        Raises:
            OSError, http.client.HTTPException, ValueError: there was none.
        """
        connection = self._connection(self._address.read())
        try:
            connection.sock.settimeout(timeout_s)
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            answer = response.status, response.read()
        except BaseException:
            self.close()
            raise
        if response.will_close:
            self.close()
        return answer

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _connection(self, address: str) -> http.client.HTTPConnection:
        if self._open is not None and (self._open_to != address or _has_ended(self._open.sock)):
            self.close()
        if self._open is None:
            place = urlsplit(address)
            opened = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_CONNECT_TIMEOUT_S)
            opened.connect()
            try:
                self._address.note(opened.sock)
            except ConnectionAbortedError:
                opened.close()
                raise
            self._open, self._open_to = opened, address
        return self._open


def _has_ended(idle: socket.socket) -> bool:
    """Whether the other end has closed a connection on which no answer is due: then there is something to read."""
    readable = select.poll()
    readable.register(idle, select.POLLIN)
    return bool(readable.poll(0))

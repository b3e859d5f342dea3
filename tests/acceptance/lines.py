"""A server on loopback that tells lines to whoever connects: what `nc -lk` is in Spark's own examples."""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from contextlib import suppress

WORDS = ["apple", "brook", "cloud", "dune", "ember", "fjord", "grove", "heath", "inlet"]


def line(number: int) -> str:
    dice = random.Random(number)
    return " ".join(dice.choices(WORDS, k=5))


def words(lines: int) -> Counter[str]:
    """How often each word is in the first ``lines`` of them."""
    return Counter(word for number in range(lines) for word in line(number).split())


class LineServer:
    """Each connection hears all lines, from the first one; there are ``told`` so far."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.connections = 0
        self.told = 0
        self._more = threading.Condition()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def tell(self, lines: int) -> None:
        with self._more:
            self.told += lines
            self._more.notify_all()

    def close(self) -> None:
        with self._more:
            self._closed = True
            self._more.notify_all()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        sent = 0
        with connection, suppress(OSError):
            while (upto := self._more_than(sent)) > sent:
                connection.sendall("".join(f"{line(n)}\n" for n in range(sent, upto)).encode())
                sent = upto

    def _more_than(self, sent: int) -> int:
        """How many lines are told, once there are more than ``sent``; no more at the end."""
        with self._more:
            self._more.wait_for(lambda: self._closed or self.told > sent)
            return sent if self._closed else self.told

"""A load generator for `control_plane.py`, in a process of its own: keep-alive clients on raw sockets.

    echo '{"port": 8081, "clients": 8, "seconds": 2, "requests": [["GET /jobs/overview"]]}' | python _http_load.py -

Each client has one connection and sends its next request when the answer to the last one is complete. The plan is JSON
on standard input, the figures are JSON on standard output. ``requests`` are texts ``METHOD PATH [BODY]``, a list per
client, which each client goes through again and again, or once with ``once``. ``content_type`` is that of the bodies,
JSON if it is not there. A full HTTP client would be the bottleneck: it needs more time for a request than the server
does.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)


@dataclass
class Figures:
    """What was answered after the warm-up: how long it took and with which status."""

    warm_at: float
    ends_at: float
    took_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    all_statuses: Counter[int] = field(default_factory=Counter)

    def note(self, sent: float, status: int) -> None:
        now = time.perf_counter()
        self.all_statuses[status] += 1
        if self.warm_at <= sent and now <= self.ends_at:
            self.took_ms.append((now - sent) * 1000)
            self.statuses[status] += 1


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, requests: list[bytes], figures: Figures, once: bool) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._figures = figures
        self._once = once
        self._next = 0
        self._sent = 0.0
        self._answer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("The server closed the connection."))

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head = self._answer.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(self._answer, 0, head)
        if length is None:
            raise ValueError(f"an answer without a length: {self._answer[:head]!r}")
        if len(self._answer) < head + 4 + int(length[1]):
            return
        self._figures.note(self._sent, int(self._answer[9:12]))
        self._answer = b""
        is_over = (
            self._next >= len(self._requests) if self._once else time.perf_counter() > self._figures.ends_at
        )
        if is_over:
            self.done.set_result(None)
            self._transport.close()
        else:
            self._send()

    def _send(self) -> None:
        request = self._requests[self._next % len(self._requests)]
        self._next += 1
        self._sent = time.perf_counter()
        self._transport.write(request)


def encoded(text: str, port: int, content_type: str) -> bytes:
    """``METHOD PATH [BODY]`` as it goes over the wire."""
    method, path, *body = text.split(" ", 2)
    content = body[0].encode() if body else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    if content:
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


async def load(plan: dict[str, Any]) -> dict[str, Any]:
    port, once = plan["port"], plan.get("once", False)
    content_type = plan.get("content_type", "application/json")
    requests = [[encoded(text, port, content_type) for text in one] for one in plan["requests"]]
    started = time.perf_counter()
    warm_at = started + plan.get("warm_up_s", 0.0)
    figures = Figures(warm_at, float("inf") if once else warm_at + plan["seconds"])
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(plan["clients"]):
        mine = requests[number % len(requests)]
        _, client = await loop.create_connection(
            lambda mine=mine: Client(mine, figures, once), "127.0.0.1", port
        )
        clients.append(client)
    await asyncio.gather(*(client.done for client in clients))
    seconds = time.perf_counter() - started if once else plan["seconds"]
    took = sorted(figures.took_ms)
    return {
        "seconds": seconds,
        "answers": len(took),
        "p50_ms": took[len(took) // 2] if took else None,
        "p99_ms": took[min(len(took) - 1, len(took) * 99 // 100)] if took else None,
        "max_ms": took[-1] if took else None,
        "statuses": {str(status): count for status, count in figures.statuses.items()},
        "all_statuses": {str(status): count for status, count in figures.all_statuses.items()},
        "own_cpu_s": time.process_time(),
    }


def run(plan: dict[str, Any]) -> dict[str, Any]:
    """The figures of ``plan``, carried out by a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "-"], input=json.dumps(plan), capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load generator failed: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> int:
    if sys.argv[1:] != ["-"]:
        print("The load generator of control_plane.py: nothing to measure by itself.")
        return 0
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(load(json.load(sys.stdin)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A world behind a real HTTP server on a loopback socket, for what an in-process transport cannot show."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from app.api.server import Server
from tests.contract.world import World

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
PATIENCE_S = 8.0
"""Of a client while another one does its worst: both, and the server, have the one thread of the test, on a machine
that may be slow and busy. Without the limits that are tested it was 12 s and more on a fast one."""
AT_ONCE_S = 1.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.asynccontextmanager
async def listening(world: World, *, connections_max: int = 100) -> AsyncIterator[int]:
    """The port that the world's application is served on, as `slotwise serve` serves it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    server = Server(world.app, connections_max=connections_max)
    task = asyncio.create_task(server._serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
        listener.close()


async def exchange(port: int, request: bytes) -> Answer:
    """Send raw bytes, all of them before anything is read, and read one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(20):
            return await read_answer(reader, is_head=request.startswith(b"HEAD "))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answered_meanwhile(port: int, attack: asyncio.Task[Answer]) -> Answer:
    """The answer of ``attack``, while another client is answered too: soon, and not only once the attack is over."""
    longest_s, attack_s = 0.0, time.monotonic()
    while not attack.done():
        begun_s = time.monotonic()
        assert (await exchange(port, LIVE)).status == 200
        longest_s = max(longest_s, time.monotonic() - begun_s)
    attack_s = time.monotonic() - attack_s
    assert longest_s < PATIENCE_S
    assert longest_s < max(AT_ONCE_S, 0.9 * attack_s), "it had to wait until the attack was over"
    return await attack


async def read_answer(reader: asyncio.StreamReader, *, is_head: bool = False) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    if is_head or "content-length" not in headers:
        body = b""
    else:
        body = await reader.readexactly(int(headers["content-length"]))
    return Answer(int(head[0].split(" ")[1]), headers, body)

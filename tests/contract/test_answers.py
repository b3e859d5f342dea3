"""How answers go out to their clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.api.connections import Connection
from tests.contract.live import LIVE, exchange, listening
from tests.contract.world import World


async def test_an_answer_is_one_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    class Recorder:
        def __init__(self, transport: asyncio.Transport) -> None:
            self._transport = transport

        def __getattr__(self, name: str) -> Any:
            return getattr(self._transport, name)

        def write(self, data: bytes) -> None:
            written.append(data)
            self._transport.write(data)

    made = Connection.connection_made
    monkeypatch.setattr(
        Connection, "connection_made", lambda self, transport: made(self, Recorder(transport))
    )
    async with listening(world) as port:
        for method in (b"GET", b"HEAD"):
            request = LIVE.replace(b"GET", method, 1)
            answer = await exchange(port, request)
            assert answer.status == 200
            (whole,) = written
            assert whole.endswith(b"\r\n\r\n" + answer.body)
            written.clear()


async def test_an_answer_that_waits_for_its_turn_is_sent_before_a_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing follows the head of an answer to HEAD. What comes in the turn in which it waits is no HTTP."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    made: list[Connection] = []
    completed = Connection.on_response_complete

    def complete(connection: Connection) -> None:
        completed(connection)
        if not made:
            made.append(connection)
            connection.data_received(b"BLA\r\n\r\n")

    monkeypatch.setattr(Connection, "on_response_complete", complete)
    async with listening(world) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LIVE.replace(b"GET", b"HEAD", 1))
        statuses = [
            line.split()[1] for line in (await reader.read()).split(b"\r\n") if line.startswith(b"HTTP/1.1")
        ]
        writer.close()
        await writer.wait_closed()
    assert (statuses, told) == ([b"200", b"400"], [])

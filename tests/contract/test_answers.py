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

"""A client of a stream of events, which reads it as `EventSource` does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.contract.world import PATIENCE_S


@dataclass
class Sent:
    """One block of a stream. An empty one moves the id on."""

    id: str | None = None
    type: str = ""
    data: Any = None


@dataclass
class Client:
    """Reads a stream as `EventSource` does, and keeps all that came."""

    response: httpx.Response
    got: list[Sent] = field(default_factory=list)
    last_id: str | None = None
    _blocks: AsyncIterator[Sent] | None = None

    @property
    def events(self) -> list[dict[str, Any]]:
        """Those with a number."""
        return [one.data for one in self.got if one.data is not None and "id" in one.data]

    async def next(self) -> Sent:
        if self._blocks is None:
            self._blocks = self._read()
        async with asyncio.timeout(PATIENCE_S):
            block = await anext(self._blocks)
        self.got.append(block)
        self.last_id = block.id if block.id is not None else self.last_id
        return block

    async def until(self, there: Callable[[Sequence[dict[str, Any]]], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not there(self.events):
                await self.next()

    async def rest(self) -> list[dict[str, Any]]:
        with contextlib.suppress(StopAsyncIteration):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    await self.next()
        return self.events

    async def _lines(self) -> AsyncIterator[str]:
        """Not httpx's, which also end at U+2028."""
        rest = ""
        async for text in self.response.aiter_text():
            *whole, rest = (rest + text).split("\n")
            for line in whole:
                yield line

    async def _read(self) -> AsyncIterator[Sent]:
        block, is_empty = Sent(), True
        async for line in self._lines():
            if not line:
                if not is_empty:
                    yield block
                block, is_empty = Sent(), True
                continue
            name, _, value = line.partition(": ")
            if name == "id":
                block.id, is_empty = value, False
            elif name == "event":
                block.type, is_empty = value, False
            elif name == "data":
                block.data, is_empty = json.loads(value), False


@contextlib.asynccontextmanager
async def following(port: int, path: str, **headers: str) -> AsyncIterator[Client]:
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as http,
        http.stream("GET", path, headers=headers) as response,
    ):
        assert response.status_code == 200, (await response.aread()).decode()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        yield Client(response)

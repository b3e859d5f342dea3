"""By one header clients know that an answer is a Slotwise server's."""

from __future__ import annotations

import asyncio
import socket

import pytest

from app.api.mark import API_VERSION, MARK
from app.main import _Server
from tests.contract.live import exchange
from tests.contract.world import World


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET /jobs/overview HTTP/1.1", 200), ("GET /nothing HTTP/1.1", 404), ("PUT /jobs HTTP/1.1", 405)],
)
async def test_every_answer_has_it(world: World, request_line: str, status: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = _Server(world.app, world.control_plane)
        serving = asyncio.create_task(server._serve(sockets=[listener]))
        port = listener.getsockname()[1]
        answer = await exchange(port, f"{request_line}\r\nHost: localhost:{port}\r\n\r\n".encode())
        server.should_exit = server.force_exit = True
        await serving
    assert (answer.status, answer.headers[MARK.lower()]) == (status, API_VERSION)

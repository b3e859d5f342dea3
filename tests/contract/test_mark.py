"""By one header clients know that an answer is a Slotwise server's."""

from __future__ import annotations

import httpx
import pytest

from app.api.forwarding import _sent_back
from app.api.mark import API_VERSION, MARK
from tests.contract.live import exchange, listening
from tests.contract.world import World


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /jobs/overview HTTP/1.1", 200),
        ("GET /nothing HTTP/1.1", 404),
        ("PUT /jobs HTTP/1.1", 405),
        ("no request", 400),
    ],
)
async def test_every_answer_has_it(world: World, request_line: str, status: int) -> None:
    async with listening(world) as port:
        answer = await exchange(port, f"{request_line}\r\nHost: localhost:{port}\r\n\r\n".encode())
    assert (answer.status, answer.headers[MARK.lower()]) == (status, API_VERSION)


def test_an_answer_of_another_server_does_not_bring_a_second_one() -> None:
    headers = {MARK: API_VERSION, "ETag": '"2"', "Date": "now", "X-Request-Id": "r"}
    sent = _sent_back(httpx.Response(200, headers=headers, content=b"{}"))
    assert sorted(name for name, _ in sent.raw_headers) == [b"content-length", b"content-type", b"etag"]

"""Requests that ask for another protocol, as Java's HttpClient does with the first one of each connection: they are
answered as if they did not ask, wherever their bytes are cut, and the connection goes on."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from app.api import connections
from app.api.connections import HEAD_LIMIT_BYTES, HEADERS_MAX
from tests.contract.live import Answer, exchange, listening, read_answer
from tests.contract.world import World, bounds

GOOD = json.dumps(bounds(flights=(1, 4), delays=(1, 4), store=(1, 1))).encode()
MARKED = b'{"a mark of the body": 1}'
NEXT = b"GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n"
ASKING = {
    "Java": "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\nUpgrade: h2c\r\n",
    "a browser": "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    "TLS": "connection: UPGRADE\r\nUPGRADE: TLS/1.0, HTTP/2.0\r\nupgrade: x\r\n",
}


def request(method: str, path: str, body: bytes, headers: str = "", *, chunked: bool = False) -> bytes:
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{framing}\r\n\r\n".encode()
    if not chunked:
        return head + body
    pieces = [body[start : start + 1000] for start in range(0, len(body), 1000)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


async def answers(port: int, *segments: bytes, count: int = 2) -> list[Answer]:
    """Those on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for segment in segments:
            writer.write(segment)
            await writer.drain()
            await asyncio.sleep(0.001)
        async with asyncio.timeout(20):
            return [await read_answer(reader) for _ in range(count)]
    finally:
        writer.close()


async def everything_with_a_body(world: World) -> list[tuple[str, str, str]]:
    """Method, path and headers of each endpoint that reads a body."""
    job_id = await world.running()
    spec = world.driver().spec
    values = {"jobid": job_id, "vertexid": await world.vertex(job_id, "delays"), "batchid": "1"}
    document = (await world.http.get("/openapi.json")).json()
    known = [
        (method.upper(), path.format(**values), "")
        for path, methods in document["paths"].items()
        for method, about in methods.items()
        if "requestBody" in about
    ]
    assert len(known) > 5
    secret = f"Authorization: Bearer {spec['secret']}\r\nX-Slotwise-Epoch: {spec['epoch']}\r\n"
    return [
        *known,
        *(
            ("POST", f"/internal/v1/jobs/{job_id}/attempts/1/{each}", secret)
            for each in ("reports", "register")
        ),
    ]


@pytest.mark.parametrize("slice_bytes", [1, 7, 16 * 1024])
@pytest.mark.parametrize("asking", ASKING)
async def test_no_body_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, asking: str, slice_bytes: int
) -> None:
    monkeypatch.setattr(connections, "_SLICE_BYTES", slice_bytes)
    async with listening(world) as port:
        for method, path, headers in await everything_with_a_body(world):
            kind = f"{headers}Content-Type: application/json\r\n"
            usual = await exchange(port, request(method, path, MARKED, kind))
            assert usual.status == 400 and b"is empty" not in usual.body, (path, usual)
            for chunked in (False, True):
                asked = request(method, path, MARKED, kind + ASKING[asking], chunked=chunked)
                head, mark, body = asked.partition(b"\r\n\r\n")
                for segments in ([asked + NEXT], [head + mark, body + NEXT], [head + mark, body, NEXT]):
                    first, second = await answers(port, *segments)
                    assert (first.status, first.body) == (usual.status, usual.body), (path, first)
                    assert second.status == 404 and b"/next" in second.body, (path, second)


@pytest.mark.parametrize("chunked", [False, True])
async def test_wherever_it_is_cut(world: World, *, chunked: bool) -> None:
    path = f"/jobs/{await world.running()}/resource-requirements"
    asked = request("PUT", path, GOOD, ASKING["Java"], chunked=chunked)
    async with listening(world) as port:
        for cut in range(1, len(asked)):
            first, second = await answers(port, asked[:cut], asked[cut:] + NEXT)
            assert (first.status, second.status) == (200, 404), (asked[:cut], first)


@pytest.mark.parametrize("chunked", [False, True])
async def test_large_bodies(world: World, *, chunked: bool) -> None:
    path = f"/jobs/{await world.running()}/resource-requirements"
    async with listening(world) as port:
        for size, status in ((40_000, 200), (400_000, 200), (2_000_000, 413)):
            asked = request("PUT", path, GOOD + b" " * size, ASKING["Java"], chunked=chunked)
            first, second = await answers(port, asked + NEXT)
            assert (first.status, second.status) == (status, 404), (size, first)


async def test_a_body_is_never_the_next_request(world: World) -> None:
    """A proxy that passes the upgrade on has looked at the one request that it saw, not at one in its body."""
    job_id = await world.running()
    smuggled = f"PATCH /jobs/{job_id}?mode=cancel HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    async with listening(world) as port:
        for path in (f"/jobs/{job_id}/stop", "/next", "/jobs"):
            asked = request("POST", path, smuggled, ASKING["Java"])
            head = asked.removesuffix(smuggled)
            for segments in ([asked + NEXT], [head, smuggled, NEXT]):
                first, second = await answers(port, *segments)
                assert first.status in (400, 404) and second.status == 404, (path, first)
    assert (await world.get(f"/jobs/{job_id}/status"))["status"] == "RUNNING"


async def test_a_client_may_ask_with_each_of_its_requests(world: World) -> None:
    path = f"/jobs/{await world.running()}/resource-requirements"
    asked = request("PUT", path, GOOD, ASKING["Java"])
    bare = f"GET /health/live HTTP/1.1\r\nHost: localhost\r\n{ASKING['TLS']}\r\n".encode()
    async with listening(world) as port:
        found = await answers(port, (asked + bare) * 200, count=400)
        assert [each.status for each in found] == [200] * 400
        # As many as one segment can have.
        shortest = b"GET / HTTP/1.1\r\nUpgrade:x\r\nConnection:upgrade\r\n\r\n"
        found = await answers(port, shortest * 700, count=700)
        assert all(b"Host" in each.body for each in found)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_may_ask_to_close_the_connection_too(world: World, version: str) -> None:
    asked = request("POST", f"/jobs/{await world.running()}/stop", b'{"drain": 1}', ASKING["a browser"])
    asked = asked.replace(b"HTTP/1.1", f"HTTP/{version}".encode()).replace(b"keep-alive, U", b"close, U")
    async with listening(world) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked)
        async with asyncio.timeout(20):
            answer = await read_answer(reader)
            assert await reader.read() == b""
        writer.close()
    assert answer.status == 400 and b"drain" in answer.body
    assert answer.headers["connection"] == "close"


async def test_a_client_that_waits_to_be_asked_for_the_body_is_asked(world: World) -> None:
    headers = f"Expect: 100-continue\r\n{ASKING['Java']}"
    head = request("POST", "/jobs", MARKED, headers).removesuffix(MARKED)
    async with listening(world) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        async with asyncio.timeout(20):
            assert (await read_answer(reader)).status == 100
            writer.write(MARKED)
            assert b"a mark" in (await read_answer(reader)).body
        writer.close()


async def test_the_limits_of_a_head_hold(world: World) -> None:
    async with listening(world) as port:
        for headers in ("X: 1\r\n" * HEADERS_MAX, f"X: {'a' * HEAD_LIMIT_BYTES}\r\n"):
            assert (
                await exchange(port, request("POST", "/jobs", b"{}", ASKING["Java"] + headers))
            ).status == 431
        # As many as are allowed, in more than one slice.
        headers = ASKING["Java"] + f"X: {'a' * 50_000}\r\n"
        answer = await exchange(port, request("POST", "/jobs", MARKED, headers))
        assert answer.status == 400 and b"a mark" in answer.body


@pytest.mark.parametrize(
    ("sent", "status", "word"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", 505, "HTTP/2"),
        (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 501, "CONNECT"),
        (b"CONNECT /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 501, "CONNECT"),
        (request("CONNECT", "localhost:1", b"{}", ASKING["Java"]), 501, "CONNECT"),
        (
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            501,
            "chunked",
        ),
    ],
)
async def test_what_cannot_be_ignored_is_refused(world: World, sent: bytes, status: int, word: str) -> None:
    async with listening(world) as port:
        for segments in ([sent], [sent[:5], sent[5:]], [bytes([each]) for each in sent]):
            (answer,) = await answers(port, *segments, count=1)
            assert answer.status == status and answer.headers["connection"] == "close"
            assert word in json.loads(answer.body)["errors"][0]


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Client {
    public static void main(String[] arguments) throws Exception {
        String server = arguments[0], job = arguments[1], bounds = arguments[2];
        String[][] asks = {
            {"PUT", "/jobs/" + job + "/resource-requirements", bounds},
            {"POST", "/jobs/" + job + "/stop", "{\\"drain\\": 1}"},
            {"POST", "/jobs", "{\\"a mark of the body\\": \\"" + "x".repeat(40_000) + "\\"}"},
        };
        for (String[] ask : asks) {
            HttpClient client = HttpClient.newHttpClient();
            for (int times = 0; times < 2; times++) {
                HttpRequest request = HttpRequest.newBuilder(URI.create(server + ask[1]))
                    .method(ask[0], HttpRequest.BodyPublishers.ofString(ask[2])).build();
                HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                System.out.println(answer.statusCode() + " " + answer.body());
            }
        }
    }
}
"""


async def test_javas_own_client(world: World, tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        missing = "no JDK is on the PATH"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"{missing}; in CI Java's client must be tested", pytrace=False)
        pytest.skip(f"NOT TESTED WITH JAVA: {missing}")
    source = tmp_path / "Client.java"
    source.write_text(JAVA, encoding="utf-8")
    job_id = await world.running()
    async with listening(world) as port:
        running = await asyncio.create_subprocess_exec(
            java, str(source), f"http://127.0.0.1:{port}", job_id, GOOD.decode(),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(60):
            told = (await running.communicate())[0].decode()
    lines = told.splitlines()
    assert running.returncode == 0, told
    assert [line[:3] for line in lines] == ["200", "200", "400", "400", "400", "400"], told
    assert all("drain" in line for line in lines[2:4]) and all("a mark" in line for line in lines[4:])

"""Connections of hostile and slow clients, over real sockets: bounded in size, time and number, and others go on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from app.api import connections
from app.api.connections import HEAD_LIMIT_BYTES, HEADERS_MAX, Connection
from tests.contract.live import LIVE, Answer, answered_meanwhile, exchange, listening, read_answer
from tests.contract.world import World, bounds, eventually

START = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def refusal(answer: Answer, status: int) -> str:
    assert answer.status == status, answer
    assert answer.headers["connection"] == "close"
    (sentence,) = json.loads(answer.body)["errors"]
    return str(sentence)


@contextlib.asynccontextmanager
async def opened(port: int, count: int, *sent: bytes) -> AsyncIterator[list[Streams]]:
    """So many connections, on which ``sent`` (one after the other) was sent."""
    streams: list[Streams] = []
    texts = itertools.cycle(sent)
    try:
        for _ in range(count):
            streams.append(await asyncio.open_connection("127.0.0.1", port))
            streams[-1][1].write(next(texts))
        yield streams
    finally:
        for _, writer in streams:
            writer.close()


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What came before the server closed the connection."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(20):
            return await reader.read()
    return b""


async def test_a_head_is_bounded_and_holds_nobody_up(world: World) -> None:
    large = b"a" * (64 * 1024 * 1024)
    async with listening(world) as port:
        for head, status in {
            START + b"X: " + large: 431,
            START + large: 431,
            b"GET /" + large: 414,
            large: 400,
            # Folded into one, and into many.
            START + b"".join(b"X%d: %s\r\n" % (n, b"a" * 7000) for n in range(10)) + b"\r\n": 431,
            START + b"".join(b"X%d: 1\r\n" % n for n in range(HEADERS_MAX)) + b"\r\n": 431,
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;" + large: 431,
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
            + large: 431,
            b"\r\n" * (32 * 1024 * 1024): 431,
        }.items():
            refusal(await answered_meanwhile(port, asyncio.create_task(exchange(port, head))), status)
        fits = START + b"X: " + b"a" * (HEAD_LIMIT_BYTES - 200) + b"\r\n\r\n"
        assert (await exchange(port, fits)).status == 200
        many = START + b"".join(b"X%d: 1\r\n" % n for n in range(HEADERS_MAX - 1)) + b"\r\n"
        assert (await exchange(port, many)).status == 200


async def test_what_is_not_http_is_400_with_a_sentence(world: World) -> None:
    chunked = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    async with listening(world) as port:
        for request in (
            b"get /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /jobs HTTP/9.9\r\nHost: localhost\r\n\r\n",
            b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX : 1\r\n\r\n",
            b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
            b"GET /jobs\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
            chunked + b"Content-Length: 2\r\n\r\n0\r\n\r\n",
            chunked + b"\r\n-1\r\n\r\n",
            chunked + b"\r\nfffffffffffffffff\r\n\r\n",
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -2\r\n\r\n{}",
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"0" * 5000 + b"2\r\n\r\n{}",
            b"\x16\x03\x01\x02\x00\x01\x00",
        ):
            assert "not valid HTTP" in refusal(await exchange(port, request), 400), request
        assert (await exchange(port, LIVE)).status == 200


async def test_what_follows_a_body_is_no_header(world: World) -> None:
    job_id = await world.running()
    before = (
        b"POST /jobs/%s/stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n" % job_id.encode()
    )
    after = b"2\r\n{}\r\n0\r\nOrigin: http://evil.example\r\nHost: evil.example\r\nX-Request-Id: r1\r\n\r\n"
    async with listening(world) as port:
        answer = await exchange(port, before + b"\r\n" + after)
    assert answer.status == 202
    assert "x-request-id" not in answer.headers


async def test_a_client_that_waits_to_be_asked_for_the_body_is_asked(world: World) -> None:
    head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    async with listening(world) as port, opened(port, 1, head) as ((reader, writer),), asyncio.timeout(20):
        assert (await read_answer(reader)).status == 100
        writer.write(b"{}")
        assert (await read_answer(reader)).status == 400
        # One that is too large is refused before it is sent.
        writer.write(head.replace(b"Length: 2", b"Length: 99999999"))
        assert (await read_answer(reader)).status == 413


async def test_slow_heads_and_bodies_are_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_S", "BODY_PAUSE_S"):
        monkeypatch.setattr(connections, name, 0.5)
    body = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{"
    half = [b"GET /he", START, START + b"X: ", b"\r\n", body]
    async with listening(world) as port:
        async with opened(port, len(half), *half) as streams:
            for sent, (reader, _) in zip(half, streams, strict=True):
                async with asyncio.timeout(20):
                    assert "arriv" in refusal(await read_answer(reader), 408), sent
        async with opened(port, 1, b"") as ((reader, _),):
            assert await closed(reader) == b""
        async with opened(port, 2, START, body) as streams:
            # A byte now and then does not keep them.
            drips = [asyncio.create_task(_drip(writer)) for _, writer in streams]
            for reader, _ in streams:
                async with asyncio.timeout(20):
                    refusal(await read_answer(reader), 408)
            await asyncio.gather(*drips)
        monkeypatch.setattr(connections, "HEAD_S", 2.0)
        async with opened(port, 1, LIVE) as ((reader, writer),):
            assert (await read_answer(reader)).status == 200
            # Between requests a client may take its time, and longer than this and the second between two looks.
            await asyncio.sleep(3.5)
            writer.write(LIVE)
            assert (await read_answer(reader)).status == 200


async def _drip(writer: asyncio.StreamWriter, piece: bytes = b"x") -> None:
    with contextlib.suppress(ConnectionError):
        for _ in range(30):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.1)


async def long_poll(world: World, wait_ms: int) -> bytes:
    """What a driver asks that has nothing to do."""
    job_id = await world.running()
    spec = world.driver().spec
    path = f"/internal/v1/jobs/{job_id}/attempts/1/orders"
    headers = {"Authorization": f"Bearer {spec['secret']}", "X-Slotwise-Epoch": str(spec["epoch"])}
    orders = (await world.http.get(path, headers=headers)).json()
    head = [f"GET {path}?plan={orders['plan_version']}&wait_ms={wait_ms} HTTP/1.1", "Host: localhost"]
    return "\r\n".join([*head, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


async def test_hoarded_connections_shut_nobody_out(world: World) -> None:
    poll = await long_poll(world, 60_000)
    half_body = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    async with listening(world, connections_max=20) as port:
        poller = asyncio.create_task(exchange(port, poll))
        async with opened(port, 100, b"", b"GET /he", START + b"X: 1", half_body, LIVE) as streams:
            for _ in range(20):
                assert (await exchange(port, LIVE)).status == 200
            # Those that were silent for longest had to go.
            for reader, _ in streams[:60]:
                await closed(reader)
            assert not poller.done()
        (job_id,) = (one["id"] for one in (await world.get("/jobs"))["jobs"])
        assert (
            await world.put(job_id, bounds(flights=(1, 2), delays=(1, 3), store=(1, 1)))
        ).status_code == 200
        assert (await poller).status == 200, "it was asked all the time, and is told of the new plan"


async def test_when_all_connections_are_used_a_newcomer_is_told(world: World) -> None:
    poll = await long_poll(world, 60_000)
    async with listening(world, connections_max=3) as port, opened(port, 3, poll):

        async def full() -> bool:
            answer = await exchange(port, LIVE)
            return answer.status == 503 and "3 connections" in refusal(answer, 503)

        await eventually(full, "a newcomer is told that there is no connection left")


async def test_requests_that_wait_for_answers_are_answered_in_order_and_not_hoarded(world: World) -> None:
    count = 5_000
    async with listening(world) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def send() -> None:
            for _ in range(count // 100):
                writer.write(LIVE * 99 + b"GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await writer.drain()

        async def receive() -> Answer:
            for n in range(1, count + 1):
                answer = await read_answer(reader)
                assert answer.status == (404 if n % 100 == 0 else 200), n
            return answer

        sending = asyncio.create_task(send())
        await answered_meanwhile(port, asyncio.create_task(receive()))
        await sending
        writer.close()


async def test_a_client_that_does_not_read_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_PAUSE_S", 0.5)
    page = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with listening(world) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)

            async def left() -> bool:
                try:
                    client.send(page * 100)
                except BlockingIOError:
                    return False
                except ConnectionError:
                    return True
                return False

            await eventually(left, "the connection is closed")


async def stuffed(port: int, count: int, page: bytes, asks: int) -> list[socket.socket]:
    """So many connections whose clients ask for a page and do not read: the server is left with bytes to send."""
    clients = []
    for _ in range(count):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
        clients.append(client)
    for _ in range(asks):
        for client in clients:
            # One that was closed for the next is no matter here.
            with contextlib.suppress(OSError):
                client.send(page)
        await asyncio.sleep(0.01)
    return clients


def buffering(made: Callable[[Connection, asyncio.Transport], None]) -> Callable[..., None]:
    def connection_made(connection: Connection, transport: asyncio.Transport) -> None:
        made(connection, transport)
        transport.set_write_buffer_limits(high=1024**3)

    return connection_made


@pytest.mark.parametrize("asked", ["", "Connection: close\r\n"])
async def test_clients_that_do_not_read_shut_nobody_out(
    world: World, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Not while their answers are being made, nor when they are to be closed with bytes to send."""
    size_bytes = 16 * 1024 * 1024

    async def app(scope: Any, receive: Any, send: Any) -> None:
        length = size_bytes if scope["path"] == "/large" else 2
        header = (b"content-length", b"%d" % length)
        await send({"type": "http.response.start", "status": 200, "headers": [header]})
        await send({"type": "http.response.body", "body": b"x" * length})

    monkeypatch.setattr(world, "app", app)
    if asked:
        # So that the answer counts as sent at once, as one does that is shorter than the limit.
        monkeypatch.setattr(Connection, "connection_made", buffering(Connection.connection_made))
    page = f"GET /large HTTP/1.1\r\nHost: localhost\r\n{asked}\r\n".encode()
    async with listening(world, connections_max=4) as port:
        clients = await stuffed(port, 4, page, asks=20)
        try:
            for _ in range(8):
                assert (await exchange(port, LIVE)).status == 200
        finally:
            for client in clients:
                client.close()


async def test_clients_that_do_not_read_are_left_while_their_next_answer_is_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ANSWER_PAUSE_S", 0.5)
    begun, ended = 0, 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun, ended
        begun += 1
        try:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8000000")]}
            )
            await send({"type": "http.response.body", "body": b"x" * 8_000_000})
        finally:
            ended += 1

    monkeypatch.setattr(world, "app", app)
    async with listening(world) as port:
        clients = await stuffed(port, 3, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", asks=20)
        try:

            async def left() -> bool:
                return begun > 3 and ended == begun

            await eventually(left, "no answer waits for a client that does not read")
        finally:
            for client in clients:
                client.close()


async def test_a_connection_that_was_answered_before_its_body_ended_does_not_stay_idle(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.5)
    size = 2 * 1024 * 1024
    head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size
    async with listening(world) as port, opened(port, 1, head) as ((reader, writer),):
        async with asyncio.timeout(20):
            assert (await read_answer(reader)).status == 413
        writer.write(b"x" * size)
        async with asyncio.timeout(20):
            assert await reader.read() == b""


async def test_a_request_that_waited_for_the_answer_to_another_is_not_idle(world: World) -> None:
    poll = await long_poll(world, 60_000)
    async with listening(world, connections_max=1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(poll.replace(b"wait_ms=60000", b"wait_ms=1") + poll)
        async with asyncio.timeout(20):
            assert (await read_answer(reader)).status == 200
            # No room is made for others: this one's answer is being made.
            assert (await exchange(port, LIVE)).status == 503
        writer.close()


async def test_a_large_body_that_comes_slowly_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before it would be for 10 kB/s."""
    monkeypatch.setattr(connections, "BODY_PAUSE_S", 1.0)
    monkeypatch.setattr(connections, "BODY_S", 1.0)
    kind = b"Content-Type: multipart/form-data; boundary=b\r\n"
    head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\n" + kind + b"Content-Length: 30000000\r\n\r\n"
    part = b'--b\r\nContent-Disposition: form-data; name="graph"\r\n\r\n'
    async with listening(world) as port, opened(port, 1, head + part) as ((reader, writer),):
        drip = asyncio.create_task(_drip(writer, b"x" * 20_000))
        async with asyncio.timeout(20):
            assert "30000000 bytes a second" in refusal(await read_answer(reader), 408)
        assert not drip.done()
        await drip


async def test_slow_forms_are_in_no_other_requests_way(world: World) -> None:
    job_id = await world.running()
    kind = b"Content-Type: multipart/form-data; boundary=b\r\n"
    form = (
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\n"
        + kind
        + b"Content-Length: %d\r\n\r\n" % (32 * 1024 * 1024)
    )
    body = b'{"configuration": {"a": "%s"}}' % (b"x" * 400_000)
    other = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    report = b'{"reports": []%s}' % (b" " * 400_000)
    spec = world.driver().spec
    to = f"POST /internal/v1/jobs/{job_id}/attempts/1/reports HTTP/1.1\r\nHost: localhost\r\n"
    secret = f"Authorization: Bearer {spec['secret']}\r\nX-Slotwise-Epoch: {spec['epoch']}\r\n"
    call = (to + secret + f"Content-Length: {len(report)}\r\n\r\n").encode() + report
    async with listening(world) as port, opened(port, 3, form + b"--b\r\n"):

        async def no_room() -> bool:
            return (await exchange(port, form)).status == 503

        await eventually(no_room, "three forms of the largest size have all the room that forms have")
        assert (await exchange(port, other)).status == 400
        assert (await exchange(port, call)).status == 200

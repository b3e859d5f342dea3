"""Connections of clients, bounded in size, time and number before anybody knows who calls.

Uvicorn's protocol on httptools has no limit on the head of a request, none on how long one may take to arrive, and one
on the number of connections that refuses whoever comes last, probes and drivers too. So this is that protocol with
limits of its own, looked after once a second by `Server` (`app.api.server`).
"""

from __future__ import annotations

import asyncio
import math
from enum import Enum
from typing import Any, Final, NoReturn

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.api.answers import JSON_TYPE, json_bytes
from app.api.errors import RETRY

HEAD_LIMIT_BYTES: Final = 64 * 1024
"""Of a request line with its headers. What a driver asks about a graph of 200 vertices is below 20 KiB."""
HEADERS_MAX: Final = 100

HEAD_S: Final = 30.0
BODY_PAUSE_S: Final = 30.0
BODY_BYTES_PER_S: Final = 10_000
"""A body that comes more slowly on the average, `BODY_PAUSE_S` aside, is given up."""
BODY_S: Final = 300.0
"""No body may take longer, `BODY_PAUSE_S` aside: the larger it is, the more room it keeps from others meanwhile."""
ANSWER_PAUSE_S: Final = 30.0
IDLE_S: Final = 75.0
_LINGER_S = 5.0

_SLICE_BYTES = 16 * 1024
_HELD_LIMIT_BYTES = 1024 * 1024
_NOT_HTTP = "The request is not valid HTTP/1.1."


class _Phase(Enum):
    """What is read from a connection."""

    IDLE = "the first byte of a request"
    HEAD = "a request line and headers"
    BODY = "a body"
    DONE = "nothing: the answer is being made"
    REFUSED = "what is passed over after a refusal"


class _Stop(Exception):
    """Thrown through the parser when a request is refused."""


class Crowd:
    """The connections of a server, at most ``most``. ``waiting`` are those whose clients keep the server waiting; the
    first of them has done so for longest, and is closed when there is no room for another connection. ``all`` are those
    that have a descriptor, also when they are closing and have bytes to send yet."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.all: set[Connection] = set()
        self.waiting: dict[Connection, None] = {}

    def make_room(self, newcomer: Connection) -> bool:
        """Close the connection that has kept the server waiting for longest; False if there is none."""
        for oldest in self.waiting:
            if oldest is not newcomer:
                oldest.leave()
                return True
        return False

    def look(self, now_s: float) -> None:
        """End the connections that have kept the server waiting for too long."""
        for connection in list(self.all):
            connection.look(now_s)


class _AnswerTransport:
    """What an answer is written to. Uvicorn writes the head of an answer and its body apart: here the head waits for
    what follows it in the turn of the event loop, so that most answers are one system call and wake their client once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: bytes | None = None
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._held = data
            self._loop.call_soon(self.flush)
        else:
            held, self._held = self._held, None
            self._transport.write(held + data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send what waits, now."""
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)


class _Parser(httptools.HttpRequestParser):
    """Ignores that a client asks for another protocol. Httptools would pass over the body of such a request and take it
    for the next one, so another parser reads the request again, as one that does not ask."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        # As uvicorn does.
        self.set_dangerous_leniencies(lenient_data_after_close=True)
        self._connection = connection

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            again = self._connection.head_without_upgrade() + data[upgrade.args[0] :]
            self._connection.parser = _Parser(self._connection)
            self._connection.parser.feed_data(again)


class Connection(HttpToolsProtocol):
    """One connection of one client."""

    def __init__(self, crowd: Crowd, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self.url = b""
        self.parser = _Parser(self)
        self._crowd = crowd
        self._phase = _Phase.IDLE
        self._due_s = math.inf
        self._body_begun_s = 0.0
        self._body_bytes = 0
        self._announced_bytes = 0
        # Since the parser last gave something out: it keeps what is not complete.
        self._kept_bytes = 0
        self._held = b""
        self._unsent = (0, 0.0)
        self._refusal: tuple[int, str] = (400, _NOT_HTTP)

    # -- what the transport says

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._answers = _AnswerTransport(transport, self.loop)
        self._crowd.all.add(self)
        self._expect(_Phase.IDLE, HEAD_S)
        if len(self.connections) > self._crowd.most and not self._crowd.make_room(self):
            self._answer(503, f"All {self._crowd.most} connections are in use: try again.")
            self.leave()

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.all.discard(self)
        self._crowd.waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.REFUSED:
            return
        if self._held:
            self._hold(data)
            return
        if self._phase is _Phase.IDLE:
            self._expect(_Phase.HEAD, HEAD_S)
        # In slices, so that no limit is passed by much.
        for start in range(0, len(data), _SLICE_BYTES):
            piece = data[start : start + _SLICE_BYTES]
            self._kept_bytes += len(piece)
            super().data_received(piece)
            if self._is_over():
                return
            if self._kept_bytes > HEAD_LIMIT_BYTES:
                self._refuse(*self._too_long())
                return
            if self.pipeline:
                # Requests that wait for the answers to earlier ones are not read into memory.
                self._hold(data[start + _SLICE_BYTES :])
                break
        if self._phase is _Phase.BODY:
            self._body_bytes += len(data)
            end_s = self._body_begun_s + BODY_PAUSE_S + self._body_bytes / self._body_bytes_per_s()
            self._expect(_Phase.BODY, min(BODY_PAUSE_S, end_s - self.loop.time()))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._phase is _Phase.DONE:
            self._crowd.waiting.pop(self, None)

    def shutdown(self) -> None:
        self._answers.flush()
        if self._phase is _Phase.REFUSED:
            self.leave()
        else:
            super().shutdown()

    # -- what the parser says

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._kept_bytes = 0
        if self._phase is not _Phase.HEAD:
            self._expect(_Phase.HEAD, HEAD_S)

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a body is no header: whoever needed one has looked already.
        if self._phase is _Phase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # Most heads come in one slice, and are not counted.
        if self._kept_bytes and self._head_bytes() > HEAD_LIMIT_BYTES:
            self._stop(*self._too_long())
        if len(self.headers) > HEADERS_MAX:
            self._stop(431, f"The request has too many headers: at most {HEADERS_MAX} are allowed.")
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                self._stop(501, "CONNECT is not supported: this server is no proxy.")
            return
        self._kept_bytes = self._body_bytes = self._announced_bytes = 0
        for name, value in self.headers:
            if name == b"content-length" and value.isdigit():
                self._announced_bytes = int(value)
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                self._stop(501, "Of the transfer codings only chunked is supported.")
        self._body_begun_s = self.loop.time()
        self._expect(_Phase.BODY, BODY_PAUSE_S)
        super().on_headers_complete()
        self.cycle.transport = self._answers  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self._kept_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._kept_bytes = 0
        super().on_message_complete()
        if self.cycle.response_complete and not self.pipeline:
            self._rest()
        else:
            self._phase, self._due_s = _Phase.DONE, math.inf
            self._crowd.waiting.pop(self, None)
            if self.transport.get_write_buffer_size():
                # Nor is this one answered before the client has read the answers to earlier ones.
                self._wait_for_reading()

    # -- what the application says

    def on_response_complete(self) -> None:
        another = bool(self.pipeline)
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait_for_reading()
            return
        if self.pipeline:
            self.flow.pause_reading()
        elif self._held:
            held, self._held = self._held, b""
            self.data_received(held)
        elif self._phase is _Phase.DONE and not another:
            self._rest()

    # -- ending

    def send_400_response(self, msg: str) -> None:
        if self.parser.get_method() == b"PRI":
            self._refuse(505, "HTTP/2 is not supported: this server expects HTTP/1.1.")
        else:
            self._refuse(*self._refusal)

    def head_without_upgrade(self) -> bytes:
        """Of the request that was read last."""
        lines = [
            b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        ]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def look(self, now_s: float) -> None:
        """End the connection if its client has kept the server waiting for too long."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes != self._unsent[0]:
            self._unsent = (unsent_bytes, now_s)
        if unsent_bytes:
            self._wait_for_reading()
        elif self._phase is _Phase.DONE:
            self._crowd.waiting.pop(self, None)
        if unsent_bytes and now_s - self._unsent[1] > ANSWER_PAUSE_S:
            self.leave()
        elif now_s < self._due_s or self.transport.is_closing():
            return
        elif self._held or self.flow.read_paused:
            # It is the server that does not read.
            self._due_s = now_s + BODY_PAUSE_S
        elif self._phase is _Phase.HEAD:
            self._refuse(408, f"The request line and the headers did not arrive within {HEAD_S:.0f} seconds.")
        elif self._phase is _Phase.BODY:
            self._refuse(
                408,
                f"The body did not go on arriving: at least {self._body_bytes_per_s():.0f} bytes a second are "
                f"expected, and no pause longer than {BODY_PAUSE_S:.0f} seconds.",
            )
        else:
            self.leave()

    def leave(self) -> None:
        """Close the connection, without waiting for its client."""
        self._answers.flush()
        self._held = b""
        self._crowd.waiting.pop(self, None)
        self.connections.discard(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # -- inside

    def _expect(self, phase: _Phase, within_s: float) -> None:
        """Wait for the client, as the last of those that are waited for."""
        self._phase = phase
        self._due_s = self.loop.time() + within_s
        self._crowd.waiting.pop(self, None)
        self._crowd.waiting[self] = None

    def _wait_for_reading(self) -> None:
        """The client has not read everything that it was sent; whether it is waited for already or not."""
        self._crowd.waiting.setdefault(self)

    def _body_bytes_per_s(self) -> float:
        if self.cycle.response_complete:
            # What is passed over keeps no room from others.
            return BODY_BYTES_PER_S
        return max(BODY_BYTES_PER_S, max(self._announced_bytes, self._body_bytes) / BODY_S)

    def _is_over(self) -> bool:
        return self._phase is _Phase.REFUSED or self.transport.is_closing()

    def _rest(self) -> None:
        """Everything is answered. Uvicorn's own timer is none for a request that was answered before its body ended."""
        self._expect(_Phase.IDLE, IDLE_S)

    def _hold(self, data: bytes) -> None:
        self._held += data
        self.flow.pause_reading()
        if len(self._held) > _HELD_LIMIT_BYTES:
            self.leave()

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _too_long(self) -> tuple[int, str]:
        if self._phase is _Phase.HEAD and len(self.url) > HEAD_LIMIT_BYTES // 2:
            return 414, f"The path and query are too long: at most {HEAD_LIMIT_BYTES // 2} bytes are allowed."
        return 431, f"The headers are too large: at most {HEAD_LIMIT_BYTES} bytes are allowed."

    def _stop(self, status: int, sentence: str) -> NoReturn:
        self._refusal = (status, sentence)
        raise _Stop

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer what cannot become a request, and read nothing more."""
        own = self.cycle if self._phase is _Phase.BODY else None
        earlier = own is None and bool(self.cycle) and not self.cycle.response_complete
        if own is not None and not own.response_complete:
            own.disconnected = True
            own.message_event.set()
        if earlier or self.pipeline or (own is not None and own.response_started):
            # Whatever is sent now would be taken for the answer to another request.
            self.leave()
            return
        self._answer(status, sentence)
        # What the client is still sending is passed over: closing now could destroy the answer on its way.
        self.transport.write_eof()
        self.flow.resume_reading()
        self._expect(_Phase.REFUSED, _LINGER_S)

    def _answer(self, status: int, sentence: str) -> None:
        self._answers.flush()
        body = json_bytes({"errors": [sentence]})
        headers = [
            *self.server_state.default_headers,
            (b"content-type", JSON_TYPE),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        if status == 503:
            headers += [(name.lower().encode(), value.encode()) for name, value in RETRY.items()]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)

"""The recorded API on a socket: HTTP, and watches as a WebSocket or as a stream of lines."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import ssl
import struct
import subprocess
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from tests.kubernetes.replay import ReplayApi, Request

_WEBSOCKET_ID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_OK = 200


class Authority:
    """A certificate for 127.0.0.1 that signs itself: the authority of the API server."""

    def __init__(self, directory: Path) -> None:
        """
        Raises:
            FileNotFoundError: there is no openssl to make one.
        """
        self.file, key = directory / "ca.crt", directory / "key.pem"
        subject = ("-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1")
        files = ("-keyout", str(key), "-out", str(self.file))
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
        subprocess.run(command, check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.file, key)


class Handler(BaseHTTPRequestHandler):
    api: ClassVar[ReplayApi]
    protocol_version = "HTTP/1.1"
    timeout = 600

    def do_GET(self) -> None:
        request = self._request()
        if request.query.get("watch") in ("true", "1"):
            self._watch(request)
        else:
            self._reply(*self.api.answer(request))

    def do_POST(self) -> None:
        self._reply(*self.api.answer(self._request()))

    do_PATCH = do_DELETE = do_PUT = do_POST

    def handle(self) -> None:
        # Clients are killed in the middle of calls, and some refuse the certificate.
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        body = json.loads(content) if content else None
        return self.api.request_type(self.command, parts.path, query, body, token)

    def _reply(self, status: int, headers: dict[str, str], body: Any) -> None:
        content = json.dumps(body).encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _watch(self, request: Request) -> None:
        """As a WebSocket if that is asked for, else as a stream of lines."""
        status, headers, body = self.api.answer(request)
        if status != _OK:
            return self._reply(status, headers, body)
        self.close_connection = True
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = self.headers.get("Sec-WebSocket-Key")
        with contextlib.suppress(OSError):
            if key is None:
                self.send_response(_OK)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.api.watch(request.query, lambda event: self._write(json.dumps(event).encode() + b"\n"))
                return None
            accepted = hashlib.sha1((key + _WEBSOCKET_ID).encode(), usedforsecurity=False).digest()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(accepted).decode())
            self.end_headers()
            self.api.watch(request.query, lambda event: self._write(_frame(json.dumps(event).encode())))
            self._write(b"\x88\x02" + struct.pack("!H", 1000))
        return None

    def _write(self, content: bytes) -> None:
        self.wfile.write(content)
        self.wfile.flush()


def _frame(content: bytes) -> bytes:
    """A text frame of a server."""
    length = len(content)
    if length < 126:
        return bytes((0x81, length)) + content
    if length < 1 << 16:
        return bytes((0x81, 126)) + struct.pack("!H", length) + content
    return bytes((0x81, 127)) + struct.pack("!Q", length) + content

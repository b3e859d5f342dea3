"""ASGI middleware for every request. It is plain ASGI because each of Starlette's layers costs a task."""

from __future__ import annotations

import ipaddress
import re
import secrets
import time
from collections.abc import Sequence

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth import ANONYMOUS, PRINCIPAL, Tokens
from app.api.errors import error_response
from app.api.held_bytes import DRIVERS_LIMIT_BYTES, HeldBytes
from app.api.plugin import Plugin

log = structlog.get_logger()

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}\Z")
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[0-9a-z.-]+))(?::[0-9]{0,5})?\Z")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({b"same-origin", b"none"})
"""`Sec-Fetch-Site` of a page of ours, and of what a person typed."""
_MAX_HOSTS_REMEMBERED = 64
_VERSION_PREFIX = "/v1"
_DRIVERS_PREFIX = "/internal/"


def route_path(scope: Scope) -> str:
    """The path that routes know, without what the server or `/v1` puts in front of it."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


class Exchange:
    """One request and its answer, the outermost layer: paths with and without `/v1`, the request id, HEAD without a
    body, the bytes that bodies hold, and a crash of ours as a 500."""

    def __init__(self, app: ASGIApp, *, plugins: Sequence[Plugin] = ()) -> None:
        self._app, self._plugins = app, plugins
        self._held = HeldBytes()
        # Slow uploads of clients are in no driver's way.
        self._held_of_drivers = HeldBytes(DRIVERS_LIMIT_BYTES, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = route_path(scope)
        if path.startswith(_VERSION_PREFIX + "/"):
            scope["root_path"] = scope.get("root_path", "") + _VERSION_PREFIX
            path = path[len(_VERSION_PREFIX) :]
        held = self._held_of_drivers if path.startswith(_DRIVERS_PREFIX) else self._held
        held.watch(scope)
        for each in self._plugins:
            each.request_began(scope)
        answer = _Answer(scope, send, _request_id(scope), self._plugins)
        try:
            await self._app(scope, receive, answer.send)
        except ClientDisconnect:
            log.debug("a client went away", path=scope["path"])
        except Exception:
            await answer.fail(receive)
        finally:
            held.release(scope)


class _Answer:
    """What is sent for one request."""

    def __init__(self, scope: Scope, send: Send, request_id: bytes | None, plugins: Sequence[Plugin]) -> None:
        self._scope = scope
        self._send = send
        self._request_id = request_id
        self._plugins = plugins
        self._began_s = time.perf_counter()
        self._started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            took_s = time.perf_counter() - self._began_s
            for each in self._plugins:
                each.request_answered(self._scope, message["status"], took_s)
            if self._request_id is not None:
                message["headers"] = [*message["headers"], (b"x-request-id", self._request_id)]
        elif self._scope["method"] == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    async def fail(self, receive: Receive) -> None:
        scope = self._scope
        error_id = secrets.token_hex(8)
        request_id = self._request_id.decode() if self._request_id else None
        log.exception(
            "a request failed unexpectedly",
            error_id=error_id,
            request_id=request_id,
            method=scope["method"],
            path=scope["path"],
        )
        if self._started:
            # Half an answer is out: breaking the connection is the only way left to say that it is not whole.
            raise
        sentence = f"An internal error occurred; the server's log has it under the error id {error_id}."
        await error_response(500, [sentence])(scope, receive, self.send)


def _request_id(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.match(value):
            found: bytes = value
            return found
    return None


class Callers:
    """Who calls: the name that a token has, or one for everybody where there are no tokens. Whether an operation may be
    called without a name is for its route to say (`app.api.routes`).

    What a web page of someone else makes a browser send is refused. Without tokens the only protection is that the
    server listens on loopback, which every browser of this machine can reach: a page must neither submit jobs (a form
    needs no consent of ours) nor read answers under a host name of its own that it has pointed here (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, *, tokens: Tokens | None) -> None:
        self._app = app
        self._tokens = tokens
        self._loopback_hosts: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            app = self._refusal(scope) or app
            tokens = self._tokens
            scope[PRINCIPAL] = ANONYMOUS if tokens is None else tokens.authenticate(scope["headers"])
        await app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        hosts: list[bytes] = []
        origin = site = None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if len(hosts) > 1 or (not hosts and scope.get("http_version") == "1.1"):
            # Readers differ in which of two they believe: a proxy may have judged the other one.
            return error_response(400, ["The request should have one header Host."])
        host = hosts[0] if hosts else None
        is_foreign = (origin is not None and origin.partition(b"://")[2] != host) or (
            site is not None and site not in _OWN_SITES
        )
        if is_foreign and scope["method"] not in _SAFE_METHODS:
            return error_response(403, ["Requests of web pages from another origin are refused."])
        if self._tokens is None and host is not None and host not in self._loopback_hosts:
            if not _is_loopback(host):
                sentence = "Without tokens this server is for this machine: call it as localhost, 127.0.0.1 or [::1]."
                return error_response(403, [sentence])
            if len(self._loopback_hosts) < _MAX_HOSTS_REMEMBERED:
                self._loopback_hosts.add(host)
        return None


def _is_loopback(host: bytes) -> bool:
    match = _HOST.match(host.decode("latin-1").lower())
    if match is None:
        return False
    name = match["name"] or match["six"]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

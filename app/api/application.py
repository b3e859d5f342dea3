"""What every request passes, from its first byte to its handler and back.

Plain ASGI in one layer, in front of FastAPI's own router: for a short request, a stack of middlewares and a list of
patterns to try would cost more than all the rest. What is not in the table of operations goes on to FastAPI.
"""

from __future__ import annotations

import ipaddress
import re
import secrets

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.answers import BytesResponse
from app.api.auth import ANONYMOUS, PRINCIPAL, Tokens
from app.api.context import Context
from app.api.errors import ApiError, error_response, response_of
from app.api.held_bytes import DRIVERS_LIMIT_BYTES, HeldBytes
from app.api.routing import Access, OperationTable, Resolved
from app.worker.views import ControlPlaneError

log = structlog.get_logger()

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}\Z")
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[0-9a-z.-]+))(?::[0-9]{0,5})?\Z")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({b"same-origin", b"none"})
"""`Sec-Fetch-Site` of a page of ours, and of what a person typed."""
_MAX_HOSTS_REMEMBERED = 64


class Application:
    """The middleware stack of `app.api.app.SlotwiseApi`.

    ``fallback`` is FastAPI's own stack, for what is not in the table; ``public`` are its paths that need no token.
    """

    def __init__(
        self,
        table: OperationTable,
        context: Context,
        tokens: Tokens | None,
        *,
        fallback: ASGIApp,
        public: frozenset[str],
    ) -> None:
        self._table = table
        self._fallback = fallback
        self._public = public
        self._context = context
        self._tokens = tokens
        self._held = HeldBytes()
        # Slow uploads of clients are in no driver's way.
        self._held_of_drivers = HeldBytes(DRIVERS_LIMIT_BYTES, 0)
        self._loopback_hosts: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _not_http(scope, receive, send)
            return
        scope.setdefault("state", {})
        asked = _Asked(scope)
        held = self._held_of_drivers if _route_path(scope).startswith("/internal/") else self._held
        held.watch(scope)
        exchange = _Exchange(send, asked.request_id, is_head=scope["method"] == "HEAD")
        try:
            response = self._refusal(asked) or await self._answer(scope, receive)
            await response(scope, receive, exchange.send)
        except ClientDisconnect:
            log.debug("a client went away", path=scope["path"])
        except Exception:
            await exchange.fail(scope, receive)
        finally:
            held.release(scope)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp:
        method: str = scope["method"]
        path = _route_path(scope)
        resolved = self._table.resolve(path)
        # HEAD is GET without the body.
        operation = resolved.operations.get("GET" if method == "HEAD" else method) if resolved else None
        otherwise = Access.PUBLIC if path in self._public else Access.USER
        if not self._admit(scope, operation.access if operation else otherwise):
            return error_response(
                401,
                [
                    "A bearer token is required: send the header 'Authorization: Bearer <token>' with a known"
                    " token."
                ],
                {"WWW-Authenticate": 'Bearer realm="slotwise"'},
            )
        if resolved is None:
            return self._fallback
        if operation is None:
            return _other_method(method, scope["path"], resolved)
        scope["path_params"] = resolved.parameters
        request = Request(scope, receive)
        forwarding = self._context.forwarding
        try:
            if forwarding is not None and operation.access is Access.USER:
                elsewhere = await forwarding.answer(request)
                if elsewhere is not None:
                    return elsewhere
            return await operation.handler(self._context, request)
        except (ApiError, ControlPlaneError) as error:
            return response_of(error)

    def _admit(self, scope: Scope, access: Access) -> bool:
        if self._tokens is None:
            scope[PRINCIPAL] = ANONYMOUS
            return True
        name = self._tokens.authenticate(scope["headers"])
        scope[PRINCIPAL] = name
        return name is not None or access is not Access.USER

    def _refusal(self, asked: _Asked) -> Response | None:
        """Refuse what a web page of someone else makes a browser send.

        Without tokens the only protection is that the server listens on loopback, which every browser of this
        machine can reach: a page must neither submit jobs (a form needs no consent of ours) nor read answers
        under a host name of its own that it has pointed here (DNS rebinding).
        """
        if asked.hosts > 1 or (asked.hosts == 0 and asked.needs_host):
            # Readers differ in which of two they believe: a proxy may have judged the other one.
            return error_response(400, ["The request should have one header Host."])
        if asked.changes and asked.is_foreign:
            return error_response(403, ["Requests of web pages from another origin are refused."])
        host = asked.host
        if self._tokens is None and host is not None and host not in self._loopback_hosts:
            if not _is_loopback(host):
                return error_response(
                    403,
                    [
                        "Without tokens this server is for this machine: call it as localhost, 127.0.0.1 or"
                        " [::1]."
                    ],
                )
            if len(self._loopback_hosts) < _MAX_HOSTS_REMEMBERED:
                self._loopback_hosts.add(host)
        return None


class _Asked:
    """What the headers of a request say about where it comes from, found in one pass."""

    __slots__ = ("changes", "host", "hosts", "needs_host", "origin", "request_id", "site")

    def __init__(self, scope: Scope) -> None:
        self.request_id: bytes | None = None
        self.host: bytes | None = None
        self.hosts = 0
        self.origin: bytes | None = None
        self.site: bytes | None = None
        self.changes = scope["method"] not in _SAFE_METHODS
        self.needs_host = scope.get("http_version") == "1.1"
        for name, value in scope["headers"]:
            if name == b"host":
                self.host = value
                self.hosts += 1
            elif name == b"origin":
                self.origin = value
            elif name == b"sec-fetch-site":
                self.site = value
            elif name == b"x-request-id" and _REQUEST_ID.match(value):
                self.request_id = value

    @property
    def is_foreign(self) -> bool:
        """Whether a browser sends it for a page of another origin."""
        if self.origin is not None and _authority(self.origin) != self.host:
            return True
        return self.site is not None and self.site not in _OWN_SITES


class _Exchange:
    """One answer: adds the request id, leaves the body out for HEAD, and turns a crash into a 500."""

    def __init__(self, send: Send, request_id: bytes | None, *, is_head: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._is_head = is_head
        self._started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            if self._request_id is not None:
                message["headers"] = [*message["headers"], (b"x-request-id", self._request_id)]
        elif self._is_head:
            message = {**message, "body": b""}
        await self._send(message)

    async def fail(self, scope: Scope, receive: Receive) -> None:
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


async def _not_http(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
    elif scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def _other_method(method: str, path: str, resolved: Resolved) -> Response:
    if method == "OPTIONS":
        response = BytesResponse(b"", 204, {"Allow": resolved.allow})
        response.raw_headers = [header for header in response.raw_headers if header[0] == b"allow"]
        return response
    sentence = f"The method {method[:20]} is not allowed on {path[:200]}: allowed are {resolved.allow}."
    return error_response(405, [sentence], {"Allow": resolved.allow})


def _authority(origin: bytes) -> bytes:
    return origin.partition(b"://")[2]


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


def _route_path(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path

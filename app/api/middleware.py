"""What every request passes first: an id, its path resolved, who calls, and a net under everything that goes wrong.

Pure ASGI, one layer: Starlette's BaseHTTPMiddleware would cost more than all the rest of a request.
"""

from __future__ import annotations

import re
import secrets

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth import ANONYMOUS, PRINCIPAL, Tokens
from app.api.errors import error_response
from app.api.routing import RESOLVED, Access, OperationTable, Resolved

log = structlog.get_logger()

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}\Z")


class Gate:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, *, table: OperationTable, tokens: Tokens | None) -> None:
        self._app = app
        self._table = table
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        resolved = self._table.resolve(_route_path(scope))
        scope[RESOLVED] = resolved
        request_id = _request_id(scope)
        if scope["method"] == "HEAD":
            # HEAD is GET without the body; the server below still knows that it was HEAD.
            scope = {**scope, "method": "GET"}
            send = _without_body(send)
        exchange = _Exchange(send, request_id)
        try:
            if not self._admit(scope, resolved):
                response = error_response(
                    401,
                    ["A bearer token is required: send the header 'Authorization: Bearer <token>' with a known token."],
                    {"WWW-Authenticate": 'Bearer realm="slotwise"'},
                )
                await response(scope, receive, exchange.send)
            else:
                await self._app(scope, receive, exchange.send)
        except Exception:
            await exchange.fail(scope, receive)

    def _admit(self, scope: Scope, resolved: Resolved | None) -> bool:
        if self._tokens is None:
            scope[PRINCIPAL] = ANONYMOUS
            return True
        name = self._tokens.authenticate(scope["headers"])
        scope[PRINCIPAL] = name
        if name is not None:
            return True
        operation = resolved.operations.get(scope["method"]) if resolved is not None else None
        return operation is not None and operation.access is not Access.USER


class _Exchange:
    """One answer: adds the request id, and turns a crash into a 500 if no answer has begun."""

    def __init__(self, send: Send, request_id: bytes | None) -> None:
        self._send = send
        self._request_id = request_id
        self._started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            if self._request_id is not None:
                message["headers"] = [*message["headers"], (b"x-request-id", self._request_id)]
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


def _route_path(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def _request_id(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return value if _REQUEST_ID.match(value) else None
    return None


def _without_body(send: Send) -> Send:
    async def send_headers(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_headers

"""The table of operations and its dispatch.

Every path is an `Operation`: what it answers to, what it does, and how it is documented. The dispatch walks a tree of
path segments, so that its cost does not grow with the number of paths, and it knows all methods of a path, so that a
wrong one is answered 405 with a complete `Allow`. Bodies are never coerced by a framework: a handler reads its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from app.api.errors import ApiError, error_response, response_of
from app.worker.views import ControlPlaneError

if TYPE_CHECKING:
    from starlette.datastructures import URLPath

    from app.api.context import Context
    from app.api.documentation import Doc

Handler = Callable[["Context", Request], Awaitable[Response]]

RESOLVED = "slotwise.resolved"
_VERSION_PREFIX = "/v1"


class Access(Enum):
    """Who may call an operation. DRIVER: the operation checks the credentials of an attempt itself."""

    USER = "user"
    PUBLIC = "public"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. ``doc`` None: it is not listed in the OpenAPI document."""

    method: str
    path: str
    handler: Handler
    doc: Doc | None = None
    access: Access = Access.USER


@dataclass(slots=True)
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    parameter: tuple[str, _Node] | None = None
    operations: dict[str, Operation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a path leads to. ``operations`` by method is never empty."""

    operations: dict[str, Operation]
    parameters: dict[str, str]

    @property
    def allow(self) -> str:
        methods = set(self.operations)
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods))


class OperationTable:
    """All operations, found by path."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations = tuple(operations)
        self._root = _Node()
        for operation in self.operations:
            self._add(operation)

    def resolve(self, path: str) -> Resolved | None:
        """What ``path`` leads to: with or without `/v1`, with or without one trailing slash."""
        if path.startswith(_VERSION_PREFIX) and path[3:4] == "/":
            path = path[3:]
        if path.endswith("/") and len(path) > 1:
            path = path[:-1]
        node = self._root
        parameters: dict[str, str] = {}
        for segment in path.split("/")[1:]:
            child = node.children.get(segment)
            if child is None:
                if node.parameter is None or not segment:
                    return None
                name, child = node.parameter
                parameters[name] = segment
            node = child
        return Resolved(node.operations, parameters) if node.operations else None

    def _add(self, operation: Operation) -> None:
        node = self._root
        for segment in operation.path.split("/")[1:]:
            if segment.startswith("{"):
                name = segment[1:-1]
                if node.parameter is None:
                    node.parameter = (name, _Node())
                assert node.parameter[0] == name, f"{operation.path}: one place of a path has one parameter name"
                node = node.parameter[1]
            else:
                node = node.children.setdefault(segment, _Node())
        assert operation.method not in node.operations, f"{operation.method} {operation.path} is there twice"
        node.operations[operation.method] = operation


class OperationRoute(BaseRoute):
    """Dispatches to the operations; paths that are not in the table are left to the routes after it."""

    def __init__(self, table: OperationTable, context: Context) -> None:
        self._table = table
        self._context = context

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and scope.get(RESOLVED) is not None:
            return Match.FULL, {}
        return Match.NONE, {}

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        resolved: Resolved = scope[RESOLVED]
        operation = resolved.operations.get(scope["method"])
        response: Response
        if operation is None:
            response = _wrong_method(scope, resolved)
        else:
            scope["path_params"] = resolved.parameters
            try:
                response = await operation.handler(self._context, Request(scope, receive))
            except (ApiError, ControlPlaneError) as error:
                response = response_of(error)
        await response(scope, receive, send)


def _wrong_method(scope: Scope, resolved: Resolved) -> Response:
    sentence = f"The method {scope['method']} is not allowed on {scope['path']}: allowed are {resolved.allow}."
    return error_response(405, [sentence], {"Allow": resolved.allow})

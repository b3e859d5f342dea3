"""The table of operations and how a path finds its own.

Every path is an `Operation`: what it answers to, what it does, and how it is documented. The table is a tree
of path segments, so that its cost does not grow with the number of paths, and it knows all methods of a path,
so that a wrong one is answered 405 with a complete `Allow`. Bodies are never coerced by a framework: a
handler reads its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from app.api.context import Context
    from app.api.documentation import Doc

Handler = Callable[["Context", Request], Awaitable[Response]]

VERSION_PREFIX = "/v1"


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
        methods = {"OPTIONS", *self.operations}
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
        if path.startswith(VERSION_PREFIX) and path[3:4] == "/":
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
                assert node.parameter[0] == name, (
                    f"{operation.path}: one place of a path has one parameter name"
                )
                node = node.parameter[1]
            else:
                node = node.children.setdefault(segment, _Node())
        assert operation.method not in node.operations, f"{operation.method} {operation.path} is there twice"
        node.operations[operation.method] = operation

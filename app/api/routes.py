"""The operations as FastAPI's routes: each reads its query strictly and says how it may be refused; and how a path
finds its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.answers import BytesResponse, HeadersOnly, model_bytes
from app.api.auth import PRINCIPAL
from app.api.calls import Calls
from app.api.errors import bad_request, unauthorized
from app.api.forwarding import Forwarding, job_of_path
from app.api.middleware import route_path
from app.api.openapi import usual_refusals
from app.model.sentences import shown

_MAX_QUERY_PARAMETERS = 32
_ROUTE_PARAMETER = re.compile(r"{(\w+)}\Z")


class Access(Enum):
    """Who may call an operation. METRICS: a user, or whose token is for this only. DRIVER: it checks the credentials of
    an attempt itself."""

    USER = "user"
    METRICS = "metrics"
    PUBLIC = "public"
    DRIVER = "driver"


class Operation(APIRoute):
    """A route whose function is its documentation: the name is the operation id, the first paragraph of the docstring
    the summary, the rest the description. Where several servers share the jobs, the owner of the job answers a user."""

    access: ClassVar = Access.USER
    is_shared: ClassVar = False
    """Whether every server answers it for all jobs, from the database."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        summary, _, description = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")
        extra = options["openapi_extra"] or {}
        is_public = self.access is Access.PUBLIC
        usual = usual_refusals(
            path, options["methods"], has_body="requestBody" in extra, needs_token=not is_public
        )
        options |= {
            "summary": " ".join(summary.split()),
            "operation_id": to_camel(endpoint.__name__),
            "response_description": HTTPStatus(options["status_code"] or 200).phrase,
            "responses": {**usual, **(options["responses"] or {})},
            "openapi_extra": {**extra, "security": []} if is_public else extra,
        }
        super().__init__(path, endpoint, **options)
        self.description = " ".join(description.split())
        self._calls = Calls(self.dependant)
        self.app = self._serve

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # FastAPI would make two stacks for what dependencies leave behind, which these do not, and catch refusals that
        # the application catches.
        response = await self._answer(Request(scope, receive, send))
        await response(scope, receive, send)

    async def forwarded(self, request: Request, forwarding: Forwarding) -> Response | None:
        """The answer of the server that owns the job of the path; None if this one is to give an answer."""
        return await forwarding.answer(request, job_of_path(request), here=self.is_shared)

    async def _answer(self, request: Request) -> Response:
        forwarding = request.app.state.forwarding if self.access is Access.USER else None
        if forwarding is not None and (elsewhere := await self.forwarded(request, forwarding)) is not None:
            return elsewhere
        overrides = request.app.dependency_overrides
        calls = Calls(self.dependant, overrides) if overrides else self._calls
        raw_query: bytes = request.scope["query_string"]
        query = _query(raw_query, calls.query_names) if raw_query else {}
        headers = _headers(request.scope["headers"], calls.header_names) if calls.header_names else {}
        response = HeadersOnly()
        found = await calls.answer(request, response, query, headers)
        if isinstance(found, Response):
            return found
        answer = BytesResponse(model_bytes(found), self.status_code or 200)
        answer.raw_headers += response.raw_headers
        return answer


class SharedOperation(Operation):
    """Is answered by the server that is asked, from what is stored of the job."""

    is_shared = True


class PublicOperation(Operation):
    """Needs no token, and is answered by the server that is asked."""

    access = Access.PUBLIC


class MetricsOperation(Operation):
    """Tells of the server that is asked. A token that is for metrics only will do."""

    access = Access.METRICS


class DriverOperation(Operation):
    """For drivers, who ask the server that they were started by."""

    access = Access.DRIVER


def _query(raw: bytes, known: Collection[str]) -> dict[str, str]:
    """
    Raises:
        ApiError: 400 for what cannot be read, and for each parameter that is not known or is there twice.
    """
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_QUERY_PARAMETERS
        )
    except (ValueError, UnicodeDecodeError):
        raise bad_request(
            f"The query cannot be read: at most {_MAX_QUERY_PARAMETERS} percent-encoded UTF-8 parameters are"
            " expected."
        ) from None
    found: dict[str, str] = {}
    errors: list[str] = []
    for name, value in pairs:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none"
            errors.append(f"The query parameter {shown(name)} is not known here; allowed: {allowed}.")
        elif name in found:
            errors.append(f"The query parameter {name} is given twice.")
        found[name] = value
    if errors:
        raise bad_request(*errors)
    return found


def _headers(given: Iterable[tuple[bytes, bytes]], known: dict[bytes, str]) -> dict[str, str]:
    """The headers that are ``known``, by the names that they have there.

    Raises:
        ApiError: 400 for one that is there twice.
    """
    found: dict[str, str] = {}
    for raw_name, value in given:
        if (name := known.get(raw_name)) is not None:
            if name in found:
                raise bad_request(f"The header {name} is given twice.")
            found[name] = value.decode("latin-1")
    return found


def _is_open(access: Access | None, scope: Scope) -> bool:
    """Whether an operation may be called without the name of a user."""
    if access is Access.METRICS:
        is_for_metrics: bool = scope["app"].state.tokens.is_for_metrics(scope["headers"])
        return is_for_metrics
    return access in (Access.PUBLIC, Access.DRIVER)


@dataclass(slots=True)
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    parameter: tuple[str, _Node] | None = None
    routes: dict[str, Operation] = field(default_factory=dict)

    @property
    def allow(self) -> str:
        methods = {"OPTIONS", *self.routes}
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods))


class Routes(APIRouter):
    """The router of the application. It finds routes in a tree of path segments, where FastAPI's tries one pattern
    after the other, and knows all methods of a path, so that a wrong one is answered 405 with a complete `Allow`."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        super().__init__(redirect_slashes=False)
        self._root = _Node()
        for router in routers:
            for route in router.routes:
                assert isinstance(route, Operation)
                self.routes.append(route)
                self._add(route)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().app(scope, receive, send)
            return
        node, parameters = self._find(route_path(scope)) or (None, {})
        method: str = scope["method"]
        # HEAD is GET without the body.
        route = node.routes.get("GET" if method == "HEAD" else method) if node is not None else None
        if scope[PRINCIPAL] is None and not _is_open(None if route is None else route.access, scope):
            raise unauthorized()
        if node is None:
            # What was added to the application later, or nothing.
            await super().app(scope, receive, send)
        elif route is not None:
            scope["path_params"], scope["route"], scope["endpoint"] = parameters, route, route.endpoint
            await route.app(scope, receive, send)
        elif method == "OPTIONS":
            await Response(status_code=204, headers={"Allow": node.allow})(scope, receive, send)
        else:
            raise HTTPException(405, headers={"Allow": node.allow})

    def _find(self, path: str) -> tuple[_Node, dict[str, str]] | None:
        """What a path leads to, with or without one slash behind it, and its parameters."""
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
        return (node, parameters) if node.routes else None

    def _add(self, route: Operation) -> None:
        node = self._root
        for segment in route.path.split("/")[1:]:
            match = _ROUTE_PARAMETER.match(segment)
            if match is None:
                node = node.children.setdefault(segment, _Node())
                continue
            if node.parameter is None:
                node.parameter = (match[1], _Node())
            assert node.parameter[0] == match[1], f"{route.path}: one place of a path has one parameter name"
            node = node.parameter[1]
        for method in route.methods or ():
            assert method not in node.routes, f"{method} {route.path} is there twice"
            node.routes[method] = route

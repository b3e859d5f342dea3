"""Putting the application together."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp

from app.api.answers import json_bytes
from app.api.auth import Tokens
from app.api.errors import add_error_handlers
from app.api.event_streams import STREAMS_MAX, EventTexts, Streams
from app.api.forwarding import Forwarding
from app.api.info import ServerInfo
from app.api.middleware import Callers, Exchange
from app.api.openapi import openapi_document
from app.api.plugin import Plugin
from app.api.record_cache import AnswerCache, Rendered
from app.api.routers import ROUTERS
from app.api.routes import Routes
from app.worker.control_plane import ControlPlane
from app.worker.ownership.control_planes import ControlPlanes
from app.worker.refusals import ControlPlaneError

_MAX_RECORDS = 4096
_MAX_ENDED_JOBS = 20_000


class SlotwiseApi(FastAPI):
    """FastAPI with a router that finds operations by the segments of a path."""

    def __init__(self, version: str, plugins: Sequence[Plugin] = (), *, with_tokens: bool) -> None:
        super().__init__(
            title="Slotwise",
            version=version,
            openapi_url=None,
            # Nothing here sets it up, and left on it looks for its set-up in the environment with each request.
            telemetry={"tracing": False, "metrics": False, "logs": False},
        )
        kinds = tuple(type(each) for each in plugins)
        self.router = Routes(_routers(kinds))
        self.document = _document(version, kinds, with_tokens=with_tokens)

    def build_middleware_stack(self) -> ASGIApp:
        """What was added, and the handlers of refusals. FastAPI has four layers more, which each request would pass:
        crashes and sizes of bodies are looked after here already, and files and dependencies leave nothing behind."""
        stack: ASGIApp = ExceptionMiddleware(self.router, handlers=self.exception_handlers)
        for layer in reversed(self.user_middleware):
            stack = layer.cls(stack, *layer.args, **layer.kwargs)
        return stack

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, whose bytes are ``document``."""
        document: dict[str, Any] = json.loads(self.document)
        return document


def create_app(
    control_plane: ControlPlane,
    *,
    info: ServerInfo,
    tokens: Tokens | None = None,
    control_planes: ControlPlanes | None = None,
    forwarding: Forwarding | None = None,
    streams_max: int = STREAMS_MAX,
    plugins: Sequence[Plugin] = (),
) -> SlotwiseApi:
    """The REST API over ``control_plane``. ``tokens``: who may call; None: everyone on this machine.

    ``control_planes`` and ``forwarding``: where several share the jobs.
    ``streams_max``: how many clients may follow events. ``plugins``: what hangs on it.
    """
    if tokens is not None:
        told = info.warnings
        info = replace(info, warnings=lambda: [*told(), *tokens.problems()])
    app = SlotwiseApi(info.version, plugins, with_tokens=tokens is not None)
    app.state.control_plane = control_plane
    app.state.info = info
    app.state.records = Rendered(_MAX_RECORDS)
    app.state.answers = AnswerCache()
    app.state.streams = Streams(streams_max)
    app.state.event_texts = EventTexts(functools.partial(_vertex_names, control_plane))
    app.state.tokens = tokens
    app.state.ended_jobs = Rendered(_MAX_ENDED_JOBS)
    app.state.control_planes = control_planes
    app.state.forwarding = forwarding
    add_error_handlers(app)
    # The last one is the outermost.
    app.add_middleware(Callers, tokens=tokens)
    app.add_middleware(Exchange, plugins=plugins)
    for each in plugins:
        each.add_to(app)
    return app


def _vertex_names(control_plane: ControlPlane, job_id: str) -> dict[str, str]:
    try:
        graph = control_plane.job(job_id).state.graph
    except ControlPlaneError:
        return {}
    return {vertex.id: vertex.name for vertex in graph.vertices}


def _routers(plugins: tuple[type[Plugin], ...]) -> tuple[APIRouter, ...]:
    return (*ROUTERS, *(router for each in plugins for router in each.routers))


@functools.cache
def _document(version: str, plugins: tuple[type[Plugin], ...], *, with_tokens: bool) -> bytes:
    routes = Routes(_routers(plugins)).routes
    return json_bytes(openapi_document(routes, version, plugins, with_tokens=with_tokens))

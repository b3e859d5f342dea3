"""Putting the application together."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api.answers import HTML_TYPE, BytesResponse, json_bytes
from app.api.application import Application
from app.api.auth import Tokens
from app.api.context import Context
from app.api.docs_page import render_page
from app.api.errors import error_response
from app.api.forwarding import Forwarding
from app.api.info import ServerInfo
from app.api.openapi import build_openapi
from app.api.operations import all_operations
from app.api.record_cache import AnswerCache, EndedJobCache, RecordCache
from app.api.render.jobs import job_overview
from app.api.render.rescales import rescale_record
from app.api.routing import VERSION_PREFIX, OperationTable
from app.model.jobgraph import JobGraph
from app.model.rescale import RescaleRecord
from app.worker.clock import Clock, SystemClock
from app.worker.control_planes import ControlPlanes
from app.worker.facade import ControlPlaneFacade
from app.worker.views import JobView

_DOCUMENT_PATH = "/openapi.json"
_PAGE_PATH = "/docs"
_PUBLIC_PATHS = frozenset(
    prefix + path for prefix in ("", VERSION_PREFIX) for path in (_DOCUMENT_PATH, _PAGE_PATH)
)
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


class SlotwiseApi(FastAPI):
    """The FastAPI application. The operations of the REST contract are found by `Application`, which stands where
    FastAPI's middlewares would; everything else that is routed or mounted here is reached through it."""

    def __init__(self, table: OperationTable, context: Context, tokens: Tokens | None) -> None:
        super().__init__(
            title="Slotwise",
            version=context.info.version,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            # Nothing here sets it up, and left on it looks for its set-up in the environment with each request.
            telemetry={"tracing": False, "metrics": False, "logs": False},
        )
        self._table = table
        self._context = context
        self._tokens = tokens
        document, page = _documents(context.info.version, with_tokens=tokens is not None)
        self.openapi_schema = json.loads(document)
        page_headers = {"Content-Security-Policy": _PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
        self._add_page(_DOCUMENT_PATH, BytesResponse(document))
        self._add_page(_PAGE_PATH, BytesResponse(page, headers=page_headers, content_type=HTML_TYPE))
        self.add_exception_handler(HTTPException, _http_error)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document of the contract, also served at /openapi.json."""
        return dict(self.openapi_schema or {})

    def build_middleware_stack(self) -> ASGIApp:
        """`Application` around FastAPI's own stack."""
        return Application(
            self._table,
            self._context,
            self._tokens,
            fallback=super().build_middleware_stack(),
            public=_PUBLIC_PATHS,
        )

    def _add_page(self, path: str, response: Response) -> None:
        async def page() -> Response:
            return response

        for each in (path, VERSION_PREFIX + path):
            self.add_api_route(each, page, methods=["GET", "HEAD"], include_in_schema=False)


def create_app(
    control_plane: ControlPlaneFacade,
    *,
    info: ServerInfo,
    tokens: Tokens | None = None,
    clock: Clock | None = None,
    cluster: ControlPlanes | None = None,
    forwarding: Forwarding | None = None,
) -> SlotwiseApi:
    """The REST API over ``control_plane``. ``tokens``: who may call; None: everyone on this machine.

    ``clock`` gives the time that answers show as `now`. ``cluster`` and ``forwarding``: where several share the jobs.
    """
    if tokens is not None:
        told = info.warnings
        info = replace(info, warnings=lambda: [*told(), *tokens.problems()])
    context = Context(
        control_plane=control_plane,
        info=info,
        clock=clock or SystemClock(),
        records=RecordCache(_record_bytes),
        answers=AnswerCache(),
        ended_jobs=EndedJobCache(_ended_job_bytes),
        cluster=cluster,
        forwarding=forwarding,
    )
    return SlotwiseApi(OperationTable(all_operations()), context, tokens)


async def _http_error(request: Request, error: Exception) -> Response:
    """FastAPI's own refusals in the words of the contract."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 404:
        return error_response(404, [f"There is nothing at {path}: see /docs for what there is."])
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "GET, HEAD")
        method = request.method[:20]
        sentence = f"The method {method} is not allowed on {path}: allowed are {allowed}."
        return error_response(405, [sentence], {"Allow": allowed})
    return error_response(error.status_code, [str(error.detail)], dict(error.headers or {}))


@functools.cache
def _documents(version: str, *, with_tokens: bool) -> tuple[bytes, bytes]:
    """The OpenAPI document and the page made of it."""
    document = build_openapi(OperationTable(all_operations()), version, with_tokens=with_tokens)
    return json_bytes(document), render_page(document).encode()


def _record_bytes(record: RescaleRecord, graph: JobGraph) -> bytes:
    return json_bytes(rescale_record(record, graph))


def _ended_job_bytes(view: JobView) -> bytes:
    return json_bytes(job_overview(view, view.ended_ms or 0))

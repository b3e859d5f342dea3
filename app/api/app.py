"""Putting the application together."""

from __future__ import annotations

import functools

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api.answers import HTML_TYPE, BytesResponse, json_bytes
from app.api.application import Application
from app.api.auth import Tokens
from app.api.context import Context
from app.api.docs_page import render_page
from app.api.info import ServerInfo
from app.api.openapi import build_openapi
from app.api.operations import all_operations
from app.api.record_cache import AnswerCache, EndedJobCache, RecordCache
from app.api.render.jobs import job_overview
from app.api.render.rescales import rescale_record
from app.api.routing import Access, Operation, OperationTable
from app.model.jobgraph import JobGraph
from app.model.rescale import RescaleRecord
from app.worker.clock import Clock, SystemClock
from app.worker.facade import ControlPlaneFacade
from app.worker.views import JobView

_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


def create_app(
    control_plane: ControlPlaneFacade,
    *,
    info: ServerInfo,
    tokens: Tokens | None = None,
    clock: Clock | None = None,
) -> ASGIApp:
    """The REST API over ``control_plane``. ``tokens``: who may call; None: everyone on this machine.

    ``clock`` gives the time that answers show as `now`.
    """
    document, page = _documents(info.version, with_tokens=tokens is not None)
    page_headers = {"Content-Security-Policy": _PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
    operations = [
        *all_operations(),
        _fixed("/openapi.json", BytesResponse(document)),
        _fixed("/docs", BytesResponse(page, headers=page_headers, content_type=HTML_TYPE)),
    ]
    context = Context(
        control_plane=control_plane,
        info=info,
        clock=clock or SystemClock(),
        records=RecordCache(_record_bytes),
        answers=AnswerCache(),
        ended_jobs=EndedJobCache(_ended_job_bytes),
    )
    return Application(OperationTable(operations), context, tokens)


@functools.cache
def _documents(version: str, *, with_tokens: bool) -> tuple[bytes, bytes]:
    """The OpenAPI document and the page made of it."""
    document = build_openapi(OperationTable(all_operations()), version, with_tokens=with_tokens)
    return json_bytes(document), render_page(document).encode()


def _record_bytes(record: RescaleRecord, graph: JobGraph) -> bytes:
    return json_bytes(rescale_record(record, graph))


def _ended_job_bytes(view: JobView) -> bytes:
    return json_bytes(job_overview(view, view.ended_ms or 0))


def _fixed(path: str, response: Response) -> Operation:
    async def handler(_context: Context, _request: Request) -> Response:
        return response

    return Operation("GET", path, handler, access=Access.PUBLIC)

"""What Prometheus reads."""

from __future__ import annotations

import asyncio
import gzip

from fastapi import APIRouter
from prometheus_client.exposition import gzip_accepted
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import BytesResponse
from app.api.dependencies import Now
from app.api.monitoring.exposition import Exposition
from app.api.routes import MetricsOperation

router = APIRouter(tags=["metrics"], route_class=MetricsOperation)

_TEXTS = ("text/plain", "application/openmetrics-text")
_GZIP_LEVEL = 1


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "The metrics of docs/monitoring.md",
            "content": {media_type: {"schema": {"type": "string"}} for media_type in _TEXTS},
        }
    },
)
async def get_metrics(request: Request, now_ms: Now) -> Response:
    """What Prometheus reads

    Counters of this server, and figures of the jobs that it owns, in Prometheus's text format or, if Accept asks for
    it, as OpenMetrics. A token that can read nothing else will do.
    """
    exposition: Exposition = request.app.state.exposition
    headers = request.headers
    body, content_type = await exposition.answer(headers.get("accept", ""), now_ms)
    told = {"Vary": "Accept, Accept-Encoding"}
    if gzip_accepted(headers.get("accept-encoding", "")):
        body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL)
        told["Content-Encoding"] = "gzip"
    return BytesResponse(body, headers=told, content_type=content_type.encode())

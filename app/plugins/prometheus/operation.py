"""Metrics for Prometheus: the operation that a scrape calls."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, FastAPI
from prometheus_client.exposition import gzip_accepted
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import PiecewiseResponse
from app.api.dependencies import Now
from app.api.routes import MetricsOperation
from app.plugins.prometheus.exposition import Exposition
from app.plugins.prometheus.meters import Meters

_TEXTS: Final = ("text/plain", "application/openmetrics-text")

router = APIRouter(tags=["metrics"], route_class=MetricsOperation)


class Prometheus(Meters):
    """Counters of one server, for whom it answers scrapes."""

    routers = (router,)

    def add_to(self, app: FastAPI) -> None:
        state = app.state
        state.exposition = Exposition(
            self,
            state.control_plane.census,
            lambda: state.streams.count,
            jobs_max=state.info.settings.metrics_jobs_max,
            version=state.info.version,
        )


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
    """Metrics for Prometheus

    Counters of this server, and figures of the jobs that it owns, in Prometheus's text format or, if Accept asks for
    it, as OpenMetrics. A token for metrics only is sufficient.
    """
    exposition: Exposition = request.app.state.exposition
    headers = request.headers
    answer = await exposition.answer(headers.get("accept", ""), now_ms)
    told = {"Vary": "Accept, Accept-Encoding"}
    body = answer.text
    if gzip_accepted(headers.get("accept-encoding", "")):
        body, told["Content-Encoding"] = answer.compressed, "gzip"
    return PiecewiseResponse(body, headers=told, media_type=answer.content_type)

"""What people read: the OpenAPI document, and Swagger UI, which shows it and comes from here
(`app/web/swagger-ui`)."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import FileResponse, Response

import app.web
from app.api.answers import BytesResponse, json_bytes
from app.api.errors import not_found
from app.api.routes import LocalOperation
from app.model.sentences import shown

_FILES = Path(app.web.__file__).parent / "swagger-ui"
_ASSETS = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_NO_ICON = "data:,"

PUBLIC_PATHS: Final = ("/openapi.json", "/docs", *(f"/docs/{name}" for name in _ASSETS))

router = APIRouter(include_in_schema=False, route_class=LocalOperation)


def _page() -> Response:
    """Swagger UI as FastAPI sets it up. Its policy lets the browser load, run and ask nothing but what is here."""
    # Without a slash in front, so that it leads back here behind a proxy and below `/v1` too.
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Slotwise: REST API",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url=_NO_ICON,
    )
    body = bytes(page.body)
    inline = body.rpartition(b"<script>")[2].partition(b"</script>")[0]
    digest = b64encode(hashlib.sha256(inline).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    page.headers["Content-Security-Policy"] = policy
    page.headers["X-Content-Type-Options"] = "nosniff"
    return page


_PAGE = _page()


@router.get("/docs")
async def get_docs() -> Response:
    return _PAGE


@router.get("/docs/{asset}")
async def get_docs_asset(asset: str) -> Response:
    if asset not in _ASSETS:
        raise not_found(f"The page has no file {shown(asset)}.")
    return FileResponse(_FILES / asset, media_type=_ASSETS[asset])


@router.get("/openapi.json")
async def get_document(request: Request) -> Response:
    return BytesResponse(json_bytes(request.app.openapi()))

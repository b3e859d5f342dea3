"""The web pages: the dashboard (`app/web/dashboard`), the OpenAPI document, and Swagger UI (`app/web/swagger-ui`)."""

from __future__ import annotations

import functools
import gzip
import hashlib
from base64 import b64encode
from pathlib import Path

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import app.web
from app.api.answers import BytesResponse, PiecewiseResponse
from app.api.auth import PRINCIPAL
from app.api.errors import not_found, unauthorized
from app.api.routes import PublicOperation
from app.model.sentences import shown

_WEB = Path(app.web.__file__).parent
_FOLDER = _WEB / "swagger-ui"
_DASHBOARD = _WEB / "dashboard"
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_DASHBOARD_FILES = {path.name: path for path in _DASHBOARD.rglob("*") if path.suffix in _KINDS}
_DASHBOARD_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_AS_TOLD = {"X-Content-Type-Options": "nosniff"}
_NO_ICON = "data:,"

router = APIRouter(include_in_schema=False, route_class=PublicOperation)


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
    page.headers.update(_AS_TOLD)
    return page


_PAGE = _page()


_FILES = {
    name: PiecewiseResponse((_FOLDER / name).read_bytes(), media_type=kind, headers=_AS_TOLD)
    for name, kind in (("swagger-ui.css", "text/css"), ("swagger-ui-bundle.js", "text/javascript"))
}


@functools.cache
def _dashboard_file(path: Path, *, compressed: bool) -> Response:
    """Read when it is first asked for, and compressed once."""
    content = path.read_bytes()
    # A browser asks again each time: modules of two versions would not fit together.
    headers = {**_AS_TOLD, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if compressed:
        content, headers["Content-Encoding"] = gzip.compress(content, mtime=0), "gzip"
    headers["ETag"] = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return PiecewiseResponse(content, media_type=_KINDS[path.suffix], headers=headers)


@functools.cache
def _dashboard() -> Response:
    headers = {**_AS_TOLD, "Cache-Control": "no-cache", "Vary": "Accept"}
    page = PiecewiseResponse(
        (_DASHBOARD / "index.html").read_bytes(), media_type="text/html", headers=headers
    )
    page.headers["Content-Security-Policy"] = _DASHBOARD_POLICY
    return page


@router.get("/")
async def get_dashboard(request: Request) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        return _dashboard()
    # To programs there is nothing here, as in Flink's API.
    if request.scope[PRINCIPAL] is None:
        raise unauthorized()
    raise HTTPException(404)


@router.get("/ui/{asset}")
async def get_dashboard_asset(request: Request, asset: str) -> Response:
    if asset not in _DASHBOARD_FILES:
        raise not_found(f"The dashboard has no file {shown(asset)}.")
    compressed = "gzip" in request.headers.get("accept-encoding", "")
    file = _dashboard_file(_DASHBOARD_FILES[asset], compressed=compressed)
    if request.headers.get("if-none-match") == (etag := file.headers["ETag"]):
        return Response(status_code=304, headers={"ETag": etag, "Cache-Control": "no-cache"})
    return file


@router.get("/docs")
async def get_docs(request: Request) -> Response:
    if request.scope["path"].endswith("/"):
        # The links of the page lead on from a path without a slash at its end.
        return Response(status_code=307, headers={"Location": "../docs"})
    return _PAGE


@router.get("/docs/{asset}")
async def get_docs_asset(asset: str) -> Response:
    if asset not in _FILES:
        raise not_found(f"The page has no file {shown(asset)}.")
    return _FILES[asset]


@router.get("/openapi.json")
async def get_document(request: Request) -> Response:
    return BytesResponse(request.app.document)

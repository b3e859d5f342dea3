"""Answers: compact JSON of models, in bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

JSON_TYPE = b"application/json"
_PIECE_BYTES = 64 * 1024

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_bytes(value: Any) -> bytes:
    # A lone surrogate (from JSON escapes in a name) has no UTF-8 form: it is escaped again.
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def model_bytes(model: BaseModel | Sequence[BaseModel]) -> bytes:
    """A model, or an array of them. A field with a default that was not set is left out."""
    if not isinstance(model, BaseModel):
        return b"[" + b",".join([model_bytes(each) for each in model]) + b"]"
    try:
        # What `model_dump_json` makes a text of, which would be encoded again.
        return model.__pydantic_serializer__.to_json(model, by_alias=True, exclude_unset=True)
    except PydanticSerializationError:
        return json_bytes(model.model_dump(mode="json", by_alias=True, exclude_unset=True))


class BytesResponse(Response):
    """A response whose body and headers are ready: skips Starlette's header building, which costs more than routing."""

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: bytes = JSON_TYPE,
    ) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        self.raw_headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
        if headers:
            self.raw_headers += [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
            ]


class HeadersOnly(Response):
    """Takes the headers that an operation sets, for the answer that is made of what it returns."""

    def __init__(self) -> None:
        self.raw_headers = []


class PiecewiseResponse(Response):
    """A large body that is there already, sent in pieces: a slow reader keeps one of them, and no descriptor."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for start in range(0, len(self.body), _PIECE_BYTES):
            end = start + _PIECE_BYTES
            piece, more = self.body[start:end], end < len(self.body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})


def next_page(request: Request, limit: int, last: int) -> dict[str, str]:
    """The header that leads to the page of so many behind number ``last``, with what else this one was asked by."""
    query = urlencode({**request.query_params, "limit": limit, "after": last})
    return {"Link": f'<{quote(request.scope["path"])}?{query}>; rel="next"'}


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return BytesResponse(json_bytes(value), status, headers)

"""What requests that change something carry in headers: for which version they are meant, and why they are made."""

from __future__ import annotations

import re

from starlette.requests import Request

from app.api.errors import bad_request
from app.api.requests import header
from app.model.sentences import shown
from app.worker.views import StaleVersion

MAX_REASON_LENGTH = 1000
MAX_IDEMPOTENCY_KEY_LENGTH = 255

_ETAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\Z')
_VERSION = re.compile(r"[1-9][0-9]{0,14}\Z")
_IDEMPOTENCY_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_IDEMPOTENCY_KEY_LENGTH}}}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def etag(version: int) -> str:
    return f'"{version}"'


def if_match(request: Request, current: int, subject: str) -> int | None:
    """The version of If-Match; None without one or for `*`. ``subject`` begins a sentence: `The requirements are`.

    Raises:
        StaleVersion: it is an entity tag that can never be the current one.
    """
    value = header(request, "if-match")
    if value is None or value == "*":
        return None
    match = _ETAG.match(value)
    if match is None:
        raise bad_request(
            f'The header If-Match should be one entity tag as GET answers it, such as "{current}", found'
            f" {shown(value)}."
        )
    if match[1] or not _VERSION.match(match[2]):
        raise StaleVersion(f"{subject} at version {current}, not at {shown(value)} as If-Match demands.")
    return int(match[2])


def reason(request: Request) -> str | None:
    """Why the request is made, in free text."""
    value = header(request, "x-slotwise-reason")
    if value is None or not value:
        return None
    if len(value) > MAX_REASON_LENGTH or _CONTROL.search(value):
        raise bad_request(
            f"The header X-Slotwise-Reason should be at most {MAX_REASON_LENGTH} characters without control"
            " characters."
        )
    return value


def idempotency_key(request: Request) -> str | None:
    """What makes a repeated request the same one."""
    value = header(request, "idempotency-key")
    if value is not None and not _IDEMPOTENCY_KEY.match(value):
        raise bad_request(
            f"The header Idempotency-Key should be 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} visible ASCII"
            " characters."
        )
    return value

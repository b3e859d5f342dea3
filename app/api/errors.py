"""How a refusal becomes an answer: `{"errors": [...]}`, one sentence each, never a stack trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from app.api.answers import json_response
from app.worker.views import (
    ControlPlaneError,
    Fenced,
    InDoubt,
    InvalidRequest,
    StaleVersion,
    StateConflict,
    Unavailable,
    UnknownJob,
    UnknownOperation,
    UnknownRescale,
)

_STATUS: dict[type[ControlPlaneError], int] = {
    InvalidRequest: 400,
    UnknownJob: 404,
    UnknownRescale: 404,
    UnknownOperation: 404,
    StateConflict: 409,
    Fenced: 410,
    StaleVersion: 412,
    Unavailable: 503,
}

RETRY: Final = {"Retry-After": "1"}
"""The header of each 503: what kept the server from answering may be over soon."""
_SENTENCES_MAX = 1000
"""More than any job graph that is allowed can have of a kind."""


class ApiError(Exception):
    """A refusal that the API itself decides. Nothing was changed."""

    def __init__(self, status: int, *errors: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(" ".join(errors))
        self.status = status
        self.errors = list(errors)
        self.headers = dict(headers or {})


def bad_request(*errors: str) -> ApiError:
    return ApiError(400, *errors)


def not_found(sentence: str) -> ApiError:
    return ApiError(404, sentence)


def error_response(
    status: int, errors: list[str], headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """An error body. ``members`` are added to it."""
    if len(errors) > _SENTENCES_MAX:
        errors = [*errors[:_SENTENCES_MAX], f"There are {len(errors) - _SENTENCES_MAX} more errors."]
    return json_response({"errors": errors, **members}, status, headers)


def response_of(error: ApiError | ControlPlaneError) -> Response:
    """The answer that a refusal stands for."""
    if isinstance(error, ApiError):
        return error_response(error.status, error.errors, error.headers)
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 400)
    if isinstance(error, Fenced):
        return error_response(status, error.errors, fenced=True)
    again = status == 503 and not isinstance(error, InDoubt)
    headers = RETRY if again else None
    return error_response(status, error.errors, headers)

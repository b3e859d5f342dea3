"""Conversion of refusals to answers: `{"errors": [...]}`, one sentence each, never a stack trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import json_response
from app.model.sentences import shown
from app.worker.refusals import (
    BeyondLog,
    ControlPlaneError,
    Fenced,
    InDoubt,
    InvalidRequest,
    LogGone,
    NotYet,
    StaleVersion,
    StateConflict,
    Unavailable,
    UnknownAttempt,
    UnknownJob,
    UnknownOperation,
    UnknownRescale,
)

_STATUS: dict[type[ControlPlaneError], int] = {
    InvalidRequest: 400,
    UnknownJob: 404,
    UnknownRescale: 404,
    UnknownOperation: 404,
    UnknownAttempt: 404,
    StateConflict: 409,
    Fenced: 410,
    LogGone: 410,
    StaleVersion: 412,
    BeyondLog: 416,
    Unavailable: 503,
}

UNAUTHORIZED: Final = (
    "A bearer token is required: send the header 'Authorization: Bearer <token>' with a known token."
)
RETRY: Final = {"Retry-After": "1"}
"""The header of what may be over soon: of each 503, and of requests for which a job has not come far enough."""
_SENTENCES_MAX = 1000
"""More than any job graph that is allowed can have of a kind."""
_PLACES = {"path": "path parameter", "query": "query parameter", "header": "header"}


class ApiError(Exception):
    """A refusal that the API itself decides. Nothing was changed."""

    def __init__(self, status: int, *errors: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(" ".join(errors))
        self.status = status
        self.errors = list(errors)
        self.headers = dict(headers or {})


def unauthorized() -> ApiError:
    return ApiError(401, UNAUTHORIZED, headers={"WWW-Authenticate": 'Bearer realm="slotwise"'})


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
        return error_response(status, error.errors, fenced=True, home=error.home)
    again = isinstance(error, NotYet) or (status == 503 and not isinstance(error, InDoubt))
    headers = RETRY if again else None
    return error_response(status, error.errors, headers)


def add_error_handlers(app: FastAPI) -> None:
    """Have every refusal answered in the form of the contract."""
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(ControlPlaneError, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _not_routed)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError | ControlPlaneError)
    return response_of(error)


async def _not_valid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # Once, however many dependencies of an endpoint ask for the parameter.
    return error_response(400, list(dict.fromkeys(map(_sentence, error.errors()))))


def _sentence(error: Mapping[str, Any]) -> str:
    """A parameter that FastAPI refuses, in the words of its type (`app.api.parameters`)."""
    place, name = error["loc"][:2]
    what = error.get("ctx", {}).get("expected") or error["msg"]
    found = "it is missing" if error["input"] is None else f"found {shown(str(error['input']))}"
    return f"The {_PLACES[place]} {name} should be {what}, {found}."


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:200]
    if error.status_code == 404:
        return error_response(404, [f"There is nothing at {path}: see /docs for what there is."])
    if error.status_code == 405:
        allowed = (error.headers or {})["Allow"]
        sentence = f"The method {request.method[:20]} is not allowed on {path}: allowed are {allowed}."
        return error_response(405, [sentence], {"Allow": allowed})
    return error_response(error.status_code, [str(error.detail)], error.headers)

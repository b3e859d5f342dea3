"""The driver protocol (`app.model.protocol`): the calls of drivers. Each attempt has its own secret;
`ControlPlane._of_driver` refuses others.
"""

from __future__ import annotations

import dataclasses
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from fastapi import APIRouter, Depends, Query
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import json_response
from app.api.dependencies import Plane
from app.api.errors import bad_request
from app.api.parameters import MAX_NUMBER, JobId, WholeNumber
from app.api.pieces import Pieces, decode_json, no_json
from app.api.requests import decoded, header, read_body
from app.api.routes import DriverOperation
from app.model.protocol import REPORTS_LIMIT_BYTES, Orders, Registration, Report
from app.worker.job.attempt_record import REPORT
from app.worker.refusals import Fenced

REPORTS_PER_CALL = 1000
"""What a call has beyond them is not looked at: the driver sends again what is not acknowledged."""

_FIELDS_MAX = 100
_ERRORS_MAX = 10
_WORDS: Final = {"dataclass_type": "should be a JSON object", "missing": "is missing"}
_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_RESTARTS = re.compile(r"[0-9a-f]{1,64}:[0-9]{1,15}(?:,[0-9a-f]{1,64}:[0-9]{1,15}){0,999}\Z")

D = TypeVar("D")

_REGISTRATION: Final = TypeAdapter(Registration)

# Not that of users, whose bodies may be made to be read slowly.
_decoders = ThreadPoolExecutor(1, "decode-reports")

router = APIRouter(
    prefix="/internal/v1/jobs/{jobid}/attempts/{attempt}",
    include_in_schema=False,
    route_class=DriverOperation,
)


class _Caller(NamedTuple):
    job_id: str
    attempt: int
    secret: str
    epoch: int


async def _caller(request: Request, jobid: JobId, attempt: str, plane: Plane) -> _Caller:
    """Who calls, admitted by its secret before anything of the body is read."""
    epoch = header(request, "x-slotwise-epoch") or ""
    scheme, _, secret = (header(request, "authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Fenced("The secret of the attempt is missing.")
    if not _NUMBER.match(attempt) or not _NUMBER.match(epoch):
        raise bad_request("The attempt in the path and the header X-Slotwise-Epoch should be whole numbers.")
    caller = _Caller(jobid, int(attempt), secret.strip(), int(epoch))
    await plane.admit_driver(*caller)
    return caller


Caller = Annotated[_Caller, Depends(_caller)]
_Number = Annotated[int, WholeNumber(0, MAX_NUMBER), Query()]


@router.post("/register")
async def register(request: Request, caller: Caller, plane: Plane) -> Response:
    registration = _decode(_REGISTRATION, decode_json(await read_body(request)))
    return _orders(await plane.driver_register(*caller, registration))


@router.get("/orders")
async def orders(
    caller: Caller,
    plane: Plane,
    plan: _Number = 0,
    stop: str = "none",
    slots: Annotated[int | None, WholeNumber(0, MAX_NUMBER), Query()] = None,
    restarts: str = "",
    wait_ms: _Number = 0,
) -> Response:
    answer = await plane.driver_orders(
        *caller, plan=plan, stop=stop, slots=slots, restarts=_restarts(restarts), wait_ms=wait_ms
    )
    return _orders(answer)


def _restarts(text: str) -> dict[str, int]:
    """What `Orders.restarts_text` gives."""
    if text and not _RESTARTS.match(text):
        raise bad_request(
            "The parameter restarts should be <vertex id>:<number of the failure>, with commas between queries."
        )
    pairs = (one.partition(":") for one in text.split(",") if one)
    return {query_key: int(number) for query_key, _, number in pairs}


@router.post("/reports")
async def reports(request: Request, caller: Caller, plane: Plane) -> Response:
    taken = await decoded(_reports, await read_body(request, REPORTS_LIMIT_BYTES), _decoders)
    return json_response(dataclasses.asdict(await plane.driver_reports(*caller, taken)))


def _orders(answer: Orders) -> Response:
    return json_response(dataclasses.asdict(answer))


def _reports(body: bytes) -> list[Report]:
    """The first `REPORTS_PER_CALL` reports, decoded one by one; other fields of the body are passed over."""
    pieces = Pieces(body)
    found: list[Report] | None = None
    pieces.expect("{")
    for _ in range(_FIELDS_MAX):
        name = pieces.value()
        if not isinstance(name, str):
            raise no_json()
        pieces.expect(":")
        if name == "reports" and found is None:
            found = _listed(pieces)
            if len(found) >= REPORTS_PER_CALL:
                return found
        else:
            pieces.value()
        if not pieces.passes(","):
            break
    else:
        raise bad_request(f"The body has more than {_FIELDS_MAX} fields.")
    pieces.expect("}")
    if not pieces.is_at_end:
        raise no_json()
    if found is None:
        raise bad_request('The body should be {"reports": [...]}.')
    return found


def _listed(pieces: Pieces) -> list[Report]:
    if not pieces.passes("["):
        raise bad_request("The field reports should be an array.")
    found: list[Report] = []
    if pieces.passes("]"):
        return found
    while len(found) < REPORTS_PER_CALL:
        found.append(_decode(REPORT, pieces.value()))
        if not pieces.passes(","):
            pieces.expect("]")
            break
    return found


def _decode(kind: TypeAdapter[D], value: Any) -> D:
    """A protocol value from JSON. Unknown fields are passed over: a driver may be newer than its server."""
    try:
        # From JSON, since of values in Python nothing is a dataclass if numbers are to be numbers.
        return kind.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:_ERRORS_MAX]
        raise bad_request(*(_sentence(error.title, each) for each in found)) from None


def _sentence(kind: str, error: ErrorDetails) -> str:
    place = ".".join(str(part) for part in error["loc"])
    subject = f"The field {place} of a {kind}" if place else f"A {kind}"
    return f"{subject} {_WORDS.get(error['type']) or error['msg'].removeprefix('Input ')}."

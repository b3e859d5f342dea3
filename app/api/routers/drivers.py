"""The driver protocol (`app.model.protocol`): what drivers call. Their credentials are those of their
attempt.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from concurrent.futures import ThreadPoolExecutor
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import json_response
from app.api.dependencies import Plane
from app.api.errors import bad_request
from app.api.parameters import JobId, WholeNumber
from app.api.pieces import Pieces, decode_json, no_json
from app.api.requests import decoded, header, read_body
from app.api.routes import DriverOperation
from app.model import protocol
from app.model.batch import Result
from app.model.protocol import (
    REPORTS_LIMIT_BYTES,
    Acknowledgement,
    Orders,
    Registration,
    Report,
    VertexBatch,
)
from app.worker.views import Fenced

REPORTS_PER_CALL = 1000
"""What a call has beyond them is not looked at: the driver sends again what is not acknowledged."""

_MAX_WAIT_MS = 60_000
_MAX_NUMBER = 10**15
_FIELDS_MAX = 100
_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_RESTARTS = re.compile(r"[0-9a-f]{1,64}:[0-9]{1,15}(?:,[0-9a-f]{1,64}:[0-9]{1,15}){0,999}\Z")

D = TypeVar("D")

# Not that of users, whose bodies may be made to be read slowly.
_decoders = ThreadPoolExecutor(1, "decode-reports")

router = APIRouter(
    prefix="/internal/v1/jobs/{jobid}/attempts/{attempt}",
    include_in_schema=False,
    route_class=DriverOperation,
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Caller:
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
    await plane.admit_driver(caller.job_id, caller.attempt, caller.secret, caller.epoch)
    return caller


Caller = Annotated[_Caller, Depends(_caller)]
_Number = Annotated[int, WholeNumber(0, _MAX_NUMBER), Query()]


@router.post("/register")
async def register(request: Request, caller: Caller, plane: Plane) -> Response:
    registration = _decode(Registration, decode_json(await read_body(request)))
    orders = await plane.driver_register(
        caller.job_id, caller.attempt, caller.secret, caller.epoch, registration
    )
    return _orders(orders)


@router.get("/orders")
async def orders(
    caller: Caller,
    plane: Plane,
    plan: _Number = 0,
    stop: str = "none",
    slots: Annotated[int | None, WholeNumber(0, _MAX_NUMBER), Query()] = None,
    restarts: str = "",
    wait_ms: _Number = 0,
) -> Response:
    answer = await plane.driver_orders(
        caller.job_id,
        caller.attempt,
        caller.secret,
        caller.epoch,
        plan=plan,
        stop=stop,
        slots=slots,
        restarts=_restarts(restarts),
        wait_ms=min(wait_ms, _MAX_WAIT_MS),
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
    acknowledged = await plane.driver_reports(
        caller.job_id, caller.attempt, caller.secret, caller.epoch, taken
    )
    return json_response(dataclasses.asdict(Acknowledgement(acknowledged)))


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
        found.append(_report(pieces.value()))
        if not pieces.passes(","):
            pieces.expect("]")
            break
    return found


def _report(entry: Any) -> Report:
    if not isinstance(entry, dict):
        raise bad_request("A report should be a JSON object.")
    vertices = entry.get("vertices", [])
    if not isinstance(vertices, list):
        raise bad_request("The field vertices of a report should be an array.")
    nested: dict[str, Any] = {"vertices": tuple(_decode(VertexBatch, vertex) for vertex in vertices)}
    try:
        nested["results"] = tuple(Result.from_json(one) for one in entry.get("results", []))
        nested["lost"] = tuple(str(one) for one in entry.get("lost", []))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise bad_request(
            "The fields results and lost of a report should be arrays of what their names say."
        ) from None
    return _decode(Report, {**entry, **nested})


def _decode(kind: type[D], value: Any) -> D:
    """A protocol value from JSON. Unknown fields are passed over: a driver may be newer than its server."""
    if not isinstance(value, dict):
        raise bad_request(f"A {kind.__name__} should be a JSON object.")
    types = _types(kind.__name__)
    known = {name: entry for name, entry in value.items() if name in types}
    wrong = [name for name, entry in known.items() if not _fits(entry, types[name])]
    if wrong:
        raise bad_request(
            f"Fields of a {kind.__name__} are of another type than expected: {', '.join(wrong)}."
        )
    try:
        return kind(**known)
    except TypeError:
        raise bad_request(f"A {kind.__name__} lacks one of its fields: {', '.join(sorted(types))}.") from None


def _fits(value: Any, allowed: tuple[Any, ...]) -> bool:
    return type(value) in allowed or value in allowed


@functools.cache
def _types(name: str) -> dict[str, tuple[Any, ...]]:
    """Field to the types, or the values, that it may have, of the protocol value of this name."""
    result: dict[str, tuple[Any, ...]] = {}
    for field, hint in get_type_hints(getattr(protocol, name)).items():
        if get_origin(hint) in (Literal, UnionType):
            result[field] = get_args(hint)
        else:
            origin = get_origin(hint) or hint
            # JSON has one kind of number: a whole one may stand for a time in seconds.
            result[field] = (int, float) if origin is float else (origin,)
    return result

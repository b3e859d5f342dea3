"""GET and PUT of a job's share of the slots: its weight, its priority and its cap."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import EMPTY_OBJECT, BytesResponse, json_response
from app.api.context import Context
from app.api.errors import bad_request
from app.api.handlers.conditions import etag, idempotency_key, if_match, reason
from app.api.handlers.jobs import find_job
from app.api.requests import kind_of, query, read_json_object, requested_by
from app.model.sentences import shown
from app.model.slot_share import CAP_MAX, PRIORITY_MAX, WEIGHT_MAX
from app.worker.slot_shares import SlotShareUpdate

_FORM = '{"weight": 1, "priority": 0, "cap": null}'
RANGES: dict[str, tuple[int, int]] = {
    "weight": (1, WEIGHT_MAX),
    "priority": (-PRIORITY_MAX, PRIORITY_MAX),
    "cap": (1, CAP_MAX),
}


async def get(context: Context, request: Request) -> Response:
    query(request)
    share = find_job(context, request).state.share
    body = {"weight": share.weight, "priority": share.priority, "cap": share.cap}
    return json_response(body, headers={"ETag": etag(share.version)})


async def put(context: Context, request: Request) -> Response:
    query(request)
    view = find_job(context, request)
    version = if_match(request, view.state.share.version, "The slot share is")
    why = reason(request)
    key = idempotency_key(request)
    numbers = await read_json_object(request, parse_share, what=_FORM)
    update = SlotShareUpdate(
        **numbers,
        if_match=version,
        requested_by=requested_by(request),
        reason=why,
        idempotency_key=key,
    )
    in_force = await context.control_plane.update_slot_share(view.state.job_id, update)
    return BytesResponse(EMPTY_OBJECT, headers={"ETag": etag(in_force)})


def parse_share(document: dict[str, Any]) -> dict[str, Any]:
    """Weight, priority and cap of the body; all of them, so that none is changed by being forgotten.

    Raises:
        ApiError: 400 with every error.
    """
    errors = [
        f"The field {shown(name)} is not known: only {', '.join(RANGES)} are."
        for name in document
        if name not in RANGES
    ]
    for name, (lowest, highest) in RANGES.items():
        allowed = f"a whole number between {lowest} and {highest}" + (
            ", or null for none" if name == "cap" else ""
        )
        if name not in document:
            errors.append(f"The field {name} is missing: {allowed} is expected.")
            continue
        value = document[name]
        if name == "cap" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            errors.append(f"The field {name} should be {allowed}, found {kind_of(value)}.")
        elif not lowest <= value <= highest:
            errors.append(f"The field {name} should be {allowed}, found {shown(str(value))}.")
    if errors:
        raise bad_request(*errors)
    return {name: document[name] for name in RANGES}

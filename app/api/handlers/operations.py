"""Ending a job: cancel at once, or stop at a batch boundary and ask how that goes."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import EMPTY_OBJECT, BytesResponse, json_response
from app.api.context import Context
from app.api.errors import bad_request
from app.api.requests import kind_of, path_id, query, read_json_object, requested_by
from app.model.ids import InvalidId, normalize_id
from app.model.sentences import shown
from app.scheduler.adaptive.state import Stop

_STOP_FIELDS = ("targetDirectory", "drain", "formatType", "triggerId")
_FORMATS = ("CANONICAL", "NATIVE")


async def cancel(context: Context, request: Request) -> Response:
    mode = query(request, ("mode",)).get("mode")
    if mode != "cancel":
        # Flink takes a missing one for cancel. Its clients always send it, and a request that forgets what it wants
        # should not end a job.
        found = "it is missing" if mode is None else f"found {shown(mode)}"
        raise bad_request(
            f"The query parameter mode should be cancel, {found}; to stop a job, POST to /stop."
        )
    await context.control_plane.cancel(path_id(request, "jobid"), requested_by=requested_by(request))
    return BytesResponse(EMPTY_OBJECT, 202)


async def stop(context: Context, request: Request) -> Response:
    query(request)
    job_id = path_id(request, "jobid")
    wanted = await read_json_object(
        request, parse_stop, what='{} or {"triggerId": "<32 hexadecimal digits>"}', empty_ok=True
    )
    trigger_id = await context.control_plane.stop(
        job_id, trigger_id=wanted, requested_by=requested_by(request)
    )
    return json_response({"request-id": trigger_id}, 202)


def parse_stop(body: dict[str, Any]) -> str | None:
    """The trigger id that the client chose, if any. Accepts what Flink's own client sends."""
    errors = [
        f"The field {shown(name)} is not known; allowed: {', '.join(_STOP_FIELDS)}."
        for name in body
        if name not in _STOP_FIELDS
    ]
    if body.get("targetDirectory") is not None:
        errors.append(
            "The field targetDirectory is not supported: the job stops on its own checkpoint; leave it out."
        )
    drain = body.get("drain")
    if drain is not None and not isinstance(drain, bool):
        errors.append(f"The field drain should be true or false, found {kind_of(drain)}.")
    save_format = body.get("formatType")
    if save_format is not None and save_format not in _FORMATS:
        errors.append(
            f"The field formatType should be one of {', '.join(_FORMATS)}, found {kind_of(save_format)}."
        )
    trigger_id = body.get("triggerId")
    if trigger_id is not None:
        try:
            trigger_id = normalize_id(trigger_id) if isinstance(trigger_id, str) else None
        except InvalidId:
            trigger_id = None
        if trigger_id is None:
            errors.append("The field triggerId should be 32 hexadecimal digits.")
    if errors:
        raise bad_request(*errors)
    return trigger_id


async def stop_status(context: Context, request: Request) -> Response:
    query(request)
    stop_operation = context.control_plane.stop_operation(
        path_id(request, "jobid"), path_id(request, "triggerid")
    )
    return json_response(render_stop(stop_operation))


def render_stop(stop_operation: Stop) -> dict[str, Any]:
    """Flink's asynchronous operation: in progress, or completed with a location or a failure cause."""
    if stop_operation.state == "IN_PROGRESS":
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    if stop_operation.error is not None:
        cause = {"class": "StopFailed", "stack-trace": stop_operation.error}
        return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
    return {"status": {"id": "COMPLETED"}, "operation": {"location": stop_operation.location}}

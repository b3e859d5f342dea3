"""The rescale history of a job: overview, history, summary, configuration, details (FLIP-495)."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import BytesResponse, json_response
from app.api.context import Context
from app.api.handlers.jobs import find_job
from app.api.render import rescales as render
from app.api.requests import one_of, path_id, query, whole_number
from app.model.rescale import TerminalState, TriggerCause

DEFAULT_LIMIT = 50
MAX_LIMIT = 1000
_MAX_NUMBER = 10**15


async def history(context: Context, request: Request) -> Response:
    view = find_job(context, request)
    key = f"{view.state.job_id}{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
    timeline = view.state.timeline
    found = context.answers.find(key, timeline)
    if found is not None:
        return found
    parameters = query(request, ("limit", "after", "cause", "state"))
    limit = whole_number(parameters, "limit", 1, MAX_LIMIT) or DEFAULT_LIMIT
    after = whole_number(parameters, "after", 0, _MAX_NUMBER)
    cause = one_of(parameters, "cause", TriggerCause, [cause.value for cause in TriggerCause])
    state = one_of(parameters, "state", TerminalState, [state.value for state in TerminalState])
    # One more than asked for tells whether there is a next page.
    records = await context.control_plane.rescales(
        view.state.job_id, limit=limit + 1, after=after, cause=cause, state=state
    )
    page = records[:limit]
    graph = view.state.graph
    body = (
        b"[" + b",".join(context.records.bytes_of(view.state.job_id, record, graph) for record in page) + b"]"
    )
    headers = None
    if len(records) > limit:
        following = {**parameters, "limit": str(limit), "after": str(page[-1].number)}
        headers = {"Link": f'<{quote(request.scope["path"])}?{urlencode(following)}>; rel="next"'}
    return context.answers.keep(key, timeline, BytesResponse(body, headers=headers))


async def overview(context: Context, request: Request) -> Response:
    query(request)
    view = find_job(context, request)
    key = f"{view.state.job_id}/overview"
    timeline = view.state.timeline
    found = context.answers.find(key, timeline)
    if found is not None:
        return found
    latest = {}
    for state in (TerminalState.COMPLETED, TerminalState.FAILED, TerminalState.IGNORED):
        records = await context.control_plane.rescales(view.state.job_id, limit=1, state=state)
        latest[state.value.lower()] = render.rescale_record(records[0], view.state.graph) if records else None
    answer = json_response({"rescalesCounts": render.rescale_counts(view.state), "latest": latest})
    return context.answers.keep(key, timeline, answer)


async def summary(context: Context, request: Request) -> Response:
    query(request)
    view = find_job(context, request)
    key = f"{view.state.job_id}/summary"
    timeline = view.state.timeline
    found = context.answers.find(key, timeline)
    if found is not None:
        return found
    durations_ms = await context.control_plane.rescale_durations(view.state.job_id)
    answer = json_response(render.rescales_summary(view.state, durations_ms))
    return context.answers.keep(key, timeline, answer)


async def config(context: Context, request: Request) -> Response:
    query(request)
    return json_response(render.rescales_config(find_job(context, request).state))


async def details(context: Context, request: Request) -> Response:
    query(request)
    uuid = path_id(request, "rescaleuuid")
    view = find_job(context, request)
    record = await context.control_plane.rescale(view.state.job_id, uuid)
    return json_response(render.rescale_details(record, view.state, context.clock.now_ms()))

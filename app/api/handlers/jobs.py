"""Reading one job or all of them, and forgetting one."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import EMPTY_OBJECT, BytesResponse, json_bytes, json_response
from app.api.context import Context
from app.api.errors import bad_request, not_found
from app.api.render import explanation as render_explanation
from app.api.render import jobs as render
from app.api.render.decisions import decisions as render_decisions
from app.api.render.exceptions import exception_history
from app.api.render.execution import VertexExecution, vertex_executions
from app.api.render.metrics import AGGREGATIONS, aggregated_metrics, job_metrics, metric_list, vertex_metrics
from app.api.render.vertices import vertex_details
from app.api.requests import boolean, names, path_id, query, whole_number
from app.model.graphdoc import to_document
from app.model.masking import masked_document
from app.model.sentences import shown
from app.worker.unreadable import UnreadableJob
from app.worker.views import JobView

MAX_EXCEPTIONS = 1000
_JOBS_AT_A_TIME = 100


def find_job(context: Context, request: Request) -> JobView:
    """The job that the path names."""
    return context.control_plane.job(path_id(request, "jobid"))


async def list_jobs(context: Context, request: Request) -> Response:
    query(request)
    plane = context.control_plane
    return json_response(render.job_list(render.newest_first(plane.jobs(), plane.unreadable_jobs())))


async def overview(context: Context, request: Request) -> Response:
    query(request)
    now_ms, plane = context.clock.now_ms(), context.control_plane
    parts = []
    for number, job in enumerate(render.newest_first(plane.jobs(), plane.unreadable_jobs()), 1):
        if isinstance(job, UnreadableJob):
            parts.append(json_bytes(render.unreadable_overview(job, now_ms)))
        else:
            parts.append(context.ended_jobs.bytes_of(job) or json_bytes(render.job_overview(job, now_ms)))
        if number % _JOBS_AT_A_TIME == 0:
            # Thousands of jobs take long to render: other requests have their turn in between.
            await asyncio.sleep(0)
    return BytesResponse(b'{"jobs":[' + b",".join(parts) + b"]}")


async def details(context: Context, request: Request) -> Response:
    query(request)
    return json_response(render.job_details(find_job(context, request), context.clock.now_ms()))


async def plan(context: Context, request: Request) -> Response:
    query(request)
    return json_response({"plan": render.job_plan(find_job(context, request))})


async def graph(context: Context, request: Request) -> Response:
    query(request)
    return json_response(masked_document(to_document(find_job(context, request).state.graph)))


async def config(context: Context, request: Request) -> Response:
    query(request)
    return json_response(render.job_config(find_job(context, request)))


async def status(context: Context, request: Request) -> Response:
    query(request)
    job_id = path_id(request, "jobid")
    # It stands beside what may not be readable.
    known = {job.job_id: job.status for job in context.control_plane.unreadable_jobs()}
    found = known.get(job_id) or context.control_plane.job(job_id).status
    return json_response({"status": found.value})


async def execution_result(context: Context, request: Request) -> Response:
    query(request)
    return json_response(render.execution_result(find_job(context, request)))


async def exceptions(context: Context, request: Request) -> Response:
    parameters = query(request, ("maxExceptions",))
    maximum = whole_number(parameters, "maxExceptions", 1, MAX_EXCEPTIONS)
    return json_response(exception_history(find_job(context, request).state, maximum))


async def decisions(context: Context, request: Request) -> Response:
    parameters = query(request, ("detail",))
    view = find_job(context, request)
    return json_response(render_decisions(view, with_groups=boolean(parameters, "detail")))


async def explain(context: Context, request: Request) -> Response:
    query(request)
    return json_response(
        render_explanation.explanation(context.control_plane.explanation(path_id(request, "jobid")))
    )


async def forget(context: Context, request: Request) -> Response:
    query(request)
    await context.control_plane.forget(path_id(request, "jobid"))
    return BytesResponse(EMPTY_OBJECT)


async def metrics(context: Context, request: Request) -> Response:
    parameters = query(request, ("get",))
    values = job_metrics(find_job(context, request), context.clock.now_ms())
    return json_response(metric_list(values, names(parameters, "get")))


async def vertex(context: Context, request: Request) -> Response:
    query(request)
    view = find_job(context, request)
    return json_response(vertex_details(view, _find_vertex(view, request), context.clock.now_ms()))


async def vertex_subtask_metrics(context: Context, request: Request) -> Response:
    parameters = query(request, ("get", "agg"))
    view = find_job(context, request)
    execution = _find_vertex(view, request)
    aggregations = parameters["agg"].split(",") if "agg" in parameters else AGGREGATIONS
    unknown = [name for name in aggregations if name not in AGGREGATIONS]
    if unknown:
        raise bad_request(
            f"The query parameter agg should list some of {', '.join(AGGREGATIONS)}, found"
            f" {shown(unknown[0])}."
        )
    values = vertex_metrics(view, execution.vertex.id, context.clock.now_ms())
    return json_response(aggregated_metrics(values, names(parameters, "get"), aggregations))


def _find_vertex(view: JobView, request: Request) -> VertexExecution:
    vertex_id = path_id(request, "vertexid")
    for execution in vertex_executions(view):
        if execution.vertex.id == vertex_id:
            return execution
    raise not_found(f"Job vertex {vertex_id} was not found in job {view.state.job_id}.")

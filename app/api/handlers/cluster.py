"""The server itself: configuration, overview, TaskManagers, health."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import BytesResponse, json_response
from app.api.context import Context
from app.api.errors import RETRY, error_response, not_found
from app.api.handlers.jobs import find_job
from app.api.render import cluster as render
from app.api.render.metrics import metric_list, server_metrics
from app.api.requests import names, query
from app.model.sentences import shown
from app.store.errors import StoreError
from app.worker.views import Unavailable


async def config(context: Context, request: Request) -> Response:
    query(request)
    return json_response(render.dashboard_config(context.info))


async def overview(context: Context, request: Request) -> Response:
    query(request)
    plane = context.control_plane
    statuses = [view.status for view in plane.jobs()]
    statuses += [job.status for job in plane.unreadable_jobs()]
    return json_response(render.cluster_overview(context.info, plane.task_managers(), statuses))


async def configuration(context: Context, request: Request) -> Response:
    query(request)
    return json_response(render.configuration(context.info))


async def job_configuration(context: Context, request: Request) -> Response:
    """The same for every job: there is no JobManager of its own for one."""
    query(request)
    find_job(context, request)
    return json_response(render.configuration(context.info))


async def metrics(context: Context, request: Request) -> Response:
    parameters = query(request, ("get",))
    plane = context.control_plane
    values = server_metrics(plane.task_managers(), plane.jobs())
    return json_response(metric_list(values, names(parameters, "get")))


async def task_managers(context: Context, request: Request) -> Response:
    query(request)
    plane = context.control_plane
    views, now_ms = plane.jobs(), context.clock.now_ms()
    managers = [render.task_manager(manager, views, now_ms) for manager in plane.task_managers()]
    return json_response({"taskmanagers": managers})


async def task_manager(context: Context, request: Request) -> Response:
    query(request)
    wanted: str = request.scope["path_params"]["taskmanagerid"]
    plane = context.control_plane
    for manager in plane.task_managers():
        if manager.id == wanted:
            return json_response(render.task_manager_details(manager, plane.jobs(), context.clock.now_ms()))
    raise not_found(f"No TaskManager has the id {shown(wanted)}.")


async def members(context: Context, request: Request) -> Response:
    query(request)
    cluster = context.cluster
    if cluster is None or not cluster.is_shared:
        lone = render.lone_member(context.info, context.control_plane.jobs())
        why = render.why_alone(context.info.settings)
        return json_response({"shared": False, "alone": why, "members": [lone]})
    try:
        found = await cluster.members()
    except StoreError as error:
        raise Unavailable(str(error)) from error
    listed = [render.member(one) for one in found]
    return json_response({"shared": True, "alone": None, "members": listed})


async def live(context: Context, request: Request) -> Response:
    query(request)
    return BytesResponse(b'{"status":"live"}')


async def ready(context: Context, request: Request) -> Response:
    query(request)
    reasons = await context.control_plane.ready()
    if reasons:
        return error_response(503, reasons, RETRY)
    warnings = [*context.info.warnings(), *context.control_plane.warnings()]
    return json_response({"status": "ready", "warnings": warnings})

"""The server itself: configuration, overview, TaskManagers, members, health."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import BytesResponse, json_response
from app.api.dependencies import Info, Job, Now, Plane
from app.api.documents import PUBLIC, refusals
from app.api.errors import RETRY, error_response, not_found
from app.api.parameters import TaskManagerId
from app.api.render import cluster as render
from app.api.routes import LocalOperation, Operation
from app.api.schema import cluster as schema
from app.model.sentences import shown
from app.store.errors import StoreError
from app.worker.views import Unavailable

router = APIRouter(tags=["cluster"], route_class=Operation)
health = APIRouter(prefix="/health", tags=["health"], route_class=LocalOperation)


@router.get("/config", response_model=schema.DashboardConfig)
async def get_config(info: Info) -> Response:
    """What Flink's dashboard asks first"""
    return json_response(render.dashboard_config(info))


@router.get("/overview", response_model=schema.ClusterOverview)
async def get_overview(plane: Plane, info: Info) -> Response:
    """Slots and jobs in numbers"""
    statuses = [view.status for view in plane.jobs()]
    statuses += [job.status for job in plane.unreadable_jobs()]
    return json_response(render.cluster_overview(info, plane.task_managers(), statuses))


@router.get("/jobmanager/config", response_model=list[schema.ConfigurationEntry])
async def get_server_settings(info: Info) -> Response:
    """The settings of this server"""
    return json_response(render.configuration(info))


@router.get("/jobs/{jobid}/jobmanager/config", response_model=list[schema.ConfigurationEntry])
async def get_job_server_settings(_: Job, info: Info) -> Response:
    """The settings of the server that runs a job"""
    return json_response(render.configuration(info))


@router.get("/taskmanagers", response_model=schema.TaskManagers)
async def list_task_managers(plane: Plane, now_ms: Now) -> Response:
    """What offers slots"""
    views = plane.jobs()
    managers = [render.task_manager(manager, views, now_ms) for manager in plane.task_managers()]
    return json_response({"taskmanagers": managers})


@router.get("/taskmanagers/{taskmanagerid}", response_model=schema.TaskManagerDetails)
async def get_task_manager(taskmanagerid: TaskManagerId, plane: Plane, now_ms: Now) -> Response:
    """One TaskManager with its slots"""
    for manager in plane.task_managers():
        if manager.id == taskmanagerid:
            return json_response(render.task_manager_details(manager, plane.jobs(), now_ms))
    raise not_found(f"No TaskManager has the id {shown(taskmanagerid)}.")


@router.get("/cluster/members", response_model=schema.Members)
async def list_members(request: Request, plane: Plane, info: Info) -> Response:
    """The servers that share the jobs, and how many jobs each owns"""
    cluster = request.app.state.cluster
    if cluster is None or not cluster.is_shared:
        lone = render.lone_member(info, plane.jobs())
        return json_response({"shared": False, "alone": render.why_alone(info.settings), "members": [lone]})
    try:
        found = await cluster.members()
    except StoreError as error:
        raise Unavailable(str(error)) from error
    return json_response({"shared": True, "alone": None, "members": [render.member(one) for one in found]})


@health.get("/live", response_model=schema.Live, openapi_extra=PUBLIC)
async def get_live() -> Response:
    """Whether the server runs"""
    return BytesResponse(b'{"status":"live"}')


@health.get(
    "/ready",
    response_model=schema.Ready,
    responses=refusals({503: "The database cannot be read, or the last write failed."}),
    openapi_extra=PUBLIC,
)
async def get_ready(plane: Plane, info: Info) -> Response:
    """Whether the server can serve"""
    reasons = await plane.ready()
    if reasons:
        return error_response(503, reasons, RETRY)
    return json_response({"status": "ready", "warnings": [*info.warnings(), *plane.warnings()]})

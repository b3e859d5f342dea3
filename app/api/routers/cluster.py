"""The server itself: configuration, overview, TaskManagers, members, health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request

from app.api.dependencies import Info, Job, Now, Plane
from app.api.errors import RETRY, ApiError, not_found
from app.api.openapi import refusals
from app.api.parameters import TaskManagerId
from app.api.render import cluster as render
from app.api.routes import Operation, PublicOperation
from app.api.schema import cluster as schema
from app.model.sentences import shown
from app.store.errors import StoreError
from app.worker.refusals import Unavailable
from app.worker.views import TaskManager

router = APIRouter(tags=["cluster"], route_class=Operation)
health = APIRouter(prefix="/health", tags=["health"], route_class=PublicOperation)


@router.get("/config")
async def get_config(info: Info) -> schema.DashboardConfig:
    """The configuration that Flink's dashboard requests first"""
    return render.dashboard_config(info)


@router.get("/overview")
async def get_overview(plane: Plane, info: Info) -> schema.ClusterOverview:
    """Numbers of slots and jobs"""
    statuses = [view.status for view in plane.jobs()]
    statuses += [job.status for job in plane.unreadable_jobs()]
    return render.cluster_overview(info, plane.task_managers(), statuses)


@router.get("/jobmanager/config")
async def get_server_settings(info: Info) -> list[schema.ConfigurationEntry]:
    """The settings of this server"""
    return render.configuration(info)


@router.get("/jobs/{jobid}/jobmanager/config")
async def get_job_server_settings(job: Job, info: Info) -> list[schema.ConfigurationEntry]:
    """The settings of the server that runs a job, and the job's own"""
    return render.job_configuration(info, job)


@router.get("/taskmanagers")
async def list_task_managers(plane: Plane, now_ms: Now) -> schema.TaskManagers:
    """The TaskManagers, which offer slots"""
    views = plane.jobs()
    managers = [render.task_manager(manager, views, now_ms) for manager in plane.task_managers()]
    return schema.TaskManagers(taskmanagers=managers)


async def manager_of_path(taskmanagerid: TaskManagerId, plane: Plane) -> TaskManager:
    for manager in plane.task_managers():
        if manager.id == taskmanagerid:
            return manager
    raise not_found(f"No TaskManager has the id {shown(taskmanagerid)}.")


Manager = Annotated[TaskManager, Depends(manager_of_path)]
"""The TaskManager that the path names."""


@router.get("/taskmanagers/{taskmanagerid}")
async def get_task_manager(manager: Manager, plane: Plane, now_ms: Now) -> schema.TaskManagerDetails:
    """One TaskManager with its slots"""
    return render.task_manager_details(manager, plane.jobs(), now_ms)


@router.get("/cluster/members")
async def list_members(request: Request, plane: Plane, info: Info) -> schema.Members:
    """The servers that share the jobs, and how many jobs each owns"""
    control_planes = request.app.state.control_planes
    if control_planes is None or not control_planes.is_shared:
        lone = render.lone_member(info, plane.jobs())
        return schema.Members(shared=False, alone=render.why_alone(info.settings), members=[lone])
    try:
        found = await control_planes.members()
    except StoreError as error:
        raise Unavailable(str(error)) from error
    return schema.Members(shared=True, alone=None, members=[render.member(one) for one in found])


@health.get("/live")
async def get_live() -> schema.Live:
    """Whether the server runs"""
    return schema.Live(status="live")


@health.get("/ready", responses=refusals({503: "The database cannot be read, or the last write failed."}))
async def get_ready(plane: Plane, info: Info) -> schema.Ready:
    """Whether the server can serve"""
    reasons = await plane.ready()
    if reasons:
        raise ApiError(503, *reasons, headers=RETRY)
    return schema.Ready(status="ready", warnings=[*info.warnings(), *plane.warnings()])

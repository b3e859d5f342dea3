"""The cluster as Flink's REST API shows it: overview, configuration, and TaskManagers, which here offer cores as slots.

Numbers that Flink has and a host or a Spark worker has not (ports, memory segments, heap of a TaskManager's
JVM) are -1, Flink's own mark for what is not known.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from app.api.info import ServerInfo
from app.api.render.jobs import user_config
from app.api.render.rescales import cores
from app.api.schema import cluster as schema
from app.api.schema.base import made_of
from app.model.clustersettings import KUBERNETES
from app.model.status import JobStatus
from app.settings import Settings
from app.store.members import Member
from app.worker.ownership.control_planes import MemberView
from app.worker.views import JobView, TaskManager

FLINK_API_VERSION = "2.3.0"
"""The release of Flink whose REST API this one follows."""

_UNKNOWN = -1
_UNKNOWN_MEMORY = dict.fromkeys(
    (
        "frameworkHeap", "taskHeap", "frameworkOffHeap", "taskOffHeap", "networkMemory", "managedMemory",
        "jvmMetaspace", "jvmOverhead", "totalFlinkMemory", "totalProcessMemory",
    ),
    _UNKNOWN,
)  # fmt: skip
_UNKNOWN_METRICS = dict.fromkeys(
    (
        "heapUsed", "heapCommitted", "heapMax", "nonHeapUsed", "nonHeapCommitted", "nonHeapMax", "directCount",
        "directUsed", "directMax", "mappedCount", "mappedUsed", "mappedMax", "nettyShuffleMemorySegmentsAvailable",
        "nettyShuffleMemorySegmentsUsed", "nettyShuffleMemorySegmentsTotal", "nettyShuffleMemoryAvailable",
        "nettyShuffleMemoryUsed", "nettyShuffleMemoryTotal",
    ),
    _UNKNOWN,
)  # fmt: skip


def dashboard_config(info: ServerInfo) -> schema.DashboardConfig:
    return schema.DashboardConfig(
        refresh_interval=3000,
        timezone_name="Coordinated Universal Time",
        timezone_offset=0,
        flink_version=FLINK_API_VERSION,
        flink_revision=f"slotwise {info.version}",
        features=schema.Features(web_submit=False, web_cancel=False, web_rescale=True, web_history=False),
        slotwise_version=info.version,
    )


def cluster_overview(
    info: ServerInfo, managers: Sequence[TaskManager], statuses: Sequence[JobStatus]
) -> schema.ClusterOverview:
    """``statuses``: of all jobs."""
    return schema.ClusterOverview(
        taskmanagers=len(managers),
        slots_total=sum(manager.slots for manager in managers),
        slots_available=sum(manager.free_slots for manager in managers),
        jobs_running=sum(1 for status in statuses if not status.is_globally_terminal),
        jobs_finished=statuses.count(JobStatus.FINISHED),
        jobs_cancelled=statuses.count(JobStatus.CANCELED),
        jobs_failed=statuses.count(JobStatus.FAILED),
        flink_version=FLINK_API_VERSION,
        flink_commit=f"slotwise {info.version}",
        slotwise_version=info.version,
    )


def configuration(info: ServerInfo) -> list[schema.ConfigurationEntry]:
    return [schema.ConfigurationEntry(key=key, value=value) for key, value in info.shown_settings().items()]


def job_configuration(info: ServerInfo, view: JobView) -> list[schema.ConfigurationEntry]:
    """The settings of the server, and the job's own. Flink's autoscaler looks here for the scheduler, and for its own
    settings."""
    own = {
        name: value for name, value in user_config(view.state.graph).items() if not name.startswith("spark.")
    }
    settings = {**info.shown_settings(), **own, "jobmanager.scheduler": "adaptive"}
    return [schema.ConfigurationEntry(key=key, value=value) for key, value in settings.items()]


def task_manager(manager: TaskManager, views: Sequence[JobView], now_ms: int) -> schema.TaskManager:
    return schema.TaskManager(**_of_task_manager(manager, allocated_slots(manager, views), now_ms))


def task_manager_details(
    manager: TaskManager, views: Sequence[JobView], now_ms: int
) -> schema.TaskManagerDetails:
    slots = allocated_slots(manager, views)
    return schema.TaskManagerDetails(
        **_of_task_manager(manager, slots, now_ms),
        allocated_slots=slots,
        metrics={**_UNKNOWN_METRICS, "garbageCollectors": []},
    )


def _of_task_manager(
    manager: TaskManager, slots: Sequence[schema.AllocatedSlot], now_ms: int
) -> dict[str, Any]:
    """The fields of a TaskManager, with its details and without."""
    return {
        "id": manager.id,
        "path": manager.host,
        "data_port": _UNKNOWN,
        "jmx_port": _UNKNOWN,
        "time_since_last_heartbeat": now_ms,
        "slots_number": manager.slots,
        "free_slots": manager.free_slots,
        "assigned_tasks": sum(slot.assigned_tasks for slot in slots),
        "total_resource": cores(manager.slots),
        "free_resource": cores(manager.free_slots),
        "hardware": made_of(schema.Hardware, manager, managed_memory=_UNKNOWN),
        "memory_configuration": {**_UNKNOWN_MEMORY, "totalProcessMemory": manager.memory_bytes},
    }


def allocated_slots(manager: TaskManager, views: Sequence[JobView]) -> list[schema.AllocatedSlot]:
    """The slots of a TaskManager that jobs hold. A slot's tasks are one of each vertex whose parallelism reaches it."""
    result = []
    for view in views:
        plan = view.state.plan
        parallelism = {} if plan is None else dict(plan.parallelism)
        group_slots = {} if plan is None else dict(plan.group_slots)
        tasks: dict[str, int] = {}
        for vertex in view.state.graph.vertices:
            for slot_id in group_slots.get(vertex.slot_sharing_group, ())[: parallelism.get(vertex.id, 0)]:
                tasks[slot_id] = tasks.get(slot_id, 0) + 1
        for slot in view.state.slots:
            if slot.task_manager_id == manager.id:
                assigned = tasks.get(slot.id, 0)
                result.append(
                    schema.AllocatedSlot(job_id=view.state.job_id, resource=cores(1), assigned_tasks=assigned)
                )
    return result


def member(view: MemberView) -> schema.Member:
    one = view.member
    return made_of(
        schema.Member,
        one,
        id=one.member_id.rpartition("/")[2],
        cluster=one.cluster or None,
        jobs=view.jobs,
        state="ALIVE" if view.is_alive else "LOST",
        joined_timestamp_ms=view.joined_ms,
        is_self=view.is_self,
        is_arbiter=view.is_arbiter,
    )


def why_alone(settings: Settings) -> str:
    """Why no other server can share the jobs of this one."""
    if settings.cluster_kind == KUBERNETES:
        return (
            "No other server can share these jobs: one server offers the slots of a namespace of Kubernetes."
        )
    return "No other server can share these jobs: that takes a PostgreSQL database."


def lone_member(info: ServerInfo, views: Sequence[JobView]) -> schema.Member:
    """This server, where no other one can share its jobs."""
    host = socket.gethostname()
    one = Member(
        member_id=f"{host}-{os.getpid()}",
        home="",
        seat=1,
        url=info.url,
        host=host,
        place="",
        pid=os.getpid(),
        version=info.version,
        slots=info.slots,
        cluster=info.settings.cluster_master or "",
    )
    jobs = sum(1 for view in views if not view.status.is_globally_terminal)
    return member(MemberView(one, info.started_ms, is_alive=True, jobs=jobs, is_self=True))

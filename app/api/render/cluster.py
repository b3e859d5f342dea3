"""The cluster as Flink's REST API shows it: overview, configuration, and TaskManagers, which here offer cores
as slots.

Numbers that Flink has and a host or a Spark worker has not (ports, memory segments, heap of a TaskManager's
JVM) are -1, Flink's own mark for what is not known.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from app.api.info import ServerInfo
from app.model.clustersettings import KUBERNETES
from app.model.status import JobStatus
from app.settings import Settings
from app.store.members import Member
from app.worker.control_planes import MemberView
from app.worker.views import JobView, TaskManager

FLINK_API_VERSION = "2.3.0"
"""The release of Flink whose REST API this one follows."""

UNKNOWN = -1

MEMORY_PARTS = (
    "frameworkHeap",
    "taskHeap",
    "frameworkOffHeap",
    "taskOffHeap",
    "networkMemory",
    "managedMemory",
    "jvmMetaspace",
    "jvmOverhead",
    "totalFlinkMemory",
)
TASK_MANAGER_METRICS = (
    "heapUsed",
    "heapCommitted",
    "heapMax",
    "nonHeapUsed",
    "nonHeapCommitted",
    "nonHeapMax",
    "directCount",
    "directUsed",
    "directMax",
    "mappedCount",
    "mappedUsed",
    "mappedMax",
    "nettyShuffleMemorySegmentsAvailable",
    "nettyShuffleMemorySegmentsUsed",
    "nettyShuffleMemorySegmentsTotal",
    "nettyShuffleMemoryAvailable",
    "nettyShuffleMemoryUsed",
    "nettyShuffleMemoryTotal",
)


def dashboard_config(info: ServerInfo) -> dict[str, Any]:
    return {
        "refresh-interval": 3000,
        "timezone-name": "Coordinated Universal Time",
        "timezone-offset": 0,
        "flink-version": FLINK_API_VERSION,
        "flink-revision": f"slotwise {info.version}",
        "features": {"web-submit": False, "web-cancel": True, "web-rescale": True, "web-history": False},
        "slotwise-version": info.version,
    }


def cluster_overview(
    info: ServerInfo, managers: Sequence[TaskManager], statuses: Sequence[JobStatus]
) -> dict[str, Any]:
    """``statuses``: of all jobs."""
    return {
        "taskmanagers": len(managers),
        "slots-total": sum(manager.slots for manager in managers),
        "slots-available": sum(manager.free_slots for manager in managers),
        "jobs-running": sum(1 for status in statuses if not status.is_globally_terminal),
        "jobs-finished": statuses.count(JobStatus.FINISHED),
        "jobs-cancelled": statuses.count(JobStatus.CANCELED),
        "jobs-failed": statuses.count(JobStatus.FAILED),
        "flink-version": FLINK_API_VERSION,
        "flink-commit": f"slotwise {info.version}",
        "slotwise-version": info.version,
    }


def configuration(info: ServerInfo) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in info.shown_settings().items()]


def task_manager(manager: TaskManager, views: Sequence[JobView], now_ms: int) -> dict[str, Any]:
    return {
        "id": manager.id,
        "path": manager.host,
        "dataPort": UNKNOWN,
        "jmxPort": UNKNOWN,
        "timeSinceLastHeartbeat": now_ms,
        "slotsNumber": manager.slots,
        "freeSlots": manager.free_slots,
        "assignedTasks": sum(slot["assignedTasks"] for slot in allocated_slots(manager, views)),
        "totalResource": _cores(manager.slots),
        "freeResource": _cores(manager.free_slots),
        "hardware": {
            "cpuCores": manager.cpu_cores,
            "physicalMemory": manager.memory_bytes,
            "freeMemory": manager.free_memory_bytes,
            "managedMemory": UNKNOWN,
        },
        "memoryConfiguration": {
            **dict.fromkeys(MEMORY_PARTS, UNKNOWN),
            "totalProcessMemory": manager.memory_bytes,
        },
    }


def task_manager_details(manager: TaskManager, views: Sequence[JobView], now_ms: int) -> dict[str, Any]:
    return {
        **task_manager(manager, views, now_ms),
        "allocatedSlots": allocated_slots(manager, views),
        "metrics": {**dict.fromkeys(TASK_MANAGER_METRICS, UNKNOWN), "garbageCollectors": []},
    }


def allocated_slots(manager: TaskManager, views: Sequence[JobView]) -> list[dict[str, Any]]:
    """The slots of a TaskManager that jobs hold. A slot's tasks are one of each vertex whose parallelism
    reaches it.
    """
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
                result.append(
                    {
                        "jobId": view.state.job_id,
                        "resource": _cores(1),
                        "assignedTasks": tasks.get(slot.id, 0),
                    }
                )
    return result


def member(view: MemberView) -> dict[str, Any]:
    one = view.member
    return {
        "id": one.member_id.rpartition("/")[2],
        "url": one.url,
        "host": one.host,
        "pid": one.pid,
        "version": one.version,
        "seat": one.seat,
        "slots": one.slots,
        "cluster": one.cluster or None,
        "taskManager": one.task_manager,
        "jobs": view.jobs,
        "state": "ALIVE" if view.is_alive else "LOST",
        "joinedTimestampInMillis": view.joined_ms,
        "isSelf": view.is_self,
        "isArbiter": view.is_arbiter,
    }


def why_alone(settings: Settings) -> str:
    """Why no other server can share the jobs of this one."""
    if settings.cluster_kind == KUBERNETES:
        return (
            "No other server can share these jobs: one server offers the slots of a namespace of Kubernetes."
        )
    return "No other server can share these jobs: that takes a PostgreSQL database."


def lone_member(info: ServerInfo, views: Sequence[JobView]) -> dict[str, Any]:
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


def _cores(count: int) -> dict[str, Any]:
    return {
        "cpuCores": float(count),
        "taskHeapMemory": 0,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
        "extendedResources": {},
    }

"""The server, its TaskManagers, its health."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.api.schema.base import Id, Millis, Schema
from app.api.schema.rescales import ResourceProfile


class Features(Schema):
    submit: bool = Field(alias="web-submit")
    cancel: bool = Field(alias="web-cancel")
    rescale: bool = Field(alias="web-rescale")
    history: bool = Field(alias="web-history")


class DashboardConfig(Schema):
    refresh_interval: int = Field(alias="refresh-interval")
    timezone_name: str = Field(alias="timezone-name")
    timezone_offset: int = Field(alias="timezone-offset")
    flink_version: str = Field(
        alias="flink-version", description="The release of Flink whose REST API is followed."
    )
    flink_revision: str = Field(alias="flink-revision")
    features: Features
    slotwise_version: str = Field(alias="slotwise-version")


class ClusterOverview(Schema):
    taskmanagers: int
    slots_total: int = Field(alias="slots-total")
    slots_available: int = Field(alias="slots-available")
    jobs_running: int = Field(alias="jobs-running", description="Jobs that have not ended.")
    jobs_finished: int = Field(alias="jobs-finished")
    jobs_cancelled: int = Field(alias="jobs-cancelled")
    jobs_failed: int = Field(alias="jobs-failed")
    flink_version: str = Field(alias="flink-version")
    flink_commit: str = Field(alias="flink-commit")
    slotwise_version: str = Field(alias="slotwise-version")


class ConfigurationEntry(Schema):
    key: str
    value: str


class Hardware(Schema):
    cpu_cores: int = Field(alias="cpuCores")
    physical_memory: int = Field(alias="physicalMemory", description="Bytes.")
    free_memory: int = Field(alias="freeMemory", description="Bytes.")
    managed_memory: int = Field(alias="managedMemory", description="-1: not known.")


class MemoryConfiguration(Schema):
    """Bytes; -1 for Flink's parts of a TaskManager's memory, which a host does not have."""

    framework_heap: int = Field(alias="frameworkHeap")
    task_heap: int = Field(alias="taskHeap")
    framework_off_heap: int = Field(alias="frameworkOffHeap")
    task_off_heap: int = Field(alias="taskOffHeap")
    network: int = Field(alias="networkMemory")
    managed: int = Field(alias="managedMemory")
    metaspace: int = Field(alias="jvmMetaspace")
    overhead: int = Field(alias="jvmOverhead")
    total_flink: int = Field(alias="totalFlinkMemory")
    total_process: int = Field(alias="totalProcessMemory")


class TaskManager(Schema):
    id: str
    path: str
    data_port: int = Field(alias="dataPort")
    jmx_port: int = Field(alias="jmxPort")
    heartbeat: Millis = Field(
        alias="timeSinceLastHeartbeat", description="When it was last seen, epoch milliseconds."
    )
    slots: int = Field(alias="slotsNumber")
    free_slots: int = Field(alias="freeSlots")
    assigned_tasks: int = Field(alias="assignedTasks")
    total: ResourceProfile = Field(alias="totalResource")
    free: ResourceProfile = Field(alias="freeResource")
    hardware: Hardware
    memory: MemoryConfiguration = Field(alias="memoryConfiguration")


class TaskManagers(Schema):
    taskmanagers: list[TaskManager]


class AllocatedSlot(Schema):
    job_id: Id = Field(alias="jobId")
    resource: ResourceProfile
    assigned_tasks: int = Field(alias="assignedTasks")


class GarbageCollector(Schema):
    name: str
    count: int
    time: int


class TaskManagerMetrics(Schema):
    """Of the JVM of a Flink TaskManager: -1, not known."""

    heap_used: int = Field(alias="heapUsed")
    heap_committed: int = Field(alias="heapCommitted")
    heap_max: int = Field(alias="heapMax")
    non_heap_used: int = Field(alias="nonHeapUsed")
    non_heap_committed: int = Field(alias="nonHeapCommitted")
    non_heap_max: int = Field(alias="nonHeapMax")
    direct_count: int = Field(alias="directCount")
    direct_used: int = Field(alias="directUsed")
    direct_max: int = Field(alias="directMax")
    mapped_count: int = Field(alias="mappedCount")
    mapped_used: int = Field(alias="mappedUsed")
    mapped_max: int = Field(alias="mappedMax")
    segments_available: int = Field(alias="nettyShuffleMemorySegmentsAvailable")
    segments_used: int = Field(alias="nettyShuffleMemorySegmentsUsed")
    segments_total: int = Field(alias="nettyShuffleMemorySegmentsTotal")
    netty_available: int = Field(alias="nettyShuffleMemoryAvailable")
    netty_used: int = Field(alias="nettyShuffleMemoryUsed")
    netty_total: int = Field(alias="nettyShuffleMemoryTotal")
    collectors: list[GarbageCollector] = Field(alias="garbageCollectors")


class TaskManagerDetails(TaskManager):
    allocated_slots: list[AllocatedSlot] = Field(alias="allocatedSlots")
    metrics: TaskManagerMetrics


class Member(Schema):
    id: str
    url: str = Field(description="Where it listens.")
    host: str
    pid: int
    version: str
    seat: int = Field(ge=1, description="Its number among the servers of the data directory.")
    slots: int = Field(
        description="The slots of its host that it offers; 0 with a cluster, which has the slots."
    )
    cluster: str | None = Field(
        description="The master of the cluster that its jobs run on; null: on its host."
    )
    task_manager: str = Field(alias="taskManager", description="The TaskManager under which it offers them.")
    jobs: int = Field(description="Jobs that it owns and that have not ended.")
    state: Literal["ALIVE", "LOST"] = Field(
        description="LOST: it has not renewed its leases in time, or is dead."
    )
    joined: Millis = Field(alias="joinedTimestampInMillis")
    is_self: bool = Field(alias="isSelf", description="Whether it is the one that answers.")
    is_arbiter: bool = Field(
        alias="isArbiter", description="Whether it decides about the slots of all. Any of them can."
    )


class Members(Schema):
    shared: bool = Field(description="Whether several servers can share the jobs: with PostgreSQL.")
    alone: str | None = Field(
        description="Why no other server can share them, in a sentence; null if others can."
    )
    members: list[Member]


class Live(Schema):
    status: Literal["live"]


class Ready(Schema):
    status: Literal["ready"]
    warnings: list[str] = Field(description="What is not well, and does not keep the server from serving.")

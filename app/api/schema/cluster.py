"""The server, its TaskManagers, its health."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.schema.base import Camel, Hyphenated, Id, Millis, Schema, called
from app.api.schema.rescales import ResourceProfile


class Features(Hyphenated):
    web_submit: bool
    web_cancel: bool
    web_rescale: bool
    web_history: bool


class DashboardConfig(Hyphenated):
    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str = Field(description="The release of Flink whose REST API Slotwise implements.")
    flink_revision: str
    features: Features
    slotwise_version: str


class ClusterOverview(Hyphenated):
    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int = Field(description="Jobs that have not ended.")
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str
    slotwise_version: str


class ConfigurationEntry(Schema):
    key: str
    value: str


class Hardware(Camel):
    cpu_cores: int
    memory_bytes: int = called("physicalMemory", "Bytes.")
    free_memory_bytes: int = called("freeMemory", "Bytes.")
    managed_memory: int = Field(description="-1: not known.")


class TaskManager(Camel):
    id: str
    path: str
    data_port: int
    jmx_port: int
    time_since_last_heartbeat: Millis = Field(description="Time of the last contact, epoch milliseconds.")
    slots_number: int
    free_slots: int
    assigned_tasks: int
    total_resource: ResourceProfile
    free_resource: ResourceProfile
    hardware: Hardware
    memory_configuration: dict[str, int] = Field(
        description="Bytes; -1 for Flink's parts of a TaskManager's memory, which a host does not have."
    )


class TaskManagers(Schema):
    taskmanagers: list[TaskManager]


class AllocatedSlot(Camel):
    job_id: Id
    resource: ResourceProfile
    assigned_tasks: int


class TaskManagerDetails(TaskManager):
    allocated_slots: list[AllocatedSlot]
    metrics: dict[str, Any] = Field(
        description="Metrics of the JVM of a Flink TaskManager: always -1, not known."
    )


class Member(Camel):
    id: str
    url: str = Field(description="The address of the server.")
    host: str
    pid: int
    version: str
    seat: int = Field(ge=1, description="Its number among the servers of the data directory.")
    slots: int = Field(
        description="The slots that the server offers; 0 with a cluster, because the cluster has the slots."
    )
    cluster: str | None = Field(
        description="The master of the cluster where its jobs run; null: they run on its host."
    )
    task_manager: str = Field(description="The TaskManager that offers these slots.")
    jobs: int = Field(description="Jobs that the server owns and that have not ended.")
    state: Literal["ALIVE", "LOST"] = Field(
        description="LOST: the server has not renewed its leases in time, or is dead."
    )
    joined_timestamp_ms: Millis
    is_self: bool = Field(description="Whether this server answers the request.")
    is_arbiter: bool = Field(
        description="Whether this server distributes the slots. Every server can take over this task."
    )


class Members(Schema):
    shared: bool = Field(description="Whether several servers can share the jobs: with PostgreSQL.")
    alone: str | None = Field(
        description="Why no other server can share the jobs, in a sentence; null if others can."
    )
    members: list[Member]


class Live(Schema):
    status: Literal["live"]


class Ready(Schema):
    status: Literal["ready"]
    warnings: list[str] = Field(description="Problems that do not prevent the server from serving.")

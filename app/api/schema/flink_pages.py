"""What only the web page of Flink reads. Lists of what Spark does not have, or nobody keeps, are empty."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.api.schema.base import Camel, Hyphenated, Id, Millis, Schema
from app.api.schema.jobs import IoMetrics
from app.api.schema.rescales import DurationStatistics


class JvmInfo(Schema):
    version: str
    arch: str
    options: list[str]


class Environment(Schema):
    """The server runs in no JVM; each driver has its own."""

    jvm: JvmInfo
    classpath: list[str]


class LogFile(Schema):
    name: str
    size: int


class LogFiles(Schema):
    logs: list[LogFile] = Field(description="None: see GET /jobs/{jobid}/attempts.")


class ThreadDump(Camel):
    thread_infos: list[str] = Field(description="None is made.")


class Profilings(Camel):
    profiling_list: list[str] = Field(description="None is made.")


class Applications(Schema):
    applications: list[str] = Field(description="None: jobs are submitted alone.")


class SubtaskTimes(Schema):
    subtask: int
    endpoint: str
    duration: int
    timestamps: dict[str, int]


class VertexTimes(Schema):
    id: Id
    name: str
    now: Millis
    subtasks: list[SubtaskTimes]


class TaskManagerOfVertex(Hyphenated):
    endpoint: str
    taskmanager_id: str = Field(description="The TaskManager of some of its subtasks.")
    status: str
    start_time: int
    end_time: int
    duration: int
    metrics: IoMetrics
    status_counts: dict[str, int]


class TaskManagersOfVertex(Schema):
    id: Id
    name: str
    now: Millis
    taskmanagers: list[TaskManagerOfVertex]


class SubtaskBackPressure(Schema):
    subtask: int
    attempt_number: int = Field(serialization_alias="attempt-number")
    backpressure_level: Literal["ok", "low", "high"] = Field(serialization_alias="backpressureLevel")
    ratio: float
    idle_ratio: float = Field(serialization_alias="idleRatio")
    busy_ratio: float = Field(serialization_alias="busyRatio")


class BackPressure(Schema):
    status: Literal["ok", "deprecated"] = Field(description="deprecated: nothing is known.")
    backpressure_level: Literal["ok", "low", "high"] | None = Field(serialization_alias="backpressureLevel")
    end_timestamp: int = Field(serialization_alias="end-timestamp")
    subtasks: list[SubtaskBackPressure]


class VertexAccumulators(Hyphenated):
    id: Id
    user_accumulators: list[str] = Field(description="Spark's have no names of a user.")


class SubtaskAccumulators(Schema):
    id: Id
    parallelism: int
    subtasks: list[str]


class FlameGraph(Camel):
    end_timestamp: int
    data: None = Field(description="None is made.")


class CheckpointCounts(Schema):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class CheckpointSummary(Schema):
    checkpointed_size: DurationStatistics
    state_size: DurationStatistics
    end_to_end_duration: DurationStatistics
    alignment_buffered: DurationStatistics
    processed_data: DurationStatistics
    persisted_data: DurationStatistics


class LatestCheckpoints(Schema):
    completed: None
    savepoint: None
    failed: None
    restored: None


class Checkpoints(Schema):
    """Empty: each committed micro-batch is one, and Spark keeps the last of them only."""

    counts: CheckpointCounts
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[str]


class Externalization(Schema):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(Schema):
    mode: Literal["exactly_once"]
    interval: int = Field(description="0: with each micro-batch.")
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str

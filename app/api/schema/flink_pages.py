"""Answers that only Flink's web page uses. Lists of data that Spark does not have or Slotwise does not store
are empty.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.api.schema.base import Camel, Hyphenated, Id, Millis, Schema
from app.api.schema.jobs import IoMetrics


class JvmInfo(Schema):
    version: str
    arch: str
    options: list[str]


class Environment(Schema):
    """The server runs in no JVM; each driver has its own."""

    jvm: JvmInfo
    classpath: list[str]


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

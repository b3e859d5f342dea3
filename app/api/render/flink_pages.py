"""Answers for Flink's web page that its other clients do not request: vertices, TaskManagers and the server."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, Literal

from app.api.render.execution import VertexExecution
from app.api.render.metrics import executor_metrics
from app.api.render.vertex_metrics import vertex_metrics
from app.api.render.vertices import vertex_details
from app.api.schema import flink_pages as schema
from app.api.schema.jobs import Metric, Subtask, VertexDetails
from app.worker.views import JobView, TaskManager

_WATERMARK: Final = "currentInputWatermark"
_DIVIDED: Final = frozenset({"numTasksObserved", "pendingRecords", "stateBytes", "stateRows"})
"""Of the whole vertex: a subtask has its share."""

_LOW, _HIGH = 0.1, 0.5
"""Flink's limits of back pressure."""

ENVIRONMENT: Final = schema.Environment(
    jvm=schema.JvmInfo(version=f"Python {platform.python_version()}", arch=platform.machine(), options=[]),
    classpath=[],
)


def subtask_metrics(view: JobView, execution: VertexExecution, now_ms: int) -> dict[str, str]:
    """Flink's ``<subtask>.<name>``. Spark counts a stage as a whole: each subtask has an equal share."""
    found: dict[str, str] = {}
    for name, values in vertex_metrics(view, execution.vertex, now_ms).items():
        value = values.avg
        if name.rpartition(".")[2] in _DIVIDED:
            value /= max(1, execution.tasks)
        found |= {f"{index}.{name}": str(value) for index in range(execution.tasks)}
    return found


def watermarks(view: JobView, execution: VertexExecution, now_ms: int) -> list[Metric]:
    """A query has one watermark, which holds for all subtasks."""
    known = vertex_metrics(view, execution.vertex, now_ms).get(_WATERMARK)
    if known is None:
        return []
    value = str(int(known.avg))
    return [Metric(id=f"{index}.{_WATERMARK}", value=value) for index in range(execution.tasks)]


def vertex_times(view: JobView, execution: VertexExecution, now_ms: int) -> schema.VertexTimes:
    details = vertex_details(view, execution, now_ms)
    return schema.VertexTimes(
        id=details.id,
        name=details.name,
        now=now_ms,
        subtasks=[
            schema.SubtaskTimes(
                subtask=one.subtask,
                endpoint=one.endpoint,
                duration=one.duration,
                timestamps={one.status: max(0, one.start_time)},
            )
            for one in details.subtasks
        ],
    )


def task_managers_of_vertex(
    view: JobView, execution: VertexExecution, now_ms: int
) -> schema.TaskManagersOfVertex:
    details = vertex_details(view, execution, now_ms)
    by_manager = groupby(sorted(details.subtasks, key=_manager), key=_manager)
    return schema.TaskManagersOfVertex(
        id=details.id,
        name=details.name,
        now=now_ms,
        taskmanagers=[_of_manager(details, name, list(own)) for name, own in by_manager],
    )


def _manager(subtask: Subtask) -> str:
    return subtask.taskmanager_id


def _of_manager(details: VertexDetails, name: str, own: Sequence[Subtask]) -> schema.TaskManagerOfVertex:
    first = own[0]
    totals = {
        field: type(value)(sum(getattr(one.metrics, field) for one in own))
        for field, value in first.metrics
        if not isinstance(value, bool)
    }
    statuses = [one.status for one in own]
    return schema.TaskManagerOfVertex(
        endpoint=first.endpoint,
        taskmanager_id=name,
        status=first.status,
        start_time=first.start_time,
        end_time=first.end_time,
        duration=first.duration,
        metrics=first.metrics.model_copy(update=totals),
        status_counts={str(status): statuses.count(status) for status in dict.fromkeys(statuses)},
    )


def back_pressure(view: JobView, execution: VertexExecution, now_ms: int) -> schema.BackPressure:
    metrics = vertex_metrics(view, execution.vertex, now_ms)
    if "busyTimeMsPerSecond" not in metrics:
        return schema.BackPressure(
            status="deprecated", backpressure_level=None, end_timestamp=now_ms, subtasks=[]
        )
    held, idle, busy = (
        min(1.0, metrics[f"{name}TimeMsPerSecond"].avg / 1000) for name in ("backPressured", "idle", "busy")
    )
    level: Literal["ok", "low", "high"] = "ok" if held <= _LOW else "low" if held <= _HIGH else "high"
    return schema.BackPressure(
        status="ok",
        backpressure_level=level,
        end_timestamp=now_ms,
        subtasks=[
            schema.SubtaskBackPressure(
                subtask=index,
                attempt_number=max(0, view.state.attempt - 1),
                backpressure_level=level,
                ratio=held,
                idle_ratio=idle,
                busy_ratio=busy,
            )
            for index in range(execution.tasks)
        ],
    )


def task_manager_metrics(
    manager: TaskManager, managers: Sequence[TaskManager], views: Iterable[JobView], now_ms: int
) -> dict[str, str]:
    """Sums of its executors, of all jobs that run here; 0 while none has told anything. Where there is one TaskManager,
    all executors are on it, by whatever name they call the host."""
    host = None if len(managers) == 1 else manager.host
    return {name: str(values.sum) for name, values in executor_metrics(views, now_ms, host).items()}

"""One vertex as Flink shows it: its subtasks, each on its slot, and what is measured of them. Some of it only Flink's
web page requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, Literal

from app.api.render.execution import VertexExecution, region_progress
from app.api.render.jobs import NOT_MEASURED, io_metrics
from app.api.render.metrics import vertex_metrics
from app.api.schema import flink_pages
from app.api.schema import jobs as schema
from app.api.schema.base import made_of
from app.model.plan import Slot
from app.scheduler.adaptive.state import CreatingExecutionGraph, JobState
from app.worker.views import JobView

_SUMMED = [name for name in NOT_MEASURED.model_dump(by_alias=True) if not name.endswith("-complete")]
_WATERMARK: Final = "currentInputWatermark"
_DIVIDED: Final = frozenset({"numTasksObserved", "pendingRecords", "stateBytes", "stateRows"})
"""Of the whole vertex: a subtask has its share."""

_LOW, _HIGH = 0.1, 0.5
"""Flink's limits of back pressure."""


def vertex_details(view: JobView, execution: VertexExecution, now_ms: int) -> schema.VertexDetails:
    vertex = execution.vertex
    duration_ms = execution.duration_ms(now_ms)
    slots = _slots_of(view.state, vertex.slot_sharing_group)
    count = execution.tasks
    shares = _shares(io_metrics(execution, view.load), count)
    return made_of(
        schema.VertexDetails,
        vertex,
        parallelism=execution.parallelism,
        now=now_ms,
        subtasks=[
            _subtask(index, execution, view.state.attempt, slots, duration_ms, share)
            for index, share in enumerate(shares)
        ],
        aggregated=schema.VertexAggregates(
            metrics={name: _aggregate([_whole(share, name) for share in shares]) for name in _SUMMED},
            status_duration={execution.status: _aggregate([max(0, duration_ms)] * count)},
        ),
        progress=region_progress(execution, now_ms),
    )


def _shares(whole: schema.IoMetrics, count: int) -> list[schema.IoMetrics]:
    """The figures of one of several subtasks: an equal share of ``whole``. Spark does not count per task."""
    totals = {name: value for name, value in whole if not isinstance(value, bool)}
    return [
        NOT_MEASURED.model_copy(
            update={
                name: type(value)(int(value) * (index + 1) // count - int(value) * index // count)
                for name, value in totals.items()
            }
        )
        for index in range(count)
    ]


def _whole(metrics: schema.IoMetrics, name: str) -> int:
    return int(getattr(metrics, name.replace("-", "_")))


def _subtask(
    index: int,
    execution: VertexExecution,
    attempt: int,
    slots: tuple[Slot, ...],
    duration_ms: int,
    metrics: schema.IoMetrics,
) -> schema.Subtask:
    task_manager = slots[index].task_manager_id if index < len(slots) else "(unassigned)"
    return schema.Subtask(
        subtask=index,
        status=execution.status,
        attempt=max(0, attempt - 1),
        endpoint=task_manager,
        start_time=execution.start_ms,
        end_time=execution.end_ms,
        duration=duration_ms,
        metrics=metrics,
        taskmanager_id=task_manager,
        status_duration={execution.status: max(0, duration_ms)},
        start_time_again=execution.start_ms,
    )


def _slots_of(state: JobState, group: str) -> tuple[Slot, ...]:
    """The slots that the plan gives to a slot sharing group; subtask i runs in the i-th."""
    plan = state.phase.plan if isinstance(state.phase, CreatingExecutionGraph) else state.plan
    if plan is None:
        return ()
    held = {slot.id: slot for slot in state.slots}
    ids = dict(plan.group_slots).get(group, ())
    return tuple(held[slot_id] for slot_id in ids if slot_id in held)


def _aggregate(values: list[int]) -> schema.Aggregate:
    """Of subtasks that have equal shares, each percentile is one of them."""
    if not values:
        return schema.Aggregate(min=0, max=0, avg=0, sum=0, median=0, p25=0, p75=0, p95=0)
    whole = sum(values)
    each = whole // len(values)
    return schema.Aggregate(
        min=min(values), max=max(values), avg=each, sum=whole, median=each, p25=each, p75=each, p95=each
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


def watermarks(view: JobView, execution: VertexExecution, now_ms: int) -> list[schema.Metric]:
    """A query has one watermark, which holds for all subtasks."""
    known = vertex_metrics(view, execution.vertex, now_ms).get(_WATERMARK)
    if known is None:
        return []
    value = str(int(known.avg))
    return [schema.Metric(id=f"{index}.{_WATERMARK}", value=value) for index in range(execution.tasks)]


def vertex_times(view: JobView, execution: VertexExecution, now_ms: int) -> flink_pages.VertexTimes:
    details = vertex_details(view, execution, now_ms)
    subtasks = [
        made_of(flink_pages.SubtaskTimes, one, timestamps={one.status: max(0, one.start_time)})
        for one in details.subtasks
    ]
    return made_of(flink_pages.VertexTimes, details, subtasks=subtasks)


def task_managers_of_vertex(
    view: JobView, execution: VertexExecution, now_ms: int
) -> flink_pages.TaskManagersOfVertex:
    details = vertex_details(view, execution, now_ms)
    by_manager = groupby(sorted(details.subtasks, key=_manager), key=_manager)
    managers = [_of_manager(list(own)) for _, own in by_manager]
    return made_of(flink_pages.TaskManagersOfVertex, details, taskmanagers=managers)


def _manager(subtask: schema.Subtask) -> str:
    return subtask.taskmanager_id


def _of_manager(own: Sequence[schema.Subtask]) -> flink_pages.TaskManagerOfVertex:
    """Of the subtasks on one TaskManager."""
    first = own[0]
    totals = {
        field: type(value)(sum(getattr(one.metrics, field) for one in own))
        for field, value in first.metrics
        if not isinstance(value, bool)
    }
    statuses = [one.status for one in own]
    return made_of(
        flink_pages.TaskManagerOfVertex,
        first,
        metrics=first.metrics.model_copy(update=totals),
        status_counts={str(status): statuses.count(status) for status in dict.fromkeys(statuses)},
    )


def back_pressure(view: JobView, execution: VertexExecution, now_ms: int) -> flink_pages.BackPressure:
    metrics = vertex_metrics(view, execution.vertex, now_ms)
    if "busyTimeMsPerSecond" not in metrics:
        return flink_pages.BackPressure(
            status="deprecated", backpressure_level=None, end_timestamp=now_ms, subtasks=[]
        )
    held, idle, busy = (
        min(1.0, metrics[f"{name}TimeMsPerSecond"].avg / 1000) for name in ("backPressured", "idle", "busy")
    )
    level: Literal["ok", "low", "high"] = "ok" if held <= _LOW else "low" if held <= _HIGH else "high"
    return flink_pages.BackPressure(
        status="ok",
        backpressure_level=level,
        end_timestamp=now_ms,
        subtasks=[
            flink_pages.SubtaskBackPressure(
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

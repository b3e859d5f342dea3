"""One vertex as Flink shows it: its subtasks, each on its slot, and what is measured of them. Some of it only Flink's
web page requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final, Literal

from app.api.render.execution import VertexExecution, region_progress
from app.api.render.jobs import NOT_MEASURED, READ_AND_WRITTEN, io_metrics
from app.api.render.metrics import MEASURED, of_subtasks, vertex_metrics
from app.api.schema import flink_pages
from app.api.schema import jobs as schema
from app.api.schema.base import made_of
from app.load.figures import vertex_rates
from app.load.subtasks import Subtasks
from app.model.plan import Slot
from app.scheduler.adaptive.state import CreatingExecutionGraph, JobState
from app.worker.views import JobView

_SUMMED = [name for name in NOT_MEASURED.model_dump(by_alias=True) if not name.endswith("-complete")]
_WATERMARK: Final = "currentInputWatermark"
_OF_VERTEX: Final = frozenset(
    {"numTasksObserved", "pendingRecords", "stateBytes", "stateRows", "taskTimeSkew"}
)
"""No subtask has a part of these that anybody knows."""
_PERCENTILES: Final = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95}

_LOW, _HIGH = 0.1, 0.5
"""Flink's limits of back pressure."""


def vertex_details(view: JobView, execution: VertexExecution, now_ms: int) -> schema.VertexDetails:
    vertex = execution.vertex
    duration_ms = execution.duration_ms(now_ms)
    slots = _slots_of(view.state, vertex.slot_sharing_group)
    count = execution.tasks
    known = view.load.subtasks(vertex.id)
    if known is not None and known.count != count:
        # Those of before a rescale, until the first batch at the present numbers.
        known = None
    measured = [_measured(known, index) for index in range(count)]
    whole = io_metrics(execution, view.load)
    return made_of(
        schema.VertexDetails,
        vertex,
        parallelism=execution.parallelism,
        now=now_ms,
        subtasks=[
            _subtask(index, execution, view.state.attempt, slots, duration_ms, metrics)
            for index, metrics in enumerate(measured)
        ],
        aggregated=schema.VertexAggregates(
            metrics={
                name: _aggregate([_figure(each, name) for each in measured])
                if known
                else _average(_figure(whole, name), count)
                for name in _SUMMED
            },
            status_duration={execution.status: _aggregate([max(0, duration_ms)] * count)},
        ),
        progress=region_progress(execution, now_ms),
    )


def _measured(known: Subtasks | None, index: int) -> schema.IoMetrics:
    """Of one subtask, since its vertex has as many as now."""
    if known is None:
        return NOT_MEASURED
    busy_ms = known.total("busy_ms")[index]
    found: dict[str, float | bool] = {
        "accumulated_busy_time": float(busy_ms),
        "accumulated_backpressured_time": known.held_ms,
        "accumulated_idle_time": max(0, known.whole_ms - known.held_ms - busy_ms),
    }
    for name, figure in READ_AND_WRITTEN.items():
        found[name] = known.total(figure)[index]
        found[f"{name}_complete"] = figure not in known.unknown
    return NOT_MEASURED.model_copy(update=found)


def _figure(metrics: schema.IoMetrics, name: str) -> int:
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


def _aggregate(values: Sequence[int]) -> schema.Aggregate:
    """Of subtasks."""
    if not values:
        return _average(0, 0)
    ranked = sorted(values)
    ranks = {name: ranked[max(0, math.ceil(part * len(ranked)) - 1)] for name, part in _PERCENTILES.items()}
    whole = sum(ranked)
    return schema.Aggregate(min=ranked[0], max=ranked[-1], avg=whole // len(ranked), sum=whole, **ranks)


def _average(whole: int, count: int) -> schema.Aggregate:
    """Where nothing is known of single subtasks."""
    each = whole // count if count else 0
    return schema.Aggregate(min=each, max=each, avg=each, sum=whole, **dict.fromkeys(_PERCENTILES, each))


def subtask_metrics(view: JobView, execution: VertexExecution, now_ms: int) -> dict[str, str]:
    """Flink's ``<subtask>.<name>``: what was measured of it, and what is so for the whole vertex."""
    vertex = execution.vertex
    own = of_subtasks(view.load, vertex.id, vertex_rates(view.load, vertex.id, now_ms))
    found: dict[str, str] = {}
    for name, values in vertex_metrics(view, vertex, now_ms).items():
        plain = name.rpartition(".")[2]
        if plain in _OF_VERTEX or name.startswith("pendingRecords."):
            continue
        measured = own.get(plain)
        if measured is None and plain not in MEASURED:
            measured = [values.avg] * execution.tasks
        found |= {f"{index}.{name}": str(float(value)) for index, value in enumerate(measured or ())}
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
    names = [f"{name}TimeMsPerSecond" for name in ("backPressured", "idle", "busy")]
    held, idle, busy = (min(1.0, metrics[name].avg / 1000) for name in names)
    vertex_id = execution.vertex.id
    own = of_subtasks(view.load, vertex_id, vertex_rates(view.load, vertex_id, now_ms))
    ratios = [(held, idle, busy)] * execution.tasks
    if names[-1] in own:
        ratios = list(zip(*([value / 1000 for value in own[name]] for name in names), strict=True))
    return flink_pages.BackPressure(
        status="ok",
        backpressure_level=_level(held),
        end_timestamp=now_ms,
        subtasks=[
            flink_pages.SubtaskBackPressure(
                subtask=index,
                attempt_number=max(0, view.state.attempt - 1),
                backpressure_level=_level(held),
                ratio=held,
                idle_ratio=idle,
                busy_ratio=busy,
            )
            for index, (held, idle, busy) in enumerate(ratios)
        ],
    )


def _level(held: float) -> Literal["ok", "low", "high"]:
    return "ok" if held <= _LOW else "low" if held <= _HIGH else "high"

"""One vertex as Flink shows it: its subtasks, each on its slot, and what is measured of them."""

from __future__ import annotations

from app.api.render.execution import VertexExecution, region_progress
from app.api.render.jobs import NOT_MEASURED, io_metrics
from app.api.schema import jobs as schema
from app.model.plan import Slot
from app.scheduler.adaptive.state import CreatingExecutionGraph, JobState
from app.worker.views import JobView

_SUMMED = [name for name in NOT_MEASURED.model_dump(by_alias=True) if not name.endswith("-complete")]


def vertex_details(view: JobView, execution: VertexExecution, now_ms: int) -> schema.VertexDetails:
    vertex = execution.vertex
    duration_ms = execution.duration_ms(now_ms)
    slots = _slots_of(view.state, vertex.slot_sharing_group)
    count = execution.tasks
    shares = _shares(io_metrics(execution, view.load), count)
    return schema.VertexDetails(
        id=vertex.id,
        name=vertex.name,
        parallelism=execution.parallelism,
        max_parallelism=vertex.max_parallelism,
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

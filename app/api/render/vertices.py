"""One vertex as Flink shows it: its subtasks, each on its slot, and what is measured of them."""

from __future__ import annotations

from typing import Any

from app.api.render.execution import VertexExecution, region_progress
from app.api.render.jobs import NOT_MEASURED
from app.model.plan import Slot
from app.scheduler.adaptive.state import CreatingExecutionGraph, JobState
from app.worker.views import JobView

_AGGREGATES = ("min", "max", "avg", "sum", "median", "p25", "p75", "p95")


def vertex_details(view: JobView, execution: VertexExecution, now_ms: int) -> dict[str, Any]:
    vertex = execution.vertex
    duration_ms = execution.duration_ms(now_ms)
    slots = _slots_of(view.state, vertex.slot_sharing_group)
    subtasks = [
        _subtask(index, execution, view.state.attempt, slots, duration_ms) for index in range(execution.tasks)
    ]
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": execution.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": now_ms,
        "subtasks": subtasks,
        "aggregated": {
            "metrics": {
                name: _aggregate([0] * len(subtasks))
                for name in NOT_MEASURED
                if not name.endswith("-complete")
            },
            "status-duration": {execution.status: _aggregate([max(0, duration_ms)] * len(subtasks))},
        },
        "progress": region_progress(execution, now_ms),
    }


def _subtask(
    index: int, execution: VertexExecution, attempt: int, slots: tuple[Slot, ...], duration_ms: int
) -> dict[str, Any]:
    task_manager = slots[index].task_manager_id if index < len(slots) else "(unassigned)"
    return {
        "subtask": index,
        "status": execution.status,
        "attempt": max(0, attempt - 1),
        "endpoint": task_manager,
        "start-time": execution.start_ms,
        "end-time": execution.end_ms,
        "duration": duration_ms,
        "metrics": NOT_MEASURED,
        "taskmanager-id": task_manager,
        "status-duration": {execution.status: max(0, duration_ms)},
        "start_time": execution.start_ms,
    }


def _slots_of(state: JobState, group: str) -> tuple[Slot, ...]:
    """The slots that the plan gives to a slot sharing group; subtask i runs in the i-th."""
    plan = state.phase.plan if isinstance(state.phase, CreatingExecutionGraph) else state.plan
    if plan is None:
        return ()
    held = {slot.id: slot for slot in state.slots}
    ids = dict(plan.group_slots).get(group, ())
    return tuple(held[slot_id] for slot_id in ids if slot_id in held)


def _aggregate(values: list[int]) -> dict[str, int]:
    """All subtasks of a vertex run for the same time: its aggregates are exact."""
    if not values:
        return dict.fromkeys(_AGGREGATES, 0)
    first = values[0]
    return {**dict.fromkeys(_AGGREGATES, first), "sum": sum(values)}

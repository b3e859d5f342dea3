"""What a rescale record says of each vertex and slot sharing group: what is wanted, what was before, what is after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from app.model.batch import RegionStatus
from app.model.job_state.supply import CapRaise
from app.model.plan import Plan
from app.model.rescale import RescaleRecord, SlotGroupRescale, VertexRescale
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.state import Executing, JobState, StopWithSavepoint
from app.scheduler.slots import Demand

_RUNNING: Final = (Executing.__name__, StopWithSavepoint.__name__)
BEGUN: Final = (RegionStatus.RUNNING, RegionStatus.FINISHED)
NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


def rows_of_record(
    demand: Demand,
    before: Mapping[str, int | None],
    slots_before: Mapping[str, int | None],
    after: Mapping[str, int] = NOTHING,
    slots_after: Mapping[str, int] = NOTHING,
) -> tuple[tuple[VertexRescale, ...], tuple[SlotGroupRescale, ...]]:
    """What a rescale means per vertex and per group: what is wanted, what was ``before``, and what is ``after``."""
    bounds = demand.bounds
    vertices = []
    group_ids = {}
    for vertex in demand.graph.vertices:
        key, own = vertex.id, bounds[vertex.id]
        group_ids[vertex.slot_sharing_group] = vertex.slot_sharing_group_id
        vertices.append(VertexRescale(key, own.upper, own.lower, before.get(key), after.get(key)))
    groups = [
        SlotGroupRescale(
            group_ids[one.name],
            one.name,
            one.upper,
            one.lower,
            slots_before.get(one.name),
            slots_after.get(one.name),
        )
        for one in demand.groups
    ]
    return tuple(vertices), tuple(groups)


def before_of(record: RescaleRecord) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """What ``record`` says of before: the parallelism of each vertex, and the number of slots of each group."""
    return {one.vertex_id: one.pre for one in record.vertices}, {
        one.group_name: one.pre for one in record.groups
    }


def numbers_in_plan(
    state: JobState, plan: Plan | None, decided: Sequence[RegionStatus] = BEGUN
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The parallelism of each vertex in ``plan``, and the number of slots of each group; nothing without a plan.

    A BATCH job's plan has a figure for every vertex, which means nothing until the vertex is decided: those of regions
    that are in one of the statuses ``decided`` count.
    """
    if plan is None:
        return NOTHING, NOTHING
    slots = {name: len(own) for name, own in plan.group_slots}
    if not state.graph.runs_by_regions:
        return dict(plan.parallelism), slots
    return (NOTHING if state.batch is None else state.batch.parallelism(*decided)), slots


def rows_of_new_record(
    demand: Demand, state: JobState
) -> tuple[tuple[VertexRescale, ...], tuple[SlotGroupRescale, ...]]:
    """What a rescale that begins now means, of which nothing is decided yet."""
    return rows_of_record(demand, *numbers_in_plan(state, state.last_plan))


def cap_change_of(state: JobState) -> SlotShare | CapRaise | None:
    """The change of the cap because of which the job has fewer slots than its plan uses, or more; None if it is not."""
    plan, cap, raised = state.plan, state.share.cap, state.supply.cap_raise
    if plan is None:
        return None
    if state.usable_slots < plan.slot_count:
        return state.share if cap is not None and cap < plan.slot_count else None
    more = raised is not None and state.usable_slots > max(raised.before, plan.slot_count)
    return raised if more else None


def change_began_ms(state: JobState) -> int:
    """Since when the job does not simply run on, as far as the open record knows; 0 if there is none."""
    record = state.timeline.open
    if record is None:
        return 0
    changing = (span.enter_ms for span in record.spans if span.state not in _RUNNING)
    return next(changing, max(record.start_ms, state.phase_since_ms))

"""Bounds and state partitions of a request, resolved against the graph: what is refused, and from where on."""

from __future__ import annotations

import pytest

from app.model.requirements import Bounds
from app.model.value import evolve
from app.scheduler.adaptive.events import StartScheduling
from app.worker.requests.requirements import decide_update, resolve_bounds, resolve_partitions
from app.worker.views import RequirementsUpdate
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.phases import IN_PHASE, in_phase

STATE = Job().state
SOURCE = STATE.graph.by_name["source"]
MOST = SOURCE.max_parallelism


def test_a_vertex_that_is_named_by_its_id_and_by_its_name_is_given_twice() -> None:
    wanted = {vertex.id: (1, 2) for vertex in STATE.graph.vertices}
    assert resolve_bounds(STATE, wanted, 0)[1] == []
    _, errors = resolve_bounds(STATE, {**wanted, "source": (1, 4)}, 0)
    assert errors == [f"Job vertex {SOURCE.id} is given twice (as 'source' and by another key)."]


@pytest.mark.parametrize(("upper", "refused"), [(MOST - 1, False), (MOST, False), (MOST + 1, True)])
def test_as_many_partitions_as_the_upper_bound_are_enough_and_fewer_are_not(
    upper: int, refused: bool
) -> None:
    wanted = {vertex.id: (1, 2) for vertex in STATE.graph.vertices}
    bounds, _ = resolve_bounds(STATE, wanted, 0)
    bounds[SOURCE.id] = Bounds(1, upper)
    _, errors = resolve_partitions(STATE, bounds, {"source": MOST})
    assert [f"fewer than its upper bound {upper}" in one for one in errors] == [True] * refused


@pytest.mark.parametrize(("upper", "numbers"), [(MOST + 4, ((SOURCE.id, MOST + 4),)), (MOST + 5, ())])
def test_partitions_that_were_asked_for_and_are_not_there_yet_count_on_up_to_the_upper_bound(
    upper: int, numbers: tuple[tuple[str, int], ...]
) -> None:
    asked = evolve(STATE.requirements, state_partitions=((SOURCE.id, MOST + 4),))
    wanted = {**STATE.requirements.as_dict(), SOURCE.id: Bounds(1, upper)}
    assert resolve_partitions(evolve(STATE, requirements=asked), wanted, {}) == (numbers, [])


@pytest.mark.parametrize("phase", [phase for phase in IN_PHASE if phase != "Finished"])
def test_the_answer_names_the_record_that_changed_bounds_lead_to(phase: str) -> None:
    job = in_phase(phase)
    wanted = {vertex.id: (1, 3) for vertex in job.state.graph.vertices}
    decided = decide_update(job.state, RequirementsUpdate(bounds=wanted), 0, 0)
    assert decided.event is not None and decided.answer.rescale is not None
    job.do(decided.event)
    if phase == "Created":
        job.do(StartScheduling())
    now = job.state.timeline.open
    records = [*job.records, *([] if now is None else [now])]
    first = next(one for one in records if one.requirements_uuid == job.state.requirements.uuid)
    assert first.uuid == decided.answer.rescale

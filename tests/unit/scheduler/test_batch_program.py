"""A BATCH program in the core: rescaled in place while it runs, begun anew after a failure, and never stopped at a
boundary, since it has none."""

from __future__ import annotations

import pytest

from app.documents.program import parse_program
from app.model.graphdoc_program import graph_of
from app.model.plan import Rung
from app.model.status import JobStatus
from app.scheduler.adaptive.draft import InvalidTransition
from app.scheduler.adaptive.effects import SendPlan, StartAttempt, StopAttempt
from app.scheduler.adaptive.events import AttemptFailed, AttemptFinished, StopRequested
from app.scheduler.adaptive.slot_declaration import releasable_of
from app.scheduler.slots import Demand
from tests.unit.scheduler.driving import Job

GRAPH = graph_of(parse_program({"name": "etl", "type": "BATCH", "script": "etl.py"}))
AT_ONCE = {"slotwise.in-place.resource-stabilization-timeout": "0 ms", "restart-strategy.type": "fixed-delay"}


def running(held: int = 2) -> Job:
    job = Job(GRAPH, upper=4, options=AT_ONCE).start_up(held)
    return job.applied()


def test_its_need_of_slots_is_that_of_its_vertex() -> None:
    job = running()
    demand = Demand.of(GRAPH, job.state.requirements)
    assert (demand.minimal, demand.desired) == (
        1,
        4,
    )


def test_bounds_change_in_place_while_it_runs() -> None:
    job = running(held=4)
    assert job.parallelism == [4] and job.state.batch is None
    job.put(1, 2)
    assert job.kind == "Rescaling" and dict(job.effect(SendPlan).plan.parallelism) == {
        GRAPH.vertices[0].id: 2
    }
    # Tasks may take long: until they have ended the slots are not free.
    job.wait(3_600_000)
    assert job.kind == "Rescaling" and not any(isinstance(one, StopAttempt) for one in job.history)
    job.applied()
    assert job.parallelism == [2] and job.kind == "Executing"
    job.put(1, 4)
    job.applied()
    assert job.parallelism == [4]
    assert [record.rung for record in job.records[1:]] == [Rung.IN_PLACE] * 2
    assert [one.attempt for one in job.history if isinstance(one, StartAttempt)] == [1]


def test_it_gives_slots_in_place() -> None:
    giving = releasable_of(running(held=4).state)
    assert giving.can_give and giving.in_place_floor == 1


def test_a_failure_begins_it_anew() -> None:
    job = running()
    job.do(AttemptFailed(1, "killed", stopped=True, outside=True))
    job.wait(60_000)
    assert job.effect(StartAttempt).attempt == 2 if job.has_effect(StartAttempt) else job.state.attempt == 2


def test_it_is_finished_when_the_program_is() -> None:
    job = running()
    job.do(AttemptFinished(1))
    assert job.status is JobStatus.FINISHED


def test_it_cannot_be_stopped_at_a_boundary() -> None:
    job = running()
    with pytest.raises(InvalidTransition, match="no batch boundary at which it could be stopped; cancel it"):
        job.do(StopRequested("t"))
    job.put(1, 1)
    assert job.kind == "Rescaling"
    with pytest.raises(InvalidTransition, match="cancel it"):
        job.do(StopRequested("t"))

"""The job graph grows by the queries that a program starts: plans, bounds, records and slots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model import ids
from app.model.graphdoc import MAX_VERTICES
from app.model.jobgraph import JobGraph, JobType, NamedBounds
from app.model.plan import Rung
from app.model.requirements import Bounds
from app.model.rescale import TriggerCause
from app.scheduler.adaptive.effects import DeclareResources, SendPlan
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    BatchCompleted,
    QueryEnded,
    QueryStarted,
    RequirementsUpdated,
    SlotsChanged,
)
from app.scheduler.adaptive.growth import ENDED_KEPT, LATE_MS
from app.scheduler.adaptive.program_queries import absent_vertices
from app.scheduler.adaptive.state import Rescaling
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import COOLDOWN, MAX_DELAY, STABILIZATION, Job, slots, vertex

AT_ONCE = {
    COOLDOWN: "0 s",
    STABILIZATION: "0 s",
    MAX_DELAY: "0 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 1000,
}


def key(number: int) -> str:
    return ids.vertex_id("under-test", f"sink-{number}")


def graph_of(*numbers: int, upper: int = 4) -> JobGraph:
    """A query for each number: in-N -> sink-N."""
    vertices = []
    for number in numbers:
        vertices += [vertex(f"in-{number}"), vertex(f"sink-{number}", [f"in-{number}"])]
    sized = tuple(replace(one, parallelism=upper) for one in vertices)
    return JobGraph("under-test", JobType.STREAMING, sized)


def running(held: int = 2, upper: int = 2) -> Job:
    job = Job(graph_of(1), upper=upper, options=AT_ONCE).run(held=held)
    return job.do(QueryStarted(job.state.attempt, key(1), job.state.graph, ())).commit()


def start(job: Job, number: int, parallelism: int = 2, *, upper: int = 4) -> Job:
    """As the worker tells of it."""
    state = job.state
    new = [one for one in graph_of(number, upper=upper).vertices if one.id not in state.graph.by_id]
    graph = replace(state.graph, vertices=(*state.graph.vertices, *new))
    at = tuple((one.id, parallelism) for one in graph_of(number).vertices)
    return job.do(QueryStarted(state.attempt, key(number), graph, at))


def end(job: Job, number: int) -> Job:
    return job.do(QueryEnded(job.state.attempt, key(number)))


def test_a_query_that_comes_is_part_of_the_plan_in_force_without_another_version() -> None:
    job = running()
    before = job.state
    start(job, 2)
    assert job.kind == "Executing"
    assert job.parallelism == [2, 2, 2, 2]
    assert job.state.plan is not None and before.plan is not None
    assert job.state.plan.version == before.plan.version
    assert job.state.last_plan == job.state.plan
    assert not job.has_effect(SendPlan)


def test_its_bounds_are_another_version_of_the_requirements_whose_reason_names_its_vertices() -> None:
    job = running()
    start(job, 2, upper=3)
    now = job.state.requirements
    assert now.version == 2
    assert [(one.lower, one.upper) for _, one in now] == [(1, 2), (1, 2), (1, 3), (1, 3)]
    assert now.reason == "The program has started a query with in-2, sink-2."
    assert job.effect(DeclareResources).desired == 3


def test_its_record_ends_as_it_begins_and_is_of_its_vertices_only() -> None:
    job = running()
    start(job, 2)
    record = job.records[-1]
    assert (record.cause, record.rung) == (TriggerCause.INITIAL_SCHEDULE, Rung.IN_PLACE)
    assert [(one.vertex_id, one.pre, one.post) for one in record.vertices] == [
        (one.id, None, 2) for one in graph_of(2).vertices
    ]
    assert record.message == "The program has started a query with in-2, sink-2."
    assert (record.requested_by, record.request_reason) == (None, None)
    assert job.nothing_open


def test_what_it_could_have_more_is_a_rescale() -> None:
    job = running(held=4)
    assert job.parallelism == [2, 2]
    start(job, 2, parallelism=2, upper=4)
    assert job.kind == "Rescaling"
    target = job.effect(SendPlan).plan
    assert [count for _, count in target.parallelism] == [2, 2, 4, 4]
    assert job.open.message == "The program has started a query."


def test_a_query_that_comes_while_a_plan_is_on_its_way_is_part_of_both() -> None:
    job = running(held=2, upper=4)
    job.do(SlotsChanged(slots(4)))
    assert job.kind == "Rescaling"
    record = job.open
    start(job, 2, parallelism=2)
    assert job.kind == "Rescaling" and job.open.number == record.number
    assert job.parallelism == [2, 2, 2, 2]
    # It gets the slots that are there with the same rescale.
    assert [count for _, count in job.effect(SendPlan).plan.parallelism] == [4, 4, 4, 4]
    job.applied()
    assert (job.kind, job.parallelism) == ("Executing", [4, 4, 4, 4])


def test_a_query_that_comes_again_changes_nothing() -> None:
    job = running()
    start(job, 2)
    end(job, 2)
    before = job.state
    start(job, 2)
    assert job.state.requirements is before.requirements
    assert job.state.graph.ended == ()
    assert job.parallelism == [2, 2, 2, 2]


def test_vertices_of_a_query_that_ended_need_no_slots_while_another_runs() -> None:
    job = running(upper=2)
    start(job, 2, upper=4)
    assert job.state.supply.declared == 4
    end(job, 2)
    assert job.state.supply.declared == 2
    start(job, 2)
    assert job.state.supply.declared == 4


def test_if_all_queries_have_ended_the_slots_stay_for_the_next_one() -> None:
    job = running(upper=2)
    end(job, 1)
    assert (job.kind, job.state.supply.declared) == ("Executing", 2)
    assert "No query of it runs." in explain(job.state, job.now_ms)[0]


def test_queries_that_ended_long_ago_leave_the_graph() -> None:
    job = running()
    for number in range(2, ENDED_KEPT + 4):
        start(job, number)
        end(job, number)
    start(job, 1000)
    graph = job.state.graph
    assert len(graph.ended) == ENDED_KEPT and len(job.state.driver.started) == ENDED_KEPT + 2
    assert key(2) not in graph.by_id and key(4) in graph.by_id and key(1000) in graph.by_id
    assert [one for one, _ in job.state.requirements] == list(graph.by_id)
    assert len(job.parallelism) == len(graph.vertices)


def test_a_query_that_does_not_come_again_in_the_next_attempt_is_absent_and_fails_nothing() -> None:
    job = running()
    start(job, 2)
    job.do(AttemptFailed(job.state.attempt, "It broke.", stopped=True)).wait(60_000)
    assert job.kind == "CreatingExecutionGraph"
    job.do(QueryStarted(job.state.attempt, key(1), job.state.graph, ()))
    job.do(AttemptRunning(job.state.attempt)).commit()
    assert job.kind == "Executing"
    assert absent_vertices(job.state) == {one.id for one in graph_of(2).vertices}
    told = " ".join(explain(job.state, job.now_ms)[0])
    assert "Queries that the program has not started in this attempt: sink-2." in told


def killed(job: Job) -> Job:
    job.do(AttemptFailed(job.state.attempt, "It was killed.", stopped=True, outside=True)).wait(60_000)
    return job.do(AttemptRunning(job.state.attempt))


def again_with_one() -> Job:
    job = killed(start(running(held=4), 2, upper=4).applied())
    return job.do(QueryStarted(job.state.attempt, key(1), job.state.graph, ())).commit()


def left_out() -> Job:
    """Of two queries the larger one has not come again in its time."""
    job = again_with_one()
    assert (job.state.supply.declared, job.parallelism) == (4, [2, 2, 4, 4])
    job.wait(LATE_MS - 1)
    assert (job.state.supply.declared, job.state.graph.left_out) == (4, ())
    return job.wait(1)


def test_an_absent_query_needs_no_slots_when_its_time_is_over_and_those_that_it_wants_when_it_comes() -> None:
    job = left_out()
    assert (job.state.supply.declared, job.state.graph.left_out) == (2, (key(2),))
    assert absent_vertices(job.state) == {one.id for one in graph_of(2).vertices}
    job.hold(2).applied()
    assert job.parallelism == [2, 2, 2, 2]
    assert (
        job.records[-1].cause is TriggerCause.NEW_RESOURCE_AVAILABLE and job.records[-1].requested_by is None
    )
    start(job, 2)
    assert (job.state.supply.declared, job.state.graph.left_out) == (4, ())
    job.hold(4).applied()
    assert (job.parallelism, job.nothing_open) == ([2, 2, 4, 4], True)


def test_what_was_left_out_is_not_waited_for_by_the_next_attempt_either() -> None:
    job = killed(left_out())
    assert (job.state.supply.declared, job.state.graph.left_out) == (2, (key(2),))
    start(job, 2)
    assert (job.state.supply.declared, job.state.graph.left_out) == (4, ())


def test_a_query_that_has_ended_before_the_time_of_the_others_is_over_was_not_left_out() -> None:
    job = killed(end(start(running(held=4), 2, upper=4), 2))
    job.do(QueryStarted(job.state.attempt, key(1), job.state.graph, ())).commit().wait(LATE_MS)
    assert (job.state.graph.ended, job.state.graph.left_out) == ((key(2),), ())


@pytest.mark.parametrize("begins_anew", [True, False])
def test_the_record_of_a_restart_says_that_a_query_has_lost_its_checkpoint(begins_anew: bool) -> None:
    job = running()
    job.do(AttemptFailed(job.state.attempt, "It broke.", stopped=True)).wait(60_000)
    job.do(QueryStarted(job.state.attempt, key(1), job.state.graph, (), begins_anew=begins_anew))
    job.do(AttemptRunning(job.state.attempt)).commit()
    said = "The query of sink-1 begins anew: its checkpoint was empty or gone." in (
        job.records[-1].message or ""
    )
    assert said is begins_anew


def test_what_begins_anew_while_nothing_changes_has_a_record_of_its_own() -> None:
    job = running()
    before = len(job.records)
    job.do(QueryStarted(job.state.attempt, key(1), job.state.graph, (), begins_anew=True))
    (told,) = job.records[before:]
    assert told.message == "The query of sink-1 begins anew: its checkpoint was empty or gone."


def test_in_reactive_mode_what_comes_has_no_upper_bound_but_its_max_parallelism() -> None:
    job = Job(graph_of(1), options={**AT_ONCE, "scheduler-mode": "reactive"}).run(held=9)
    job.do(QueryStarted(job.state.attempt, key(1), job.state.graph, ()))
    start(job, 2)
    bounds, most = (
        job.state.requirements.as_dict(),
        {one.id: one.max_parallelism for one in graph_of(2).vertices},
    )
    assert {vertex: bounds[vertex].upper for vertex in most} == most and max(most.values()) > 4


def test_bounds_of_vertices_that_leave_the_graph_wait_for_them() -> None:
    job = running(held=4)
    start(job, 2)
    before = job.state.requirements
    wanted = tuple((one, Bounds(1, 3)) for one, _ in before)
    job.do(RequirementsUpdated(replace(before, uuid="other", version=before.version + 1, bounds=wanted)))
    end(job, 2)
    for number in range(3, ENDED_KEPT + 5):
        start(job, number)
        end(job, number)
    assert key(2) not in job.state.graph.by_id
    assert {NamedBounds("in-2", 1, 3), NamedBounds("sink-2", 1, 3)} <= set(job.state.graph.bounds)


def test_a_program_that_names_its_queries_otherwise_in_each_attempt_does_not_grow_for_ever() -> None:
    job = running()
    for number in range(2, ENDED_KEPT + 10):
        job.do(AttemptFailed(job.state.attempt, "It broke.", stopped=True, outside=True)).wait(5_000)
        assert job.kind == "CreatingExecutionGraph"
        start(job, number)
        job.do(AttemptRunning(job.state.attempt)).commit()
    graph = job.state.graph
    assert len(graph.vertices) == 2 * (ENDED_KEPT + 1)
    assert key(ENDED_KEPT + 9) in graph.by_id and key(1) not in graph.by_id


def test_ended_queries_of_many_vertices_make_room_for_those_that_run() -> None:
    job = running()
    for number in range(2, 6):
        inputs = [vertex(f"in-{number}-{each}") for each in range(60)]
        sink = vertex(f"sink-{number}", [one.name for one in inputs])
        graph = replace(job.state.graph, vertices=(*job.state.graph.vertices, *inputs, sink))
        job.do(QueryStarted(job.state.attempt, sink.id, graph, ()))
        end(job, number)
    assert len(job.state.graph.vertices) <= MAX_VERTICES
    assert key(1) in job.state.graph.by_id and key(5) in job.state.graph.by_id


def test_a_query_that_comes_before_the_attempt_runs_is_part_of_its_plan() -> None:
    job = Job(graph_of(1), upper=2, options=AT_ONCE).submit(held=2)
    assert job.kind == "CreatingExecutionGraph"
    start(job, 2, parallelism=2)
    job.do(AttemptRunning(job.state.attempt))
    assert job.parallelism == [2, 2, 2, 2]


def test_a_batch_of_a_query_that_came_completes_nothing_else() -> None:
    job = running()
    start(job, 2)
    assert job.state.plan is not None
    before = job.records[:]
    job.do(BatchCompleted(job.state.attempt, "q-2", 0, job.state.plan.version))
    assert job.records == before and job.kind == "Executing"


@pytest.mark.parametrize("parallelism", [0, 1, 10_000])
def test_what_a_driver_says_of_parallelism_is_kept_within_what_is_possible(parallelism: int) -> None:
    job = running(held=2)
    start(job, 2, parallelism=parallelism)
    assert all(1 <= count <= 2 for count in job.parallelism)


def test_a_query_that_comes_has_no_more_tasks_than_each_of_the_plans_has_room_for() -> None:
    job = running(held=2, upper=4)
    job.do(SlotsChanged(slots(4)))
    assert job.kind == "Rescaling"
    start(job, 2, parallelism=4)
    assert job.parallelism == [2, 2, 2, 2]
    assert isinstance(job.state.phase, Rescaling)
    assert [count for _, count in job.state.phase.target.parallelism] == [4, 4, 4, 4]


def test_what_was_taken_back_limits_no_query_that_comes_and_is_lifted_as_ever() -> None:
    job = running(upper=2).put(1, 4).hold(4)
    job.do(AttemptFailed(job.state.attempt, "Too many connections.", stopped=True)).starts().commit()
    assert job.parallelism == [2, 2]
    start(job, 2, parallelism=2).hold(4).applied()
    assert job.parallelism == [2, 2, 4, 4]
    assert job.state.trial.taken_back is not None and len(job.state.trial.taken_back.good) == 2
    job.hold(1).applied().hold(4).applied()
    assert job.parallelism == [2, 2, 4, 4] and job.state.trial.taken_back is not None
    job.graph = job.state.graph
    job.put(1, 3).applied()
    assert job.parallelism == [3, 3, 3, 3] and job.state.trial.taken_back is None


def test_a_query_that_has_ended_is_no_reason_for_more_slots_nor_a_standstill() -> None:
    job = running(held=2, upper=2)
    start(job, 2, parallelism=2, upper=4)
    end(job, 2)
    job.commit()
    assert job.parallelism == [2, 2, 2, 2] and job.kind == "Executing"

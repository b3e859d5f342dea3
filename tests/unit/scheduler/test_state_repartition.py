"""Other numbers of state partitions: when a redistribution begins, that it is seen through, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model import ids
from app.model.jobgraph import JobGraph, JobType
from app.model.options import JobOptions
from app.model.plan import Rung
from app.model.requirements import Bounds, Requirements
from app.model.state_partitions import numbers_of, partitions_of_queries, wanted_graph
from app.scheduler.adaptive.draft import InvalidTransition
from app.scheduler.adaptive.effects import DeclareResources, SendPlan, StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    AttemptStartFailed,
    AttemptStopped,
    RequirementsUpdated,
    SlotsChanged,
    StartScheduling,
    StateRepartitioned,
)
from app.scheduler.adaptive.repartition import MAX_TRIES
from app.scheduler.explain import explain
from app.scheduler.step import step
from tests.unit.scheduler.driving import COOLDOWN, MAX_DELAY, STABILIZATION, Job, slots, vertex

AT_ONCE = {COOLDOWN: "0 s", STABILIZATION: "0 s", MAX_DELAY: "0 s"}
SINK = ids.vertex_id("under-test", "sink")
AGG = ids.vertex_id("under-test", "agg")


def stateful(partitions: int = 8) -> JobGraph:
    agg = replace(vertex("agg", ["source"], maximum=partitions), stateful=True)
    return JobGraph("under-test", JobType.STREAMING, (vertex("source"), agg, vertex("sink", ["agg"])))


def running(held: int = 2, **options: object) -> Job:
    return Job(stateful(), upper=2, options={**AT_ONCE, **options}).run(held=held)


def put(job: Job, upper: int, partitions: int | None = None, lower: int = 1) -> Job:
    """Bounds of agg, and the number of its state partitions that is asked for expressly."""
    job.version += 1
    pairs = tuple(
        (one.id, Bounds(lower, upper) if one.id == AGG else Bounds(1, 2)) for one in job.graph.vertices
    )
    numbers = () if partitions is None else ((AGG, partitions),)
    return job.do(
        RequirementsUpdated(
            Requirements(
                ids.derive_id("requirements", job.version), job.version, pairs, state_partitions=numbers
            )
        )
    )


def partitions(job: Job) -> int:
    return dict(numbers_of(job.state.graph))[AGG]


def done(job: Job, number: int) -> Job:
    job.do(StateRepartitioned(job.state.attempt, ((SINK, number),)))
    job.do(AttemptRunning(job.state.attempt))
    return job.commit()


def begun(job: Job, number: int = 12) -> Job:
    """Asked for by an upper bound, and the attempt for it is being started."""
    put(job, number)
    assert (job.kind, job.effect(StopAttempt).mode) == ("Restarting", StopMode.BOUNDARY)
    return job.stops(driver_alive=True)


def test_an_upper_bound_above_the_partitions_drains_redistributes_and_restarts() -> None:
    job = begun(running(held=12))
    assert (job.kind, partitions(job)) == ("CreatingExecutionGraph", 12)
    assert job.effect(StartAttempt).reuse_driver
    assert job.state.partitions.repartition is not None, "durable with the order, before anything is done"
    words = " ".join(explain(job.state, job.now_ms)[0])
    assert "redistributes the state of agg from 8 to 12 partitions" in words
    done(job, 12)
    assert (job.kind, job.parallelism, job.state.partitions.repartition) == ("Executing", [2, 12, 2], None)
    record = job.records[-1]
    assert record.rung is Rung.STATE_REPARTITION
    assert record.terminal_state is not None and record.terminal_state.value == "COMPLETED"
    assert "Redistributed the state of agg from 8 to 12 partitions" in (record.message or "")


def test_fewer_are_asked_for_expressly_and_stay() -> None:
    job = done(begun(running(held=12)), 12)
    put(job, 6)
    job.wait(1_000)
    if job.kind == "Rescaling":
        job.applied()
    assert partitions(job) == 12, "a lower upper bound alone costs no redistribution"
    put(job, 6, 6).stops(driver_alive=True)
    done(job, 6)
    assert (job.kind, partitions(job), job.parallelism) == ("Executing", 6, [2, 6, 2])


def test_no_slots_are_needed_for_more_partitions() -> None:
    job = done(begun(running(held=2)), 12)
    assert (partitions(job), job.parallelism) == (12, [2, 2, 2])
    job.hold(12).wait(1_000)
    assert job.effect(SendPlan) if job.has_effect(SendPlan) else job.kind == "Rescaling"
    job.applied()
    assert job.parallelism == [2, 12, 2], "in place, as the state is ready for it"


def test_the_same_number_is_tried_until_it_is_done() -> None:
    job = begun(running())
    put(job, 20)
    job.do(AttemptStartFailed(job.state.attempt, "killed")).wait(60_000)
    assert (job.kind, partitions(job)) == ("CreatingExecutionGraph", 12), "20 have to wait"
    assert job.state.partitions.repartition is not None and job.state.partitions.repartition.failed == 1
    done(job, 12)
    assert job.kind == "Restarting", "and now 20 are begun"
    job.stops(driver_alive=True)
    assert partitions(job) == 20


def test_it_is_given_up_when_the_driver_says_that_it_cannot_be_done() -> None:
    job = begun(running(held=12))
    job.do(AttemptFailed(job.state.attempt, "no space", stopped=True, recoverable=False, repartition=True))
    assert partitions(job) == 8 and job.state.partitions.repartition is None
    assert job.kind == "RetryingExecutionGraphCreation", "the job goes on, whatever it was"
    (ended,) = [one for one in job.records if one.reason and one.reason.value == "EXCEPTION_OCCURRED"]
    assert "no space" in (ended.message or "") and "stays as it is" in (ended.message or "")
    job.wait(60_000).do(AttemptRunning(job.state.attempt)).commit()
    assert (job.kind, job.parallelism) == ("Executing", [2, 8, 2])
    assert "no space" in " ".join(explain(job.state, job.now_ms)[0])
    job.wait(3_600_000)
    assert job.kind == "Executing", "not tried again by itself"
    put(job, 12)
    assert job.kind == "Restarting", "but when it is asked for again"


def test_it_is_given_up_when_it_kills_one_driver_after_the_other() -> None:
    job = begun(running())
    for _ in range(MAX_TRIES):
        assert partitions(job) == 12
        job.do(AttemptStartFailed(job.state.attempt, "out of memory")).wait(60_000)
    assert (job.kind, partitions(job)) == ("CreatingExecutionGraph", 8)


def test_it_is_given_up_when_it_takes_too_long_and_not_before() -> None:
    job = begun(running())
    job.wait(1_800_000)
    assert job.state.phase.failure is None, "longer than the start of any other attempt"
    job.wait(120_000)
    assert job.state.phase.failure is not None
    job.do(AttemptStopped(job.state.attempt))
    assert (partitions(job), job.state.partitions.repartition) == (8, None)


def test_a_lower_bound_that_only_more_partitions_allow_is_explained_when_there_are_none() -> None:
    job = running(held=12)
    put(job, 12, lower=10).stops(driver_alive=True)
    job.do(AttemptFailed(job.state.attempt, "no space", stopped=True, repartition=True)).wait(60_000)
    job.do(AttemptRunning(job.state.attempt)).commit()
    assert job.parallelism == [2, 8, 2]
    assert "below its lower bound 10" in " ".join(explain(job.state, job.now_ms)[1])


def test_what_the_checkpoint_has_counts() -> None:
    """The driver had done it when it was given up: the next one tells."""
    job = begun(running())
    for _ in range(MAX_TRIES):
        job.do(AttemptStartFailed(job.state.attempt, "died after it")).wait(60_000)
    assert partitions(job) == 8
    done(job, 12)
    assert partitions(job) == 12


def test_a_plan_for_more_partitions_than_there_are_is_made_anew() -> None:
    job = Job(stateful(), upper=8, options=AT_ONCE).do(StartScheduling()).hold(8)
    job.do(StateRepartitioned(1, ((SINK, 3),)))
    assert job.kind == "WaitingForResources" and partitions(job) == 3
    job.stops()
    assert (job.kind, partitions(job)) == ("CreatingExecutionGraph", 8), "which are what the bounds ask for"
    assert done(job, 8).parallelism == [8, 8, 8]


def test_an_attempt_that_does_not_say_so_has_not_done_it() -> None:
    job = begun(running())
    with pytest.raises(InvalidTransition, match="has not said that the state was redistributed"):
        step(job.state, AttemptRunning(job.state.attempt), job.now_ms)


def test_before_the_first_attempt_another_number_costs_nothing() -> None:
    job = Job(stateful(), upper=2, options=AT_ONCE).do(StartScheduling())
    put(job, 12)
    assert (partitions(job), job.state.partitions.repartition) == (12, None)
    assert not job.hold(12).state.partitions.repartition


def test_it_waits_for_its_time_as_any_restart() -> None:
    job = running(**{COOLDOWN: "1 h"})
    put(job, 12)
    assert job.kind == "Executing" and partitions(job) == 8
    words = " ".join(explain(job.state, job.now_ms)[0])
    assert "to come, with a drain and a restart: the state of agg from 8 to 12 partitions" in words
    put(job, 8)
    assert "to come" not in " ".join(explain(job.state, job.now_ms)[0]), "and can be taken back until then"


def test_meanwhile_lost_slots_are_answered_in_place() -> None:
    job = Job(stateful(), upper=4, options={**AT_ONCE, COOLDOWN: "1 h"}).run(held=4)
    put(job, 12)
    job.do(SlotsChanged(slots(3)))
    assert job.kind == "Rescaling"


def test_a_failover_takes_it_along() -> None:
    job = running(**{COOLDOWN: "1 h"})
    put(job, 12)
    job.do(AttemptFailed(1, "boom", stopped=True)).wait(120_000)
    assert (job.kind, partitions(job)) == ("CreatingExecutionGraph", 12)


def test_stateful_vertices_of_a_query_share_its_number() -> None:
    first = replace(vertex("first", ["source"], maximum=4, in_place=False), stateful=True)
    second = replace(vertex("second", ["first"], maximum=8), stateful=True)
    graph = JobGraph(
        "under-test", JobType.STREAMING, (vertex("source"), first, second, vertex("sink", ["second"]))
    )
    assert partitions_of_queries(graph) == {SINK: 8}
    job = Job(graph, upper=2, options=AT_ONCE).run(held=8)
    job.put_each(source=(1, 2), first=(1, 7), second=(1, 2), sink=(1, 2))
    assert dict(numbers_of(job.state.graph))[first.id] == 7
    assert job.state.partitions.repartition is None and job.kind != "CreatingExecutionGraph", (
        "its query has 8 already"
    )


def test_vertices_without_state_have_nothing_to_redistribute() -> None:
    graph = stateful()
    pairs = tuple((one.id, Bounds(1, 8)) for one in graph.vertices)
    assert wanted_graph(graph, Requirements("r", 1, pairs), JobOptions(), has_run=True) is graph


def test_bounds_that_had_to_wait_for_a_redistribution_are_told_to_the_cluster_once_it_is_done() -> None:
    job = begun(running(held=12))
    put(job, 20)
    assert job.state.supply.declared == 12, "one after the other"
    job.do(StateRepartitioned(job.state.attempt, ((SINK, 12),)))
    assert job.effect(DeclareResources).desired == 20


def test_fewer_partitions_than_tasks_run_are_not_taken_over_under_them() -> None:
    """Of two stateful vertices of a query the one with more partitions says how many there are."""
    inner = replace(vertex("again", ["agg"], maximum=12), stateful=True)
    agg = replace(vertex("agg", ["source"], maximum=8), stateful=True)
    graph = JobGraph(
        "under-test", JobType.STREAMING, (vertex("source"), agg, inner, vertex("sink", ["again"]))
    )
    job = Job(graph, upper=2, options={STABILIZATION: "10 s"}).run(held=2)
    put(job, 2, 6)
    assert (job.kind, partitions(job)) == ("Executing", 6), "nothing has to be done for it"
    assert partitions(put(job, 1, 1)) == 6, "two tasks run"


def test_a_query_that_is_started_late_tells_what_its_state_has() -> None:
    job = running(held=12)
    job.do(StateRepartitioned(job.state.attempt, ((SINK, 5),)))
    assert (job.kind, partitions(job)) == ("Executing", 5)
    put(job, 6)
    assert job.kind == "Restarting", "more than the state has"


def test_state_of_a_late_query_with_fewer_partitions_than_tasks_in_the_plan() -> None:
    job = running(held=12, **{COOLDOWN: "1 h"})
    job.do(StateRepartitioned(job.state.attempt, ((SINK, 1),)))
    assert (job.kind, partitions(job), job.parallelism) == ("Executing", 1, [2, 1, 2]), "so many run"
    job.wait(3_600_000)
    assert job.kind == "Restarting", "its upper bound is 2"
    job.stops(driver_alive=True)
    assert done(job, 2).parallelism == [2, 2, 2]

    put(job, 1)
    assert job.kind == "Rescaling"
    job.do(StateRepartitioned(job.state.attempt, ((SINK, 1),)))
    job.applied()
    assert (job.kind, partitions(job), job.parallelism) == ("Executing", 1, [2, 1, 2])

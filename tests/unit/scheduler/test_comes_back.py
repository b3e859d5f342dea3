"""Lower bounds that were raised beyond the slots of a job are not its end: it comes back as it was left to run."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.requirements import Deadline, OnTimeout
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.scheduler.adaptive.effects import DeclareResources, StartAttempt
from app.scheduler.adaptive.events import AttemptFailed, ScalingPolicyUpdated, SlotsChanged, StartScheduling
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import Job, group_graph, slots


def beyond(held: int = 4, lower: int = 12, **more: Any) -> Job:
    """It runs with ``held`` slots, and its lower bounds ask for more."""
    return Job(**{"lower": 1, "upper": 12, **more}).run(held=held).put(lower, 12)


def killed(job: Job) -> Job:
    return job.do(AttemptFailed(job.state.attempt, "killed", stopped=True, outside=True))


def words(job: Job) -> str:
    sentences, violations = explain(job.state, job.now_ms)
    return " ".join([*sentences, *violations])


def test_it_comes_back_at_the_parallelism_that_it_had_and_says_what_does_not_hold() -> None:
    job = beyond()
    assert "If the job has to be started again, it starts with what there is." in words(job)
    killed(job)
    assert job.effect(StartAttempt).plan.slot_count == 4
    assert "Its lower bounds need 12 slots; it ran with fewer" in words(job)
    assert job.effect(DeclareResources) == DeclareResources(12, 1), "it is to keep its slots meanwhile"
    job.starts()
    assert job.effect(DeclareResources) == DeclareResources(12, 12)
    assert job.commit().parallelism == [4, 4, 4]
    assert "source runs at 4, below its lower bound 12" in words(job)
    assert [one.sufficient for one in job.records[-1].vertices] == [12, 12, 12], (
        "the record says what was declared"
    )


def test_with_fewer_slots_it_comes_back_at_less() -> None:
    job = killed(beyond().hold(2))
    assert job.starts().commit().parallelism == [2, 2, 2]
    assert killed(job.wait(5_000)).wait(2_000).starts().commit().parallelism == [2, 2, 2]


def test_slots_that_come_while_it_is_down_are_used() -> None:
    job = killed(beyond()).hold(3).stops().hold(6).wait(1_100)
    assert job.starts().commit().parallelism == [3, 3, 3], "those that stayed"
    assert killed(job.wait(5_000)).wait(2_000).starts().commit().parallelism == [6, 6, 6]


def test_with_enough_slots_its_bounds_hold_again() -> None:
    job = killed(killed(beyond()).starts().commit().wait(5_000)).hold(12).wait(2_000)
    assert job.state.supply.minimal == 12
    assert job.starts().commit().parallelism == [12, 12, 12]
    assert not explain(job.state, job.now_ms)[1]


def test_without_any_slot_it_waits() -> None:
    job = killed(beyond().do(SlotsChanged(())))
    assert job.kind == "WaitingForResources" and job.state.supply.minimal == 1
    assert job.hold(1).effect(StartAttempt).plan.slot_count == 1


def test_each_group_needs_a_slot() -> None:
    job = killed(beyond(graph=group_graph(["source", "agg", "sink"]), held=6).hold(2))
    assert job.kind == "WaitingForResources"
    assert job.hold(3).starts().commit().parallelism == [1, 1, 1]


def test_a_floor_is_no_end_either() -> None:
    job = Job(lower=1, upper=12).run(held=4)
    job.do(ScalingPolicyUpdated(ScalingPolicy(2, FloorCeiling(8, None))))
    assert killed(job).starts().commit().parallelism == [4, 4, 4]


def test_bounds_that_need_more_state_partitions_are_no_end_either() -> None:
    job = beyond(held=4, lower=2).put(200, 200)
    assert killed(job).effect(StartAttempt).plan.slot_count == 4


@pytest.mark.parametrize("then", OnTimeout)
def test_with_a_deadline_the_former_bounds_hold_until_then(then: OnTimeout) -> None:
    job = Job(lower=1, upper=12).run(held=4)
    job.put(12, 12, deadline=Deadline(job.now_ms + 60_000, then))
    killed(job).starts().commit()
    assert job.parallelism == [4, 4, 4] and job.state.queued
    job.wait(60_000)
    assert killed(job).wait(2_000).starts().commit().parallelism == [4, 4, 4]


def test_a_new_job_waits_for_its_lower_bounds() -> None:
    job = Job(lower=4, upper=12).do(StartScheduling()).hold(3)
    assert job.kind == "WaitingForResources"
    job.put(12, 12).do(SlotsChanged(slots(5)))
    assert job.kind == "WaitingForResources"


def test_bounds_that_held_are_waited_for() -> None:
    """That a job never runs with less is what its lower bounds are for; it did not."""
    job = killed(Job(lower=4, upper=12).run(held=4).hold(3))
    assert job.kind == "WaitingForResources" and job.state.supply.minimal == 4

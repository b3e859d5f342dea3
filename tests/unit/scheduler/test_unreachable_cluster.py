"""While the cluster is unreachable nothing is known of its slots: no wait ends, nothing starts, nothing is taken."""

from __future__ import annotations

import pytest

from app.model.plan import Slot
from app.scheduler.adaptive.effects import ReleaseSlots, SendPlan, StartAttempt, StopAttempt
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptStartFailed,
    BatchCompleted,
    PlanApplied,
    SlotsChanged,
    StartScheduling,
    StateRepartitioned,
)
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import Job, chain, restarting_job, slots

HOUR_MS = 3_600_000


def away(job: Job, held: tuple[Slot, ...] | None = None) -> Job:
    return job.do(
        SlotsChanged(
            job.state.slots if held is None else held, job.state.supply.allowed, cluster_unreachable=True
        )
    )


def back(job: Job, count: int) -> Job:
    return job.do(SlotsChanged(slots(count)))


def said(job: Job) -> str:
    return " ".join(explain(job.state, job.now_ms)[0])


def test_a_wait_for_slots_does_not_end_while_none_can_be_seen() -> None:
    job = Job(lower=2, upper=4).do(StartScheduling()).hold(1).wait(200_000)
    away(job).wait(10 * HOUR_MS)
    assert (job.kind, job.state.timers) == ("WaitingForResources", ())
    assert job.state.recovery.creation.attempts == 0
    assert "unreachable for 10 h: the job is started when it is reachable again" in said(job)
    back(job, 1)
    assert job.timer_in_ms("wait-timeout") == 300_000, "it has just begun to look"
    job.wait(300_000)
    assert job.kind == "RetryingExecutionGraphCreation"
    assert job.state.phase.error.endswith("holds 1 after waiting for 300000 ms.")


def test_nothing_starts_in_slots_that_may_be_gone() -> None:
    job = Job(chain(in_place=False), upper=4).do(StartScheduling()).hold(2)
    assert job.timer_in_ms("stabilization") == 10_000
    away(job).wait(HOUR_MS)
    assert job.kind == "WaitingForResources"
    # All that are desired are there when the cluster is reachable: the job starts at once.
    back(job, 4)
    assert job.effect(StartAttempt).plan.slot_count == 4


def test_fewer_than_desired_are_waited_for_anew() -> None:
    job = away(Job(chain(in_place=False), upper=4).do(StartScheduling()).hold(2)).wait(HOUR_MS)
    back(job, 2)
    assert job.kind == "WaitingForResources" and job.timer_in_ms("stabilization") == 10_000
    job.wait(10_000)
    assert job.effect(StartAttempt).plan.slot_count == 2


def test_a_job_that_comes_meanwhile_waits() -> None:
    job = away(Job(), slots(2)).do(StartScheduling())
    assert (job.kind, job.state.timers) == ("WaitingForResources", ())
    assert back(job, 2).kind == "CreatingExecutionGraph"


def test_it_is_told_once_and_again_changes_nothing() -> None:
    job = away(Job().do(StartScheduling()))
    before = job.state
    away(job.wait(1000))
    assert job.state is before


def test_a_start_that_fails_meanwhile_does_not_count() -> None:
    job = Job().do(StartScheduling()).hold(2)
    assert job.kind == "CreatingExecutionGraph"
    away(job)
    assert "a start that fails meanwhile is tried again, and does not count" in said(job)
    for _ in range(20):
        job.do(AttemptStartFailed(job.state.attempt, "None of 2 executors has come within 60 s."))
        assert job.kind == "WaitingForResources"
        back(job, 2)
        assert job.kind == "CreatingExecutionGraph"
        away(job)
    assert job.state.recovery.creation.attempts == 0
    # Seen again, it counts: the next failure is the first.
    job.do(AttemptStartFailed(job.state.attempt, "late"))
    back(job, 2).do(AttemptStartFailed(job.state.attempt, "no java"))
    assert (job.kind, job.state.recovery.creation.attempts) == ("RetryingExecutionGraphCreation", 1)


def test_a_start_that_fails_after_the_cluster_was_back_does_not_count_either() -> None:
    job = back(away(Job().do(StartScheduling()).hold(2)), 2)
    job.do(AttemptFailed(1, "None of 2 executors has come within 60 s.", stopped=True, outside=True))
    assert job.kind == "CreatingExecutionGraph" and job.state.attempt == 2
    assert job.state.recovery.creation.attempts == 0


def test_a_start_that_hangs_meanwhile_does_not_count() -> None:
    job = away(Job().do(StartScheduling()).hold(2)).wait(130_000)
    assert job.has_effect(StopAttempt)
    job.stops()
    assert (job.kind, job.state.recovery.creation.attempts) == ("WaitingForResources", 0)


def test_a_failure_that_is_final_is_final() -> None:
    job = away(Job().do(StartScheduling()).hold(2))
    job.do(AttemptStartFailed(1, "The graph cannot be built.", recoverable=False))
    assert str(job.status) == "FAILED"


def test_a_job_that_fails_meanwhile_waits_and_uses_up_one_restart() -> None:
    options = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 1}
    job = away(Job(options=options).run())
    job.do(AttemptFailed(1, "no executors", stopped=True, outside=True)).wait(5 * HOUR_MS)
    assert (job.kind, job.state.recovery.strategy.attempts) == ("WaitingForResources", 1)
    assert back(job, 2).kind == "CreatingExecutionGraph"


def test_a_job_that_runs_keeps_everything() -> None:
    job = away(Job(upper=4).run(held=4))
    job.wait(HOUR_MS).commit()
    assert (job.kind, job.parallelism, len(job.state.slots)) == ("Executing", [4, 4, 4], 4)
    assert not any(isinstance(one, ReleaseSlots | StopAttempt) for one in job.history)
    assert "unreachable for 60 min: the job keeps the slots that it has" in said(job)


def test_one_that_has_just_started_keeps_everything() -> None:
    job = away(Job().do(StartScheduling()).hold(2)).starts().commit()
    assert (job.kind, len(job.state.slots)) == ("Executing", 2)


def test_no_restart_is_begun_for_other_bounds_and_its_record_stays_open() -> None:
    job = away(restarting_job().wait(40_000))
    job.put(1, 1).wait(5 * HOUR_MS).commit()
    assert (job.kind, job.parallelism) == ("Executing", [2, 2, 2])
    assert job.open.cause.value == "UPDATE_REQUIREMENT"
    assert "Nothing is started or stopped before the cluster is reachable again." in said(job)
    back(job, 2)
    assert job.kind == "Executing" and job.timer_in_ms("evaluation") > 0, "it has just come to be possible"
    job.wait(70_000)
    assert job.kind == "Restarting"


def test_a_wait_for_more_slots_is_no_reason_to_close_a_record() -> None:
    job = away(Job(upper=2).run()).put(1, 4).wait(5 * HOUR_MS)
    assert job.open.cause.value == "UPDATE_REQUIREMENT"
    back(job, 2).wait(70_000)
    assert job.records[-1].message == "4 slots are wanted; only 2 came."


def test_what_can_be_done_in_place_is_done() -> None:
    job = away(Job(upper=4).run(held=4)).put(1, 2)
    assert job.effect(SendPlan).plan.slot_count == 2
    job.applied()
    assert job.parallelism == [2, 2, 2]


def test_nobody_waits_for_what_it_should_give_back() -> None:
    job = Job(chain(in_place=False), upper=4).run(held=4)
    job.do(SlotsChanged(slots(4), allowed=2, cluster_unreachable=True)).wait(HOUR_MS)
    assert (job.kind, job.parallelism) == ("Executing", [4, 4, 4])
    job.do(SlotsChanged(slots(4), allowed=2))
    assert job.kind == "Restarting"


@pytest.mark.parametrize(
    ("driver_alive", "then"), [(True, "CreatingExecutionGraph"), (False, "WaitingForResources")]
)
def test_a_restart_that_was_begun_goes_on_only_in_the_driver_that_waits(
    driver_alive: bool, then: str
) -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s").hold(4)
    assert job.kind == "Restarting"
    away(job).stops(driver_alive=driver_alive)
    assert job.kind == then
    if driver_alive:
        # It has its executors; if they do not suffice that says nothing of the job.
        job.do(AttemptStartFailed(2, "no executors"))
        assert (job.kind, job.state.recovery.creation.attempts) == ("WaitingForResources", 0)


def test_a_redistribution_of_state_is_not_given_up() -> None:
    job = Job(options={"slotwise.state.repartition.enabled": True}).do(StartScheduling()).hold(2)
    job.do(StateRepartitioned(1, ()))
    away(job)
    job.do(AttemptStartFailed(1, "no executors"))
    assert job.state.partitions.refused is None and job.kind == "WaitingForResources"


def test_slots_that_were_lost_meanwhile_are_lost_when_it_is_seen_again() -> None:
    job = away(Job(upper=4).run(held=4)).wait(HOUR_MS)
    back(job, 3)
    assert job.effect(SendPlan).plan.slot_count == 3
    assert job.open.cause.value == "RECOVERABLE_FAILOVER"


def test_a_driver_that_keeps_to_an_older_plan_is_not_restarted_before_its_slots_are_seen() -> None:
    job = away(Job(upper=4).run().hold(4))

    def commits_behind() -> Job:
        for _ in range(30):
            if job.kind == "Rescaling":
                job.wait(10_000).do(BatchCompleted(1, "query", 9, job.state.plan_version - 1))
        return job

    assert commits_behind().kind == "Rescaling"
    back(job, 4)
    assert commits_behind().kind == "Restarting"


def test_a_plan_that_spark_does_not_follow_is_in_force_while_its_slots_cannot_be_seen() -> None:
    job = away(Job(upper=4).run().hold(4))
    told = ((job.graph.vertices[0].id, "Vertex a has 2 tasks instead of 4."),)
    job.do(PlanApplied(1, job.state.plan_version, not_followed=told))
    assert job.kind == "Executing"
    assert job.records[-1].message.startswith("Vertex a has 2 tasks instead of 4.")

"""A start waits for no slots that may never come: it begins with its lower bounds, and grows in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.model.jobgraph import JobType
from app.model.options import JobOptions
from app.scheduler.adaptive.effects import StartAttempt, StopAttempt
from app.scheduler.adaptive.events import (
    AttemptFailed,
    DriverReady,
    SlotsChanged,
    StartScheduling,
)
from app.scheduler.adaptive.resources import FLINK_STABILIZATION_MS
from app.scheduler.arbiter import Claim, arbitrate
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import Job, chain, group_graph, slots

STABILIZATION = "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout"
CREATION = "jobmanager.adaptive-scheduler.retry-execution-graph-creation.restart-strategy."
MANAGER_TIMERS = {"cooldown", "evaluation", "stabilization", "trigger"}


def submitted(held: int = 4, **more: Any) -> Job:
    return Job(**{"lower": 1, "upper": 12, **more}).do(StartScheduling()).hold(held)


def killed(job: Job, **more: Any) -> Job:
    return job.do(AttemptFailed(job.state.attempt, "killed", stopped=True, outside=True, **more))


def words(job: Job) -> str:
    sentences, violations = explain(job.state, job.now_ms)
    return " ".join([*sentences, *violations])


# ---- the wait for slots


def test_a_job_starts_with_what_there_is_and_no_timer_is_held_for_more() -> None:
    job = submitted()
    assert job.effect(StartAttempt).plan.slot_count == 4
    assert not {timer.name for timer in job.state.timers} & MANAGER_TIMERS
    assert "does not wait for more slots, as Flink's would for 10 s" in words(job)
    assert job.starts().commit().parallelism == [4, 4, 4]


def test_it_grows_in_place_when_more_come() -> None:
    job = submitted().starts().commit().hold(12).wait(100)
    assert job.kind == "Rescaling"
    assert job.applied().parallelism == [12, 12, 12]


def test_too_few_for_the_lower_bounds_are_waited_for() -> None:
    job = submitted(held=2, lower=3)
    assert job.kind == "WaitingForResources" and job.timer_in_ms("wait-timeout") == 300_000
    assert job.hold(3).kind == "CreatingExecutionGraph"


def test_a_recovery_does_not_wait_either() -> None:
    job = killed(submitted().starts().commit())
    assert job.effect(StartAttempt).plan.slot_count == 4


@pytest.mark.parametrize(("set_to", "waits"), [("10 s", 10_000), ("0 s", 0)])
def test_a_wait_that_is_set_is_obeyed(set_to: str, waits: int) -> None:
    job = submitted(options={STABILIZATION: set_to})
    if waits:
        assert job.timer_in_ms("stabilization") == waits
        job.wait(waits)
    assert job.kind == "CreatingExecutionGraph" and "as Flink's" not in words(job)


def test_a_job_that_would_be_restarted_for_more_waits_as_in_flink() -> None:
    job = submitted(graph=chain(in_place=False))
    assert job.timer_in_ms("stabilization") == FLINK_STABILIZATION_MS


@pytest.mark.parametrize("kind", JobType)
def test_slots_that_others_are_giving_back_are_waited_for(kind: JobType) -> None:
    job = Job(replace(group_graph(["source"]), type=kind), lower=1, upper=4).do(StartScheduling())
    job.do(SlotsChanged(slots(2), coming=1))
    assert job.timer_in_ms("stabilization") == FLINK_STABILIZATION_MS
    assert "waits for 1 slot(s) that others give back" in words(job)
    assert job.do(SlotsChanged(slots(3))).effect(StartAttempt).plan.slot_count == 3


def test_they_are_not_waited_for_for_ever() -> None:
    job = Job(upper=4).do(StartScheduling()).do(SlotsChanged(slots(2), coming=1)).wait(10_000)
    assert job.effect(StartAttempt).plan.slot_count == 2


def test_nor_if_there_is_to_be_no_wait() -> None:
    job = Job(upper=4, options={STABILIZATION: "0 s"}).do(StartScheduling())
    assert job.do(SlotsChanged(slots(2), coming=1)).kind == "CreatingExecutionGraph"


def test_what_others_are_giving_back_is_coming_to_whom_it_is_allotted() -> None:
    claims = [Claim("rich", 1, 8, held=8, running=True), Claim("poor", 2, 4)]
    found = arbitrate(claims, 8, now_ms=100_000, holding_ms=60_000)
    assert (found["rich"].allowed, found["poor"].allowed) == (4, 0)
    assert (found["rich"].coming, found["poor"].coming) == (0, 4)
    # Some are back already: it starts with those, and knows of the others.
    claims = [Claim("rich", 1, 8, held=6, running=True), Claim("poor", 2, 4)]
    found = arbitrate(claims, 8, now_ms=100_000, holding_ms=60_000)
    assert (found["poor"].allowed, found["poor"].coming) == (2, 2)
    full = arbitrate([Claim("one", 1, 8), Claim("two", 1, 8)], 4, now_ms=0, holding_ms=0)
    assert [one.coming for one in full.values()] == [0, 0], "nobody gives anything back"


# ---- the plan is made again


def test_the_plan_is_made_again_when_there_is_a_driver() -> None:
    job = submitted(held=2).hold(5)
    assert job.state.phase.plan.slot_count == 2
    job.do(DriverReady(1))
    plan = job.state.phase.plan
    assert (plan.slot_count, plan.version, job.state.plan_version) == (5, 2, 2)
    job.starts().commit()
    assert (job.kind, job.parallelism, job.state.num_rescales) == ("Executing", [5, 5, 5], 0)
    assert [one.post for one in job.records[-1].vertices] == [5, 5, 5] and len(job.records) == 1


def test_it_stays_if_nothing_has_changed() -> None:
    job = submitted()
    before = job.state
    assert job.do(DriverReady(1)).state is before


def test_other_bounds_apply_once_the_attempt_runs() -> None:
    job = submitted().put(1, 2).do(DriverReady(1))
    assert job.state.phase.plan.slot_count == 4
    assert job.starts().kind == "Rescaling"


def test_a_start_that_is_given_up_is_not_planned_again() -> None:
    job = submitted().hold(3).hold(6).do(DriverReady(1))
    assert job.state.phase.failure is not None and job.state.phase.plan.slot_count == 4


# ---- spoiled starts


def test_the_start_after_a_spoiled_one_takes_the_slots_that_stayed() -> None:
    """Two workers of one slot, one of which dies in each start and is back before the next one."""
    job = submitted(held=2)
    job.do(SlotsChanged(slots(1))).do(SlotsChanged(slots(2)))
    assert job.has_effect(StopAttempt) is False and job.stops().kind == "RetryingExecutionGraphCreation"
    assert 900 <= job.timer_in_ms("backoff") <= 1_100
    assert "1 planned slot(s) were lost while the driver was started: tm-1." in words(job)
    job.wait(1_100)
    assert job.effect(StartAttempt).plan.slot_ids == {"tm-0"}
    # The other one comes and goes: no matter.
    job.do(SlotsChanged(slots(1))).do(SlotsChanged(slots(2))).do(DriverReady(2))
    assert job.state.phase.failure is None and job.state.phase.plan.slot_ids == {"tm-0"}
    job.starts().commit().wait(100)
    assert job.kind == "Rescaling" and job.applied().parallelism == [2, 2, 2]
    assert job.do(SlotsChanged(slots(1))).applied().parallelism == [1, 1, 1]


def test_a_spoiled_start_counts_and_its_delay_grows() -> None:
    job = submitted(held=4)
    waits = []
    for left in (3, 2, 1):
        job.wait(1_000).hold(left).stops()
        waits.append(job.timer_in_ms("backoff"))
        job.wait(waits[-1])
    assert waits == sorted(waits) and waits[-1] > 2_000
    assert job.effect(StartAttempt).plan.slot_count == 1
    assert job.starts().state.recovery.creation.attempts == 0 and job.state.supply.stayed == ()


def test_it_is_the_same_if_the_driver_fails_before_the_loss_is_known() -> None:
    job = submitted(held=2).do(AttemptFailed(1, "An executor is lost.", stopped=False, by_cluster=True))
    job.do(SlotsChanged(slots(1))).do(SlotsChanged(slots(2))).stops().wait(10_000)
    assert job.effect(StartAttempt).plan.slot_ids == {"tm-0"}


def test_if_none_stayed_any_will_do() -> None:
    job = submitted(held=2)
    job.do(SlotsChanged(())).stops().do(SlotsChanged(slots(3, manager="new"))).wait(1_100)
    assert job.effect(StartAttempt).plan.slot_count == 3


def test_those_that_stayed_are_not_enough_for_the_lower_bounds() -> None:
    job = submitted(held=3, lower=3).hold(2).stops().wait(1_100)
    assert job.kind == "WaitingForResources"
    assert job.hold(3).effect(StartAttempt).plan.slot_count == 3


def test_a_batch_job_is_not_made_small_for_life_by_one_loss() -> None:
    job = Job(replace(group_graph(["source"]), type=JobType.BATCH), lower=1, upper=2).do(StartScheduling())
    job.hold(2).hold(1).stops().hold(2).wait(1_100)
    assert job.effect(StartAttempt).plan.slot_count == 2
    job.hold(1).stops().hold(2).wait(2_000)
    assert job.effect(StartAttempt).plan.slot_count == 1


def test_a_strategy_that_allows_no_other_start_ends_the_job() -> None:
    job = submitted(held=2, options={CREATION + "type": "none"}).hold(1).stops()
    assert job.status == "FAILED"


# ---- the first end from outside


def test_a_driver_that_is_killed_after_a_batch_is_followed_at_once_and_counts() -> None:
    job = killed(submitted().starts().commit())
    assert job.kind == "CreatingExecutionGraph" and job.state.recovery.strategy.attempts == 1
    killed(job.starts().commit().wait(5_000))
    assert job.kind == "Restarting" and 1_350 <= job.timer_in_ms("backoff") <= 1_650


def test_one_that_is_killed_again_within_the_first_delay_waits() -> None:
    job = killed(killed(submitted().starts().commit()).starts().commit().wait(500))
    assert job.kind == "Restarting" and job.timer_in_ms("backoff") > 0


def test_after_a_long_run_the_row_begins_again() -> None:
    job = killed(submitted().starts().commit()).starts().commit().wait(2 * 3_600_000)
    assert killed(job).kind == "CreatingExecutionGraph"


def test_before_the_first_batch_there_is_a_delay() -> None:
    assert killed(submitted().starts()).timer_in_ms("backoff") > 0


def test_an_error_of_its_own_is_followed_by_a_delay() -> None:
    job = submitted().starts().commit()
    job.do(AttemptFailed(1, "boom", stopped=True))
    assert job.timer_in_ms("backoff") > 0


@pytest.mark.parametrize(
    "options",
    [
        {"restart-strategy.type": "exponential-delay"},
        {"restart-strategy.exponential-delay.initial-backoff": "1 s"},
        {"restart-strategy.type": "fixed-delay"},
    ],
)
def test_a_strategy_that_is_set_is_obeyed(options: dict[str, object]) -> None:
    job = killed(submitted(options=options).starts().commit())
    assert job.kind == "Restarting" and job.timer_in_ms("backoff") >= 900


def test_the_strategy_of_starts_alone_is_not_that_of_the_job() -> None:
    assert not JobOptions.parse({CREATION + "type": "fixed-delay"})[0].restart_strategy.is_set

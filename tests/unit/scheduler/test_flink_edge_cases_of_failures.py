"""The edge cases of production Flink's adaptive scheduler that are about restarts, ends and the history.

The list with the numbers is in test_flink_edge_cases.py.
"""

from __future__ import annotations

import pytest

from app.model.status import JobStatus
from app.scheduler.adaptive.effects import (
    SendPlan,
    StartAttempt,
    StopAttempt,
    StopMode,
)
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    AttemptStopped,
    BatchCompleted,
    CancelRequested,
    GlobalFailure,
    StartScheduling,
    StopRequested,
)
from app.scheduler.adaptive.failures import MAX_CONCURRENT_FAILURES
from app.scheduler.adaptive.state import Restarting
from tests.unit.scheduler.driving import Job, restarting_job
from tests.unit.scheduler.phases import in_phase

NO_ROLLBACK: dict[str, object] = {"slotwise.rollback.watch-period": "0 ms"}
"""Flink does not take a rescale back."""


def test_l14_a_rescale_restart_spends_no_restart_budget_and_counts_both() -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s").hold(4)
    assert job.kind == "Restarting"
    assert isinstance(job.state.phase, Restarting)
    assert (job.state.phase.backoff_ms, job.state.phase.failures) == (0, ())
    assert (job.state.recovery.num_restarts, job.state.num_rescales) == (1, 1)
    assert job.state.recovery.strategy.attempts == 0
    assert job.effect(StopAttempt).mode is StopMode.BOUNDARY


def test_l14_a_failure_counts_a_restart_only() -> None:
    job = Job().run().do(AttemptFailed(1, "boom", stopped=True))
    assert (
        job.state.recovery.num_restarts,
        job.state.num_rescales,
        job.state.recovery.strategy.attempts,
    ) == (1, 0, 1)


def test_l14_a_rescale_in_place_counts_a_rescale_only() -> None:
    job = Job(upper=4).run().hold(4).applied()
    assert (job.state.recovery.num_restarts, job.state.num_rescales) == (0, 1)


def test_l15_restarting_for_a_target_that_is_still_attainable_goes_straight_to_the_start() -> None:
    job = (
        restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s").hold(4).stops(driver_alive=True)
    )
    assert job.kind == "CreatingExecutionGraph"
    start = job.effect(StartAttempt)
    assert start.reuse_driver
    assert [value for _, value in start.plan.parallelism] == [4, 4, 4]


def test_l15_restarting_for_a_target_that_is_not_attainable_any_more_waits() -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s").hold(4).hold(3).stops()
    assert job.kind == "WaitingForResources"


@pytest.mark.parametrize("kind", ["Restarting", "Failing", "Canceling"])
def test_l16_a_failure_while_the_attempt_is_being_ended_is_only_recorded(kind: str) -> None:
    job = in_phase(kind)
    version = job.state.phase_version
    job.do(AttemptFailed(1, "another", stopped=False))
    job.do(GlobalFailure("a third"))
    assert job.state.phase_version == version
    assert [one.error for one in job.state.recovery.failures[-1]][-2:] == ["another", "a third"]
    assert job.state.recovery.strategy.attempts == (1 if kind == "Restarting" else 0)


@pytest.mark.parametrize("kind", ["Restarting", "Failing", "Canceling"])
def test_failures_of_an_attempt_that_is_being_ended_are_kept_up_to_a_number(kind: str) -> None:
    job = in_phase(kind)
    for number in range(200):
        job.do(GlobalFailure(f"failure {number}"))
    assert 2 <= len(job.state.recovery.failures[-1]) <= MAX_CONCURRENT_FAILURES + 1
    assert len(job.state.recovery.failures) == 1


@pytest.mark.parametrize(
    ("event", "kind", "status"),
    [
        (CancelRequested("ann"), "Canceling", JobStatus.CANCELED),
        (GlobalFailure("no disk", recoverable=False), "Failing", JobStatus.FAILED),
    ],
)
def test_a_driver_that_waits_for_its_next_attempt_is_killed_before_its_job_is_over(
    event: CancelRequested | GlobalFailure, kind: str, status: JobStatus
) -> None:
    job = in_phase("Restarting").stops(driver_alive=True).hold(0).wait(10_000)
    assert job.kind == "WaitingForResources" and job.state.driver.waits
    job.do(event)
    assert (job.kind, job.effect(StopAttempt).mode) == (kind, StopMode.KILL)
    assert job.stops().status is status


@pytest.mark.parametrize(
    ("kind", "then"),
    [
        ("Created", "Finished"),
        ("WaitingForResources", "Finished"),
        ("CreatingExecutionGraph", "Canceling"),
        ("RetryingExecutionGraphCreation", "Finished"),
        ("Executing", "Canceling"),
        ("Rescaling", "Canceling"),
        ("StopWithSavepoint", "Canceling"),
        ("Restarting", "Canceling"),
        ("Failing", "Canceling"),
        ("Canceling", "Canceling"),
        ("Finished", "Finished"),
    ],
)
def test_l16_cancel_in_each_state(kind: str, then: str) -> None:
    """Better: a job whose driver is being started is not over before that driver is dead."""
    job = in_phase(kind)
    assert job.kind == kind
    job.do(CancelRequested("ann"))
    assert job.kind == then
    if then == "Canceling":
        job.stops()
    assert job.status is JobStatus.CANCELED
    assert job.nothing_open
    if kind in (
        "CreatingExecutionGraph",
        "WaitingForResources",
        "Rescaling",
        "RetryingExecutionGraphCreation",
    ):
        assert job.records[-1].reason is not None
        assert job.records[-1].reason.value == "JOB_CANCELED", "also while nothing runs, unlike Flink"


def test_a_stop_that_fails_before_the_first_batch_leaves_the_record_for_that_batch_to_complete() -> None:
    job = Job().do(StartScheduling()).hold(2).starts().do(StopRequested("t1"))
    job.do(AttemptStopped(1, driver_alive=True, error="the disk is full"))
    assert (job.kind, job.records) == ("Executing", [])
    assert job.commit().ended() == [("INITIAL_SCHEDULE", "SUCCEEDED", 1)]


def test_a_stop_that_fails_while_a_plan_is_on_its_way_sends_that_plan_again() -> None:
    job = Job(upper=2).run(held=2).put(1, 1)
    target = job.effect(SendPlan).plan
    job.do(StopRequested("t1")).do(AttemptStopped(1, driver_alive=True, error="the disk is full"))
    assert (job.kind, job.effect(SendPlan).plan) == ("Rescaling", target)
    assert (job.applied().kind, job.parallelism) == ("Executing", [1, 1, 1])


def test_an_attempt_that_was_given_up_and_fails_is_waited_for_until_it_is_dead() -> None:
    job = Job(upper=2).do(StartScheduling()).hold(2).hold(1)
    assert (job.kind, job.effect(StopAttempt).mode) == ("CreatingExecutionGraph", StopMode.KILL)
    job.wait(1_000).do(AttemptFailed(1, "boom", stopped=False))
    assert (job.kind, job.state.attempt, job.effects) == ("CreatingExecutionGraph", 1, ())
    job.do(AttemptFailed(1, "boom", stopped=True)).wait(2_000)
    assert (job.kind, job.state.attempt) == ("CreatingExecutionGraph", 2)


def test_l17_a_stop_that_fails_runs_on_with_a_new_cooldown_and_leaves_the_record_alone() -> None:
    job = restarting_job().wait(40_000)
    assert job.stage == "Idling"
    job.put(1, 6)
    record = job.open
    job.do(StopRequested("t1"))
    assert job.kind == "StopWithSavepoint"
    assert job.effect(StopAttempt).mode is StopMode.DRAIN
    job.wait(5_000).do(AttemptStopped(1, driver_alive=True, error="the disk is full"))
    assert (job.kind, job.stage) == ("Executing", "Cooldown")
    assert job.timer_in_ms("cooldown") == 30_000
    assert (job.open.uuid, job.open.start_ms, job.open.cause) == (record.uuid, record.start_ms, record.cause)
    assert job.state.stop is not None
    assert (job.state.stop.state, job.state.stop.error) == ("COMPLETED", "the disk is full")


def test_l19_attempt_ids_count_within_the_same_requirements() -> None:
    job = Job(upper=4, options=NO_ROLLBACK).run(held=2)
    job.put(1, 3)
    job.wait(60_000)
    job.hold(3).applied()
    job.do(AttemptFailed(1, "boom", stopped=True)).wait(1_500).starts().commit()
    job.put(1, 2).applied()
    assert job.ended() == [
        ("INITIAL_SCHEDULE", "SUCCEEDED", 1),
        ("UPDATE_REQUIREMENT", "NO_RESOURCES_OR_PARALLELISMS_CHANGE", 1),
        ("NEW_RESOURCE_AVAILABLE", "SUCCEEDED", 2),
        ("RECOVERABLE_FAILOVER", "SUCCEEDED", 3),
        ("UPDATE_REQUIREMENT", "SUCCEEDED", 1),
    ]
    uuids = [one.requirements_uuid for one in job.records]
    assert uuids[1] == uuids[2] == uuids[3]
    assert len(set(uuids)) == 3


def test_l19_better_a_failover_during_a_rescale_keeps_the_cause_and_the_spans_of_both() -> None:
    job = Job(upper=4, options=NO_ROLLBACK).run().put(1, 3, requested_by="ann", reason="lunch").hold(3)
    assert job.kind == "Rescaling"
    job.wait(700).do(AttemptFailed(1, "boom", stopped=True))
    interrupted = job.records[-1]
    assert (interrupted.cause.value, interrupted.reason.value if interrupted.reason else "") == (
        "UPDATE_REQUIREMENT",
        "JOB_FAILOVER_RESTARTING",
    )
    assert (interrupted.requested_by, interrupted.request_reason) == ("ann", "lunch")
    assert [span.state for span in interrupted.spans] == ["Executing", "Rescaling"]
    assert job.open.cause.value == "RECOVERABLE_FAILOVER"
    assert job.open.attempt_id == interrupted.attempt_id + 1
    assert job.open.requirements_uuid == interrupted.requirements_uuid


def test_l20_counts_and_the_last_completed_record_do_not_depend_on_how_many_are_retained() -> None:
    job = Job(upper=9, options={"web.adaptive-scheduler.rescale-history.size": "1"}).run()
    for count in (3, 4, 5):
        job.hold(count).wait(100).applied()
    job.hold(6).wait(100)
    timeline = job.state.timeline
    assert dict(timeline.counts) == {"COMPLETED": 4, "FAILED": 0, "IGNORED": 0}
    assert timeline.records == 5 and timeline.open is not None and timeline.open.number == 5
    assert timeline.last_completed is not None and timeline.last_completed.number == 4


def test_l24_a_burst_of_failures_is_one_attempt_of_the_exponential_backoff() -> None:
    job = Job(options={"restart-strategy.exponential-delay.jitter-factor": "0"}).run()
    job.do(AttemptFailed(1, "first", stopped=False)).do(AttemptFailed(1, "second", stopped=True))
    assert job.state.recovery.strategy.attempts == 1
    assert job.timer_in_ms("backoff") == 1_000


def test_l25_better_a_restarted_control_plane_continues_where_the_state_says() -> None:
    """A stored state is all there is: the bounds, the history and the attempt numbers survive."""
    job = Job(upper=4).run().put(1, 3)
    kept = job.state
    revived = Job(upper=4)
    revived.state, revived.now_ms, revived.version = kept, job.now_ms + 60_000, job.version
    revived.hold(3).applied()
    assert revived.parallelism == [3, 3, 3]
    assert revived.state.timeline.records == 2
    assert revived.state.attempt == 1


def test_an_event_of_an_earlier_attempt_is_dropped() -> None:
    job = Job().run().do(AttemptFailed(1, "boom", stopped=True)).wait(1_500)
    before = job.state
    job.do(AttemptFailed(0, "late", stopped=True)).do(AttemptRunning(1)).do(BatchCompleted(1, "query", 7, 1))
    assert job.state is before

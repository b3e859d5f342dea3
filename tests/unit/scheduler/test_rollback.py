"""A rescale after which the job fails is taken back (ADR 20): the parallelism before is in force, and stays so."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.options import JobOptions
from app.model.status import JobStatus
from app.scheduler.adaptive.effects import DeclareResources, SendPlan, StartAttempt, StopAttempt
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    RequirementsUpdated,
    SlotsChanged,
    StopRequested,
)
from app.scheduler.explain import explain
from app.store.codec import dump_state, load_state
from tests.unit.scheduler.driving import Job, bounds, chain, mixed, slots

BOOM = "Vertex sink failed: OSError: too many connections"
NOW: dict[str, object] = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 s",
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay": "0 s",
}


def running_at_2(**more: Any) -> Job:
    """Runs at 2 of 2; four slots are held as soon as they are wanted."""
    return Job(upper=2, **more).run(held=2)


def tried_4(**more: Any) -> Job:
    """4 is on its way into force in place."""
    job = running_at_2(**more).put(1, 4, requested_by="ann").hold(4)
    assert job.kind == "Rescaling"
    return job


def fail(job: Job, **more: Any) -> Job:
    fields: dict[str, Any] = {"stopped": True, **more}
    return job.do(AttemptFailed(job.state.attempt, fields.pop("error", BOOM), **fields))


def back_to_work(job: Job) -> Job:
    """The next attempt starts and commits a batch."""
    assert job.kind == "CreatingExecutionGraph"
    return job.starts().commit()


def words(job: Job) -> str:
    sentences, violations = explain(job.state, job.now_ms)
    return " ".join((*sentences, *violations))


def test_a_crash_while_the_plan_is_applied_brings_the_former_parallelism_back_at_once() -> None:
    job = fail(tried_4())
    started = job.effect(StartAttempt)
    assert [count for _, count in started.plan.parallelism] == [2, 2, 2]
    assert job.effect(DeclareResources).desired == 2
    assert back_to_work(job).parallelism == [2, 2, 2]
    assert job.nothing_open and job.status is JobStatus.RUNNING


def test_the_records_say_what_was_tried_and_that_it_was_taken_back() -> None:
    job = back_to_work(fail(tried_4()))
    assert job.ended()[-2:] == [
        ("UPDATE_REQUIREMENT", "EXCEPTION_OCCURRED", 1),
        ("RECOVERABLE_FAILOVER", "SUCCEEDED", 2),
    ]
    tried, back = job.records[-2:]
    assert tried.message == f"Taken back, to source 2, agg 2, sink 2: {BOOM}"
    assert tried.requested_by == "ann" and tried.rollback_of is None
    assert (back.rollback_of, back.requested_by) == (tried.number, None)
    assert (
        back.message == f"Takes back rescale {tried.number} (source 2 to 4, agg 2 to 4, sink 2 to 4): {BOOM}"
    )
    assert [(one.desired, one.pre, one.post) for one in back.vertices] == [(4, 2, 2)] * 3


def test_a_record_that_was_opened_since_is_cut_short_and_not_failed() -> None:
    job = tried_4().applied().put(1, 6)
    tried, waits = job.records[-1], job.open
    fail(job)
    assert (job.records[-1].number, job.records[-1].reason) == (waits.number, "JOB_FAILOVER_RESTARTING")
    assert (job.records[-1].message or "").endswith(BOOM) and job.open.rollback_of == tried.number


def test_the_requirements_stay_and_the_explanation_says_why_they_are_not_met() -> None:
    job = back_to_work(fail(tried_4())).wait(5_000)
    assert [own.upper for _, own in job.state.requirements] == [4, 4, 4]
    said = words(job)
    assert f"Rescale 2 (source 2 to 4, agg 2 to 4, sink 2 to 4) was taken back 5.0 s ago: {BOOM}" in said
    assert "runs at source 2, agg 2, sink 2 at most" in said and "slotwise require --retry" in said
    assert "missing" not in said


def test_a_crash_after_the_first_batch_and_within_the_watch_is_taken_back_too() -> None:
    job = tried_4().applied().wait(59_000).commit()
    assert job.records[-1].reason == "SUCCEEDED"
    back_to_work(fail(job))
    assert job.parallelism == [2, 2, 2]
    assert job.records[-1].rollback_of == job.records[-2].number
    assert job.records[-2].reason == "SUCCEEDED", "a record that ended is not changed"


def test_a_crash_after_the_watch_is_an_ordinary_failover() -> None:
    job = fail(tried_4().applied().wait(60_000))
    assert job.kind == "Restarting"
    back_to_work(job.wait(2_000))
    assert job.parallelism == [4, 4, 4] and job.records[-1].rollback_of is None
    fail(job).wait(3_000)
    assert back_to_work(job).parallelism == [4, 4, 4], "what has passed is not on trial again"


def test_what_the_job_is_not_to_blame_for_is_an_ordinary_failover_and_the_trial_begins_anew() -> None:
    job = fail(tried_4().applied().wait(50_000), outside=True, error="The driver was killed by signal 9.")
    back_to_work(job.wait(2_000))
    assert job.parallelism == [4, 4, 4] and job.state.trial.taken_back is None
    back_to_work(fail(job.wait(30_000)))
    assert job.parallelism == [2, 2, 2], "it has not run for the watch period yet"


def test_after_a_failover_in_its_trial_it_is_still_that_rescale_which_is_taken_back() -> None:
    job = tried_4().applied()
    number = job.state.trial.watch.record  # type: ignore[union-attr]
    fail(job, outside=True, error="The driver was killed by signal 9.")
    back_to_work(job.wait(2_000))
    assert job.records[-1].number > number
    fail(job)
    assert (job.state.trial.taken_back.record, job.state.timeline.open.rollback_of) == (number, number)  # type: ignore[union-attr]


def test_a_start_that_fails_when_the_watch_is_over_is_still_the_rescales() -> None:
    """Time alone proves nothing: the job has not run at it for the watch period."""
    job = fail(tried_4().applied().wait(58_000), outside=True, error="The driver was killed by signal 9.")
    job.wait(2_000)
    assert job.kind == "CreatingExecutionGraph"
    job.wait(20_000)
    back_to_work(fail(job))
    assert job.parallelism == [2, 2, 2] and job.state.trial.taken_back is not None


def test_time_in_which_nothing_ran_at_it_passes_no_trial() -> None:
    """The job may have redistributed state meanwhile, or waits for something."""
    job = Job(chain(in_place=False), upper=2, options=NOW).run(held=2)
    job.put(1, 4).hold(4).stops().starts()
    assert (job.kind, job.parallelism) == ("Executing", [4, 4, 4])
    job.wait(600_000)
    assert "is on trial until a batch has been committed: if the job fails" in words(job)
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]


def test_nor_does_a_kill_from_outside_or_another_rescale_in_that_time() -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).run(held=2)
    job.put(1, 4).hold(4).stops().starts().wait(600_000)
    fail(job, outside=True, error="The driver was killed by signal 9.").wait(2_000).starts()
    job.wait(600_000).put_each(source=(1, 4), agg=(1, 4), sink=(1, 3))
    assert job.kind == "Rescaling"
    job.applied()
    assert job.parallelism == [4, 4, 3]
    assert back_to_work(fail(job)).parallelism == [2, 2, 2], "4 has never run"


def test_a_job_with_nothing_to_process_passes_by_time() -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).run(held=2)
    job.put(1, 4).hold(4).stops().starts().applied().wait(60_000)
    assert "on trial" not in words(job)
    back_to_work(fail(job).wait(2_000))
    assert job.parallelism == [4, 4, 4] and job.state.trial.taken_back is None


def test_a_crash_at_the_plan_before_is_not_blamed_on_the_plan_that_is_on_its_way() -> None:
    job = running_at_2()
    before = job.state.plan_version
    fail(job.put(1, 4).hold(4), plan_version=before)
    assert job.kind == "Restarting" and job.state.trial.taken_back is None
    assert [count for _, count in job.wait(2_000).effect(StartAttempt).plan.parallelism] == [4, 4, 4]


def test_a_failure_that_would_be_final_takes_the_rescale_back_instead_of_ending_the_job() -> None:
    options = {"restart-strategy.type": "none"}
    back_to_work(fail(tried_4(options=options), recoverable=False))
    fail_again = fail(tried_4(options=options))
    assert back_to_work(fail_again).state.recovery.strategy.attempts == 0
    fail(fail_again)
    assert fail_again.status is JobStatus.FAILED, "the parallelism before has no such excuse"


def test_a_failure_of_the_parallelism_before_is_counted_and_takes_nothing_back() -> None:
    job = back_to_work(fail(tried_4()))
    for count in (1, 2, 3):
        fail(job)
        assert job.kind == "Restarting" and job.state.recovery.strategy.attempts == count
        back_to_work(job.wait(10_000))
        assert job.parallelism == [2, 2, 2]
    assert sum(one.rollback_of is not None for one in job.records) == 1


def test_a_rescale_by_restart_is_taken_back() -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).run(held=2).put(1, 4).hold(4)
    assert job.kind == "Restarting"
    job.stops(driver_alive=True).starts()
    assert job.parallelism == [4, 4, 4]
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]
    assert job.records[-2].reason == "EXCEPTION_OCCURRED"


def test_a_rescale_whose_attempt_cannot_be_started_is_taken_back() -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).run(held=2).put(1, 4).hold(4)
    fail(job.stops())
    assert job.state.recovery.creation.attempts == 0
    assert back_to_work(job).parallelism == [2, 2, 2]
    assert [one.reason for one in job.records[-2:]] == ["EXCEPTION_OCCURRED", "SUCCEEDED"]


def test_a_raised_lower_bound_is_not_met_then_and_the_job_says_so() -> None:
    job = running_at_2().put(4, 4).hold(4)
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]
    _, violations = explain(job.state, job.now_ms)
    assert violations[0].startswith("source runs at 2, below its lower bound 4: rescale 2 was taken back")


def test_a_lowered_parallelism_is_taken_back_while_its_slots_are_held() -> None:
    job = Job(upper=4).run(held=4).put(1, 2)
    assert back_to_work(fail(job)).parallelism == [4, 4, 4]
    assert "above its upper bound 2: rescale 2 was taken back" in words(job)


def test_slots_that_were_lost_are_no_choice() -> None:
    job = Job(upper=4).run(held=4).hold(2).applied()
    assert job.parallelism == [2, 2, 2] and job.state.trial.watch is None
    fail(job)
    assert job.kind == "Restarting" and job.state.trial.taken_back is None


def test_slots_that_other_jobs_get_while_it_starts_at_more_leave_it_on_trial() -> None:
    job = running_at_2(options={"restart-strategy.type": "exponential-delay"})
    fail(job, outside=True, error="The driver was killed by signal 9.").put(1, 4).hold(4)
    job.wait(2_000).do(SlotsChanged(slots(4), allowed=1)).starts()
    assert (job.kind, job.parallelism) == ("Rescaling", [4, 4, 4])
    fail(job, plan_version=job.state.plan_version - 1)
    assert "(source 2 to 4, agg 2 to 4, sink 2 to 4) was taken back" in words(job)


def test_other_bounds_lift_it() -> None:
    job = back_to_work(fail(tried_4())).put(1, 3).hold(3).applied()
    assert job.parallelism == [3, 3, 3] and job.state.trial.taken_back is None
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]


def test_the_same_bounds_lift_it_when_they_are_declared_again() -> None:
    job = back_to_work(fail(tried_4()))
    again = bounds(job.graph, 1, 4, version=job.version + 1)
    job.do(RequirementsUpdated(again))
    assert job.kind == "Rescaling" and job.effect(SendPlan).plan.slot_count == 4
    job.applied()
    same = job.state
    assert job.do(RequirementsUpdated(bounds(job.graph, 1, 4, version=9))).state is same


def test_more_slots_do_not_lift_what_was_asked_for() -> None:
    job = back_to_work(fail(tried_4()))
    job.hold(8).wait(120_000)
    assert job.parallelism == [2, 2, 2] and job.kind == "Executing"
    job.hold(1).applied().hold(2).applied()
    assert job.parallelism == [2, 2, 2] and job.state.trial.taken_back is not None


def test_lost_slots_lift_what_new_slots_had_led_to() -> None:
    job = Job(upper=4).run(held=2).hold(4)
    back_to_work(fail(job))
    assert job.parallelism == [2, 2, 2]
    assert "or after slots were lost" in words(job)
    job.hold(2).wait(60_000)
    assert job.state.trial.taken_back is not None
    job.hold(1).applied()
    assert job.state.trial.taken_back is None
    assert job.hold(4).applied().parallelism == [4, 4, 4]


def test_more_slots_do_not_lift_what_new_slots_had_led_to() -> None:
    job = back_to_work(fail(Job(upper=4).run(held=2).hold(4)))
    job.hold(6).wait(120_000)
    assert job.parallelism == [2, 2, 2] and job.state.trial.taken_back is not None


def test_a_rescale_during_the_watch_of_another_goes_back_to_what_has_passed() -> None:
    job = tried_4().applied().wait(10_000).put(1, 6).hold(6).applied()
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]


def test_bounds_that_come_on_the_way_back_do_not_make_the_bad_parallelism_a_good_one() -> None:
    job = fail(tried_4().applied().wait(10_000))
    assert job.kind == "CreatingExecutionGraph"
    job.put(1, 3).starts()
    assert job.kind == "Rescaling", "it has just started at 2"
    assert back_to_work(fail(job.applied())).parallelism == [2, 2, 2]


def test_nor_do_bounds_that_come_while_the_bad_attempt_is_being_stopped() -> None:
    job = fail(tried_4().applied(), stopped=False).put(1, 3).stops()
    assert [count for _, count in job.effect(StartAttempt).plan.parallelism] == [3, 3, 3]
    job.starts()
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]


def test_it_survives_a_restart_of_the_server() -> None:
    job = tried_4().applied()

    def restart() -> None:
        job.state = load_state(dump_state(job.state), job.state.graph, job.state.options)

    restart()
    fail(job)
    restart()
    back_to_work(job)
    restart()
    assert job.hold(8).wait(60_000).parallelism == [2, 2, 2]
    assert "was taken back" in words(job)


def test_a_failure_that_is_learned_late_counts_from_when_it_was() -> None:
    job = tried_4().applied()
    failed_ms = job.now_ms + 20_000
    job.now_ms += 600_000
    assert back_to_work(fail(job, at_ms=failed_ms)).parallelism == [2, 2, 2]


def test_it_can_be_turned_off() -> None:
    job = fail(tried_4(options={"slotwise.rollback.watch-period": "0 ms"}))
    assert job.kind == "Restarting" and job.records[-1].reason == "JOB_FAILOVER_RESTARTING"
    assert back_to_work(job.wait(2_000)).parallelism == [4, 4, 4]


def test_a_stop_that_a_bad_rescale_breaks_off_says_so() -> None:
    job = fail(tried_4().do(StopRequested("t1")))
    assert job.state.stop is not None and job.state.stop.error == BOOM
    assert back_to_work(job).parallelism == [2, 2, 2]


def test_the_driver_that_fails_and_lives_is_stopped_first() -> None:
    job = fail(tried_4(), stopped=False)
    assert job.kind == "Restarting" and job.has_effect(StopAttempt)
    assert back_to_work(job.stops()).parallelism == [2, 2, 2]


def test_groups_go_back_each_to_its_own() -> None:
    job = Job(mixed(), upper=2, options=NOW).run(held=4)
    job.put_each(source=(1, 2), agg=(1, 2), sink=(1, 5)).do(SlotsChanged(slots(7)))
    assert job.kind == "Rescaling"
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]


def test_the_defaults() -> None:
    options = JobOptions()
    assert (options.rollback_watch_ms, options.rollback_min_throughput) == (60_000, 0.5)


@pytest.mark.parametrize("late", [AttemptRunning(1), AttemptFailed(1, BOOM, stopped=True)])
def test_late_reports_of_the_failed_attempt_change_nothing(late: Any) -> None:
    job = back_to_work(fail(tried_4()))
    same = job.state
    assert job.do(late).state is same

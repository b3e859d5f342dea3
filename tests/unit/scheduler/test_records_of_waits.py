"""The record of bounds that wait for their deadline is completed by what they ask for, and by nothing else."""

from __future__ import annotations

import pytest

from app.model.job_state.versions import JobVersion
from app.model.rescale import RescaleRecord, TerminalState, TerminatedReason, TriggerCause
from app.scheduler.adaptive.events import AttemptMisplaced, SlotsChanged, VersionRequested
from tests.unit.scheduler.driving import Job, slots
from tests.unit.scheduler.test_bounds_queue import ROLLBACK, within
from tests.unit.scheduler.test_deadlines_side_by_side import declared, put, two, waits
from tests.unit.scheduler.test_rollback import back_to_work, fail


def short() -> Job:
    """A job with bounds 1:4 that runs at 3 for want of slots, and was asked by ann to run at 8: record 2."""
    job = Job(lower=1, upper=4).run(held=3)
    job.put(1, 8, deadline=within(job, 600, ROLLBACK), requested_by="ann")
    assert (job.open.number, job.parallelism) == (2, [3, 3, 3])
    return job


def record(job: Job, number: int) -> RescaleRecord:
    return next(one for one in job.records if one.number == number)


def assert_waits_on(job: Job, *causes: TriggerCause) -> None:
    """The record of the wait was ignored, others with ``causes`` went on or followed, and at the deadline ann's bounds
    are taken back with the number of her record."""
    (one,) = job.state.queued
    ended = record(job, one.record)
    assert (ended.requested_by, ended.terminal_state) == ("ann", TerminalState.IGNORED)
    assert "wait for their deadline" in (ended.message or "")
    others = job.records[job.records.index(ended) + 1 :]
    assert [own.cause for own in others] == list(causes)
    assert all((own.requested_by, own.terminal_state) == (None, TerminalState.COMPLETED) for own in others)
    job.wait(600_000).wait(60_000)
    assert declared(job) == [(1, 4)] * 3
    back = [own for own in job.records if own.rollback_of is not None]
    assert [(own.rollback_of, own.requested_by) for own in back] == [(one.record, "ann")]


def test_slots_that_are_not_enough_have_a_record_of_their_own() -> None:
    job = short().hold(4).wait(100).applied()
    assert job.parallelism == [4, 4, 4]
    assert_waits_on(job, TriggerCause.NEW_RESOURCE_AVAILABLE)


def test_so_has_what_other_jobs_take() -> None:
    job = short()
    job.do(SlotsChanged(slots(3), allowed=2)).applied()
    assert job.parallelism == [2, 2, 2]
    assert_waits_on(job, TriggerCause.NEW_RESOURCE_AVAILABLE)


def test_while_the_job_can_run_by_the_queued_bounds_only_those_hold() -> None:
    job = Job(lower=3, upper=4).run(held=3)
    job.put(1, 8, deadline=within(job, 600, ROLLBACK), requested_by="ann")
    job.do(SlotsChanged(slots(3), allowed=2)).applied()
    assert (job.parallelism, declared(job)) == ([2, 2, 2], [(1, 8)] * 3)
    assert "wait no longer: those before need 3 slots, and 2 can be used" in (job.records[-1].message or "")
    job.hold(3).wait(100).applied()
    assert (job.parallelism, declared(job), waits(job)) == ([3, 3, 3], [(3, 4)] * 3, [2])
    job.hold(8).wait(100).applied()
    assert (job.parallelism, declared(job), job.state.queued) == ([8, 8, 8], [(1, 8)] * 3, ())


def test_so_has_a_lost_slot() -> None:
    job = short().hold(2).applied()
    assert job.parallelism == [2, 2, 2]
    assert record(job, 2).reason is TerminatedReason.JOB_FAILOVER_RESTARTING
    assert_waits_on(job, TriggerCause.RECOVERABLE_FAILOVER)


def test_so_has_a_failure() -> None:
    job = fail(short()).wait(60_000).starts().commit()
    assert job.parallelism == [3, 3, 3]
    assert record(job, 2).reason is TerminatedReason.JOB_FAILOVER_RESTARTING
    assert_waits_on(job, TriggerCause.RECOVERABLE_FAILOVER)


def test_so_has_an_attempt_on_another_cluster() -> None:
    job = short()
    job.do(AttemptMisplaced(job.state.attempt, "The cluster is another one.")).stops().starts().commit()
    assert_waits_on(job, TriggerCause.RECOVERABLE_FAILOVER)


@pytest.mark.parametrize("stopped_first", [True, False])
def test_so_has_a_start_during_which_the_bounds_were_declared(stopped_first: bool) -> None:
    """That of the failover goes on, and theirs ends as it begins."""
    job = fail(Job(lower=1, upper=4).run(held=3), stopped=stopped_first)
    job.put(1, 8, deadline=within(job, 600, ROLLBACK), requested_by="ann")
    assert (job.open.number, job.records[-1].number) == (2, 3)
    if not stopped_first:
        job.stops()
    job.wait(60_000).starts().commit()
    assert job.parallelism == [3, 3, 3]
    assert_waits_on(job, TriggerCause.RECOVERABLE_FAILOVER)


def test_so_has_a_plan_that_is_being_applied_when_they_are_declared() -> None:
    job = Job(lower=1, upper=4).run(held=3).hold(4).wait(100)
    assert job.kind == "Rescaling"
    job.put(1, 8, deadline=within(job, 600, ROLLBACK), requested_by="ann").applied()
    assert job.parallelism == [4, 4, 4]
    assert_waits_on(job, TriggerCause.NEW_RESOURCE_AVAILABLE)


def test_a_new_version_has_a_record_of_its_own() -> None:
    job = short()
    job.do(VersionRequested(JobVersion(2, job.graph, job.state.options), "bob")).stops().starts().commit()
    assert [(one.number, one.terminal_state) for one in job.records[-2:]] == [
        (2, TerminalState.IGNORED),
        (3, TerminalState.COMPLETED),
    ]
    assert [one.record for one in job.state.queued] == [2]


def test_slots_that_are_enough_complete_it() -> None:
    job = short().hold(8).wait(100).applied()
    assert (record(job, 2).terminal_state, job.parallelism) == (TerminalState.COMPLETED, [8, 8, 8])
    job.wait(600_000).wait(60_000)
    assert declared(job) == [(1, 8)] * 3


def test_what_comes_after_another_record_is_carried_out_too() -> None:
    job = short().hold(4).wait(100).applied().hold(8).wait(100).applied()
    assert (job.parallelism, job.state.queued) == ([8, 8, 8], ())
    assert [one.terminal_state for one in job.records[-3:]] == [
        TerminalState.IGNORED,
        TerminalState.COMPLETED,
        TerminalState.COMPLETED,
    ]


def test_slots_that_are_enough_after_it_has_ended_have_a_record_by_whoever_asked_for_them() -> None:
    job = short().hold(4).wait(100).applied().hold(8).wait(100).applied()
    assert job.parallelism == [8, 8, 8] and job.state.queued == ()
    fewer, more = job.records[-2:]
    assert (fewer.cause, more.cause) == (
        TriggerCause.NEW_RESOURCE_AVAILABLE,
        TriggerCause.UPDATE_REQUIREMENT,
    )
    assert (fewer.requested_by, more.requested_by) == (None, "ann")


def test_slots_that_change_while_something_else_is_taken_back_have_no_author() -> None:
    job = put(two(), a=(1, 3), b=(1, 2)).hold(5).wait(100).applied()
    put(job, within(job, 60, ROLLBACK), a=(1, 3), b=(1, 9))
    back_to_work(fail(job)).do(SlotsChanged(slots(5), allowed=3)).applied()
    assert job.state.trial.taken_back is not None and job.parallelism == [1, 2]
    assert [one.requested_by for one in job.state.queued] == ["ann"], "her bounds for b still wait"
    last = job.records[-1]
    assert (last.cause, last.requested_by) == (TriggerCause.NEW_RESOURCE_AVAILABLE, None)

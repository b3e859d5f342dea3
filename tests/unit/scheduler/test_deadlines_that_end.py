"""Deadlines that end without their slots: by a new version of the job, by a cap; and bounds declared before the first
record."""

from __future__ import annotations

from dataclasses import replace

from app.model.job_state.versions import JobVersion
from app.model.public_event import PublicEventType
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.slot_share import SlotShare
from app.scheduler.adaptive import bounds_declared
from app.scheduler.adaptive.events import SlotShareUpdated, StartScheduling, VersionRequested
from tests.unit.scheduler.driving import Job, group_graph, restarting_job
from tests.unit.scheduler.test_bounds_queue import COMMIT, ROLLBACK, undo, within
from tests.unit.scheduler.test_deadlines_side_by_side import NOTHING, declared, put, sentences, two, waits
from tests.unit.scheduler.test_rollback import fail


def test_a_new_version_that_ends_a_deadline_says_so() -> None:
    job = put(two(), within(two(), 600, ROLLBACK), a=(1, 8), b=(1, 8))
    first, second = job.graph.vertices
    # The document of the new version has other bounds for b.
    new = replace(job.graph, vertices=(first, replace(second, parallelism=second.parallelism + 2)))
    seen = len(job.told)
    job.do(VersionRequested(JobVersion(2, new, job.state.options), "bob")).stops()
    (one,) = job.state.queued
    assert one.vertices == {first.id}
    told = next(record for record in job.records if record.number == 4)
    assert (told.cause, told.requested_by, told.reason) == (
        TriggerCause.UPDATE_REQUIREMENT,
        "ann",
        NOTHING,
    )
    assert told.message == (
        "Version 2 of the job comes into force. The bounds of b (requirements version 2) waited for a deadline in "
        "10 min, which does not count any more."
    )
    ended = [event for event in job.told[seen:] if event.type is PublicEventType.RESCALE_ENDED]
    assert told.message in [event.fields["message"] for event in ended]


def test_one_that_keeps_it_says_nothing() -> None:
    job = put(two(), within(two(), 600, ROLLBACK), a=(1, 8), b=(1, 8))
    job.do(VersionRequested(JobVersion(2, job.graph, job.state.options), "bob")).stops()
    assert len(job.state.queued) == 1
    assert not any("does not count any more" in (record.message or "") for record in job.records)


def test_each_of_two_changes_that_come_back_at_once_is_a_version_of_its_own() -> None:
    job = put(two(), within(two(), 60, ROLLBACK), a=(1, 8), b=(1, 2))
    put(job, within(job, 60, ROLLBACK), a=(1, 8), b=(1, 9)).wait(60_000)
    assert declared(job) == [(1, 2), (1, 2)] and not job.state.queued
    versions = [one.fields["version"] for one in job.told if one.type is PublicEventType.REQUIREMENTS]
    assert versions == [2, 3, 4, 5], "what is told is what is stored"


def test_nothing_waits_on_for_a_deadline_that_has_passed() -> None:
    job = put(two(), within(two(), 60, ROLLBACK), a=(1, 8), b=(1, 2))
    put(job, within(job, 60, ROLLBACK), a=(1, 8), b=(1, 9))
    # Nobody looked at the job for as long as this: both are overdue.
    job.now_ms += 600_000
    job.wait(0)
    assert declared(job) == [(1, 2), (1, 2)]
    messages = [record.message or "" for record in job.records]
    assert any("Takes back the bounds of version 2" in message for message in messages)
    assert not any("deadline in 0 ms" in message for message in messages)


def down_below_a_cap() -> Job:
    """Bounds that need five slots hold while others, which need two, wait. The job is down, and has got a cap of 3."""
    job = put(two(held=6), a=(1, 2), b=(4, 4)).wait(100).applied()
    assert job.parallelism == [2, 4]
    put(job, within(job, 600, ROLLBACK), a=(1, 8), b=(1, 4))
    fail(job.hold(1))
    job.do(SlotShareUpdated(SlotShare(2, cap=3)))
    assert len(job.state.queued) == 1
    return job


def test_bounds_that_a_cap_forbids_do_not_come_back() -> None:
    job = down_below_a_cap().wait(600_000)
    assert (declared(job), job.state.queued) == ([(1, 8), (1, 4)], ())
    messages = " ".join(record.message or "" for record in [*job.records, job.open])
    assert (
        "The former bounds do not come back: their lower bounds need 5 slots, and the cap is 3." in messages
    )
    job.hold(3).wait(100_000)
    assert sum(job.starts().parallelism) == 3


def test_the_former_bounds_come_back_if_the_cap_allows_them() -> None:
    job = down_below_a_cap().do(SlotShareUpdated(SlotShare(3, cap=5))).wait(600_000)
    assert declared(job) == [(1, 2), (4, 4)]


def created() -> Job:
    """Bounds with a deadline were declared before the job was scheduled."""
    job = Job(group_graph(["a", "b"]), lower=1, upper=2)
    return put(job, within(job, 600, COMMIT), a=(1, 4), b=(1, 2))


def test_bounds_of_a_job_that_is_not_scheduled_get_a_record_with_the_first_one() -> None:
    job = created()
    (one,) = job.state.queued
    assert one.record == 0 and job.nothing_open
    job.do(StartScheduling())
    (one,) = job.state.queued
    assert (one.record, job.open.number, job.open.cause) == (2, 1, TriggerCause.INITIAL_SCHEDULE)
    told = job.records[-1]
    assert (told.number, told.requested_by, told.reason) == (2, "ann", NOTHING)
    assert told.message == "The bounds of a of version 2 wait for their deadline."
    assert "as version 2 wait until the job may use 6 slots" in sentences(job)


def test_so_they_can_be_canceled() -> None:
    job = created().submit(4).starts().commit()
    assert job.parallelism == [2, 2]
    undo(job)
    assert job.nothing_open
    back = job.records[-1]
    assert (declared(job), back.rollback_of, job.state.queued) == ([(1, 2), (1, 2)], 2, ())


def test_or_begin_when_their_slots_come() -> None:
    job = created().submit(4).starts().commit().hold(6).wait(100).applied()
    assert (job.parallelism, job.state.queued) == ([4, 2], ())
    assert job.records[-1].reason is TerminatedReason.SUCCEEDED


def test_bounds_that_a_job_is_restarted_for_keep_no_deadline_from_counting() -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s")
    job.put(1, 1, deadline=within(job, 60, ROLLBACK)).wait(1)
    assert job.kind == "Restarting" and waits(job) == []
    assert bounds_declared.kept_waiting(job.state, job.state.requirements) == ()

"""Bounds that wait for their slots until a deadline, and bounds that are taken back before a plan is made for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model.public_event import PublicEventType
from app.model.requirements import Bounds, Deadline, OnTimeout
from app.model.rescale import TerminatedReason
from app.scheduler.adaptive import bounds_declared
from app.scheduler.adaptive.bounds_declared import cancelable_of
from app.scheduler.adaptive.effects import DeclareResources
from app.scheduler.adaptive.events import AttemptFailed, CancelRequested, RequirementsUpdated, SlotsChanged
from app.scheduler.explain import explain
from app.store.codec import dump_state, load_state
from tests.unit.scheduler.driving import Job, bounds, group_graph, mixed, restarting_job, slots
from tests.unit.scheduler.test_rollback import tried_4

COMMIT, ROLLBACK = OnTimeout.COMMIT, OnTimeout.ROLLBACK


def within(job: Job, seconds: int, on_timeout: OnTimeout) -> Deadline:
    return Deadline(job.now_ms + seconds * 1_000, on_timeout)


def waiting(on_timeout: OnTimeout, *, upper: int = 4, held: int = 2) -> Job:
    """A job that runs at 2 of everything and was asked by ann to run at ``upper`` within a minute."""
    job = Job(lower=1, upper=2).run(held=held)
    return job.put(1, upper, deadline=within(job, 60, on_timeout), requested_by="ann", reason="peak")


def upper_bounds(job: Job) -> set[int]:
    return {own.upper for _, own in job.state.requirements}


def sentences(job: Job) -> str:
    return " ".join(explain(job.state, job.now_ms)[0])


# ---- the wait


def test_what_is_there_is_not_taken_before_all_slots_are_there() -> None:
    job = waiting(COMMIT).hold(3)
    assert (job.kind, job.parallelism) == ("Executing", [2, 2, 2])
    assert upper_bounds(job) == {2}, "GET shows what holds"
    job.hold(4).wait(100)
    assert (job.kind, upper_bounds(job)) == ("Rescaling", {4})
    job.applied()
    assert (job.parallelism, job.state.queued) == ([4, 4, 4], ())
    record = job.records[-1]
    assert (record.reason, record.requested_by) == (TerminatedReason.SUCCEEDED, "ann")
    job.wait(120_000)
    assert job.parallelism == [4, 4, 4], "nothing is left of the deadline"


def test_all_slots_are_declared_meanwhile_and_those_of_the_former_bounds_suffice() -> None:
    job = Job(lower=1, upper=2).run(held=2)
    job.put(4, 6, deadline=within(job, 60, ROLLBACK))
    assert job.effect(DeclareResources) == DeclareResources(desired=6, minimal=1)
    assert (job.state.supply.declared, job.state.supply.minimal) == (6, 1)


def test_the_record_stays_open_and_the_explanation_says_until_when() -> None:
    job = waiting(ROLLBACK).wait(30_000)
    assert job.open.requested_by == "ann"
    assert "declared by ann as version 2 wait until the job may use 4 slots; in 30 s they are dropped" in (
        sentences(job)
    )
    assert [one.reason.value for one in job.state.no_change] == ["deadline"]


def test_the_bounds_are_told_with_their_deadline() -> None:
    job = waiting(ROLLBACK)
    (told,) = [one.fields for one in job.told if one.type is PublicEventType.REQUIREMENTS]
    assert (told["onTimeout"], told["deadlineTimestampInMillis"]) == ("ROLLBACK", job.now_ms + 60_000)


def test_a_change_that_needs_no_more_slots_begins_at_once() -> None:
    job = Job(lower=1, upper=4).run(held=4)
    job.put(1, 2, deadline=within(job, 60, ROLLBACK))
    assert (job.kind, upper_bounds(job)) == ("Rescaling", {2})
    job.applied().wait(120_000)
    assert (job.parallelism, job.state.queued) == ([2, 2, 2], ())


def test_bounds_that_ask_for_nothing_else_do_not_wait() -> None:
    job = Job(lower=1, upper=2).run(held=2)
    job.put(2, 2, deadline=within(job, 60, ROLLBACK))
    assert job.nothing_open and job.state.queued == ()


# ---- at the deadline


def test_commit_goes_with_what_there_is() -> None:
    job = waiting(COMMIT).hold(3).wait(60_200)
    assert job.kind == "Rescaling"
    assert "Not all slots had come by the deadline: 4 are wanted, and 3 can be used" in (
        job.open.message or ""
    )
    job.applied()
    assert (job.parallelism, upper_bounds(job), job.state.queued) == ([3, 3, 3], {4}, ())


def test_commit_leaves_the_job_as_it_is_below_its_lower_bounds() -> None:
    job = Job(lower=1, upper=2).run(held=2)
    job.put(4, 4, deadline=within(job, 60, COMMIT)).wait(60_000)
    assert (job.kind, job.parallelism) == ("Executing", [2, 2, 2])
    assert job.effect(DeclareResources) == DeclareResources(desired=4, minimal=4)
    job.wait(60_000)
    (record,) = [one for one in job.records if one.number == 2]
    assert record.reason is TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE
    assert "The bounds of version 2 count from now on. 4 slots are wanted; only 2 came." in (
        record.message or ""
    )


def test_rollback_brings_the_former_bounds_back_and_says_for_whom_and_why() -> None:
    job = waiting(ROLLBACK).hold(3).wait(59_999)
    assert job.state.queued
    job.wait(1)
    assert (upper_bounds(job), job.parallelism, job.kind) == ({2}, [2, 2, 2], "Executing")
    assert (job.state.requirements.version, job.state.requirements.requested_by) == (3, "ann")
    assert job.effect(DeclareResources) == DeclareResources(desired=2, minimal=1)
    ended, back = job.records[-2:]
    assert (ended.number, ended.reason) == (2, TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED)
    assert ended.message == (
        "Not all slots had come by the deadline: 4 are wanted, and 3 can be used. The former bounds stay."
    )
    assert (back.rollback_of, back.requested_by) == (2, "ann")
    assert "Takes back the bounds of version 2: Not all slots had come" in (back.message or "")
    assert job.nothing_open and job.state.queued == ()


def test_what_is_on_its_way_at_the_deadline_goes_on() -> None:
    job = waiting(ROLLBACK).wait(59_900).hold(4).wait(50)
    assert job.kind == "Rescaling"
    job.wait(5_000).applied()
    assert (job.parallelism, upper_bounds(job)) == ([4, 4, 4], {4})


def test_what_waits_for_the_cooldown_at_the_deadline_is_taken_back() -> None:
    job = restarting_job(cooldown="1 h", stabilization="0 s", max_delay="0 s").put(1, 2)
    job.put(1, 4, deadline=within(job, 60, ROLLBACK)).hold(4).wait(60_000)
    assert (upper_bounds(job), job.parallelism) == ({2}, [2, 2, 2])
    ended = next(one for one in job.records if one.number == 3)
    assert "had not begun by the deadline, although 4 slots can be used" in (ended.message or "")


# ---- other bounds meanwhile


def test_bounds_of_another_vertex_leave_the_deadline_alone() -> None:
    job = Job(mixed(), lower=1, upper=2).run(held=4)
    former = {"source": (1, 2), "agg": (1, 2), "sink": (1, 2)}
    job.put_each(within(job, 60, ROLLBACK), **{**former, "source": (1, 6)})
    job.wait(10_000).put_each(**{**former, "source": (1, 6), "sink": (1, 1)})
    assert "source of version 2 still wait for a deadline in 50 s." in (job.open.message or "")
    job.wait(100)
    assert job.kind == "Rescaling"
    job.applied()
    assert job.parallelism == [2, 2, 1], "what waits does not hold up what does not"
    job.wait(49_000)
    assert dict(job.state.queued[0].bounds) == {job.graph.vertices[0].id: Bounds(1, 6)}
    job.wait(1_000)
    now = [(own.lower, own.upper) for _, own in job.state.requirements]
    assert now == [(1, 2), (1, 2), (1, 1)], "the later bounds stay"
    assert job.parallelism == [2, 2, 1]


def test_two_deadlines_run_side_by_side() -> None:
    job = Job(mixed(), lower=1, upper=2).run(held=4)
    former = {"source": (1, 2), "agg": (1, 2), "sink": (1, 2)}
    job.put_each(within(job, 60, ROLLBACK), **{**former, "source": (1, 6)})
    job.put_each(within(job, 30, ROLLBACK), **{**former, "source": (1, 6), "sink": (1, 5)})
    job.wait(30_000)
    assert [one.version for one in job.state.queued] == [2]
    job.wait(30_000)
    assert (upper_bounds(job), job.state.queued) == ({2}, ())


def test_later_bounds_of_the_same_vertex_take_its_place_and_say_so() -> None:
    job = waiting(ROLLBACK).put(1, 6)
    assert "waited for a deadline in 60 s, which does not count any more" in (job.open.message or "")
    job.wait(120_000)
    assert upper_bounds(job) == {6}


def test_what_comes_back_is_what_was_before_both() -> None:
    job = waiting(ROLLBACK)
    job.put(1, 6, deadline=within(job, 30, ROLLBACK)).wait(60_000)
    assert upper_bounds(job) == {2}


def test_a_deadline_does_not_take_back_later_bounds_of_one_of_its_vertices() -> None:
    job = Job(group_graph(["a", "b"]), upper=2).run(held=4)
    job.put_each(within(job, 60, ROLLBACK), a=(1, 4), b=(1, 4)).put_each(a=(1, 4), b=(1, 3)).wait(61_000)
    assert [own.upper for _, own in job.state.requirements] == [2, 3]


@pytest.mark.parametrize("deadline", [None, Deadline(10**15, COMMIT)])
def test_bounds_that_hold_or_wait_already_change_nothing(deadline: Deadline | None) -> None:
    job = waiting(ROLLBACK)
    before = job.state
    for upper in (2, 4):
        again = bounds(job.graph, 1, upper, 9)
        assert bounds_declared.changed_by(job.state, again) == frozenset()
        assert bounds_declared.bounds_to_count(job.state, again).same_as(before.requirements)
        waits = tuple(one.id for one in job.graph.vertices) if upper == 4 else ()
        assert bounds_declared.kept_waiting(job.state, again) == waits
    assert bounds_declared.changed_by(job.state, bounds(job.graph, 1, 3, 9)) == job.state.queued[0].vertices
    job.put(1, 4, deadline=deadline)
    assert job.state.queued == before.queued and upper_bounds(job) == {2}


# ---- failures, loss, the end


def test_a_job_that_fails_meanwhile_is_started_by_the_former_bounds() -> None:
    job = Job(lower=1, upper=2).run(held=2)
    job.put(6, 8, deadline=within(job, 60, ROLLBACK))
    job.do(AttemptFailed(1, "killed", stopped=True, outside=True)).wait(5_000)
    assert job.kind == "CreatingExecutionGraph"
    job.starts().commit()
    assert job.parallelism == [2, 2, 2]
    job.wait(60_000)
    assert upper_bounds(job) == {2}


def test_a_job_that_can_run_by_the_new_bounds_only_does_so() -> None:
    job = Job(lower=3, upper=4).run(held=3)
    job.put(1, 8, deadline=within(job, 600, ROLLBACK))
    job.hold(2).do(AttemptFailed(1, "killed", stopped=True, outside=True))
    job.starts().commit()
    assert job.parallelism == [2, 2, 2]


def test_lost_slots_shrink_the_job_by_the_former_bounds() -> None:
    job = waiting(ROLLBACK).hold(1).applied()
    assert job.parallelism == [1, 1, 1]
    job.hold(4).wait(100)
    assert job.kind == "Rescaling"


def test_the_deadline_passes_while_the_job_restarts() -> None:
    job = waiting(ROLLBACK).do(AttemptFailed(1, "killed", stopped=False, outside=True))
    assert job.kind == "Restarting"
    job.wait(60_000)
    assert upper_bounds(job) == {2}


def test_a_canceled_job_has_no_deadlines() -> None:
    job = waiting(ROLLBACK).do(CancelRequested())
    assert job.state.queued == ()
    job.stops()
    assert (job.kind, job.state.timers) == ("Finished", ())


def test_another_server_keeps_the_deadline() -> None:
    job = waiting(ROLLBACK)
    stored = dump_state(job.state)
    job.state = load_state(stored, job.graph, job.state.options)
    job.wait(60_000)
    assert upper_bounds(job) == {2}


def test_what_was_taken_back_does_not_come_back_with_the_former_bounds() -> None:
    job = tried_4()
    job.do(AttemptFailed(job.state.attempt, "boom", stopped=True)).starts().commit()
    assert job.state.trial.taken_back is not None
    at = job.parallelism
    job.put(1, 9, deadline=within(job, 60, ROLLBACK))
    assert (job.kind, job.parallelism) == ("Executing", at)
    job.wait(60_000)
    assert (job.kind, job.parallelism) == ("Executing", at)


def test_an_unreachable_cluster_does_not_stop_the_clock() -> None:
    job = waiting(ROLLBACK).do(SlotsChanged(slots(2), cluster_unreachable=True)).wait(60_000)
    assert upper_bounds(job) == {2}


# ---- taken back by hand


def undo(job: Job, why: str = "Canceled.") -> Job:
    return job.do(bounds_declared.undoing(job.state, cancelable_of(job.state)[-1], "bob", why))


def test_a_change_that_waits_can_be_taken_back() -> None:
    job = Job(lower=1, upper=2).run(held=2).put(1, 4)
    assert len(cancelable_of(job.state)) == 1
    undo(job)
    assert (upper_bounds(job), job.nothing_open) == ({2}, True)
    assert (job.records[-1].rollback_of, job.records[-1].requested_by) == (2, "bob")
    assert job.records[-2].message == "Canceled. The former bounds are back."


def test_a_change_that_waits_for_the_cooldown_can_be_taken_back() -> None:
    job = restarting_job(cooldown="1 h").hold(4)
    job.put(1, 3).wait(1_000)
    undo(job).wait(1_000)
    assert upper_bounds(job) == {4}


@pytest.mark.parametrize("deadline", [None, Deadline(0, COMMIT)])
def test_what_is_on_its_way_cannot(deadline: Deadline | None) -> None:
    job = Job(lower=1, upper=2).run(held=4)
    job.put(1, 4, deadline=deadline)
    assert (job.kind, upper_bounds(job), cancelable_of(job.state)) == ("Rescaling", {4}, ())


@pytest.mark.parametrize("seconds", [None, 10])
def test_nor_what_the_job_is_restarted_for(seconds: int | None) -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s")
    job.put(1, 1, deadline=None if seconds is None else within(job, seconds, ROLLBACK))
    job.wait(1)
    assert job.kind == "Restarting" and all(one.begun for one in job.state.queued)
    assert not cancelable_of(job.state)
    if seconds is not None:
        job.wait(10_000)
        assert upper_bounds(job) == {1}, "it is on its way at the deadline"


def test_numbers_of_state_partitions_come_back_too() -> None:
    job = Job(lower=1, upper=2).run(held=2)
    job.put(1, 4)
    (one,) = cancelable_of(job.state)
    assert dict(one.former) == bounds(job.graph, 1, 2).as_dict()
    assert one.former_partitions == ()


def test_of_a_vertex_with_later_bounds_no_number_of_state_partitions_is_asked_for() -> None:
    job = Job(mixed(), lower=1, upper=2).run(held=4)
    ids = {one.name: one.id for one in job.graph.vertices}
    wanted = replace(bounds(job.graph, 1, 4, 2), state_partitions=((ids["agg"], 8), (ids["sink"], 8)))
    job.do(RequirementsUpdated(wanted, within(job, 60, ROLLBACK)))
    pairs = tuple((ids[name], Bounds(1, upper)) for name, upper in (("source", 4), ("agg", 3), ("sink", 4)))
    job.do(
        RequirementsUpdated(replace(wanted, version=3, bounds=pairs, state_partitions=((ids["sink"], 8),)))
    )
    (kept,) = job.state.queued
    assert (kept.vertices, kept.partitions) == ({ids["source"], ids["sink"]}, ((ids["sink"], 8),))
    assert job.state.requirements.state_partitions == ()
    job.hold(8).wait(100)
    assert job.state.requirements.state_partitions == ((ids["sink"], 8),)

"""Bounds with a deadline beside other bounds, limits and records: whose slots count, and who is told what."""

from __future__ import annotations

from dataclasses import replace

from app.model.job_state.versions import JobVersion
from app.model.public_event import PublicEventType
from app.model.requirements import Bounds, Deadline, Requirements
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.bounds_declared import cancelable_of
from app.scheduler.adaptive.events import RequirementsUpdated, SlotShareUpdated, VersionRequested
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import Job, chain, group_graph, mixed, restarting_job
from tests.unit.scheduler.test_bounds_queue import (
    COMMIT,
    ROLLBACK,
    sentences,
    undo,
    upper_bounds,
    waiting,
    within,
)
from tests.unit.scheduler.test_rollback import back_to_work, fail, tried_4
from tests.unit.scheduler.test_scaling_policy import set_policy

NOTHING = TerminatedReason.NO_RESOURCES_OR_PARALLELISMS_CHANGE


def two(held: int = 4) -> Job:
    """a and b, each with slots of its own, run at 2."""
    return Job(group_graph(["a", "b"]), lower=1, upper=2).run(held=held)


def put(job: Job, deadline: Deadline | None = None, who: str = "ann", **wanted: tuple[int, int]) -> Job:
    """As `Job.put_each`, asked for by ``who``."""
    version = job.version = max(job.version, job.state.requirements.version) + 1
    pairs = tuple((one.id, Bounds(*wanted[one.name])) for one in job.graph.vertices)
    update = Requirements(f"{version:032x}", version, pairs, requested_by=who, reason=f"put {version}")
    return job.do(RequirementsUpdated(update, deadline))


def declared(job: Job) -> list[tuple[int, int]]:
    return [(own.lower, own.upper) for _, own in job.state.requirements]


def waits(job: Job) -> list[int]:
    """The versions of which bounds wait."""
    return [one.version for one in job.state.queued if one.begun is None]


# ---- whose slots count


def test_a_job_that_is_short_anyway_meets_a_deadline() -> None:
    job = two().put_each(a=(1, 2), b=(1, 9))
    put(job, within(job, 60, ROLLBACK), a=(1, 3), b=(1, 9)).hold(5).wait(100)
    assert "as version 3 wait until the job may use 6 slots" in sentences(job)
    job.applied()
    assert job.parallelism == [2, 3], "b waits for no deadline; a does"
    job.hold(6).wait(100).applied()
    assert (job.parallelism, job.state.queued) == ([3, 3], ())
    job.wait(120_000)
    assert declared(job) == [(1, 3), (1, 9)]


def test_a_vertex_that_shares_its_slots_with_an_elastic_one_has_them() -> None:
    job = Job(chain(), lower=1, upper=2).run(held=4)
    job.put_each(source=(1, 2), agg=(1, 2), sink=(1, 9)).wait(100).applied()
    job.put_each(within(job, 60, ROLLBACK), source=(1, 3), agg=(1, 2), sink=(1, 9)).wait(100)
    assert job.kind == "Rescaling"
    assert (job.applied().parallelism, job.state.queued) == ([3, 2, 4], ())


def test_less_parallelism_waits_for_no_slots() -> None:
    job = Job(group_graph(["a", "b"]), lower=1, upper=4).run(held=4)
    put(job, within(job, 60, ROLLBACK), a=(1, 1), b=(1, 4)).wait(100)
    assert job.kind == "Rescaling"
    job.applied().wait(120_000)
    assert (job.parallelism, declared(job), job.state.queued) == ([1, 3], [(1, 1), (1, 4)], ())


def test_nor_does_a_lower_bound_that_is_lowered_and_still_not_met() -> None:
    job = Job(lower=1, upper=2).run(held=2).put(4, 4).wait(60_000)
    job.put(3, 3, deadline=within(job, 60, ROLLBACK))
    assert (job.state.supply.minimal, job.state.queued) == (3, ())
    job.wait(120_000)
    assert declared(job) == [(3, 3)] * 3


def test_a_lower_bound_alone_asks_for_its_own_slots_only() -> None:
    job = Job(group_graph(["a", "b"]), lower=1, upper=9).run(held=4)
    put(job, within(job, 60, ROLLBACK), a=(3, 9), b=(1, 9)).wait(100)
    assert job.kind == "Rescaling"
    assert (job.applied().parallelism, job.state.queued) == ([3, 1], ())


def test_a_change_whose_slots_are_there_does_not_wait_for_those_of_another_one() -> None:
    job = two()
    put(job, within(job, 60, ROLLBACK), a=(1, 3), b=(1, 2))
    put(job, within(job, 90, ROLLBACK), a=(1, 3), b=(1, 100)).hold(5).wait(100)
    assert waits(job) == [3]
    assert job.applied().parallelism == [3, 2]
    job.wait(90_000)
    assert declared(job) == [(1, 3), (1, 2)]


def test_a_later_change_does_not_take_the_slots_of_one_that_counts() -> None:
    job = two()
    put(job, within(job, 60, ROLLBACK), a=(1, 4), b=(1, 2))
    put(job, within(job, 60, ROLLBACK), a=(1, 4), b=(1, 3)).hold(6).wait(100)
    assert waits(job) == [3], "six are enough for 4 and 2, not for 4 and 3"
    assert job.applied().parallelism == [4, 2]


# ---- limits that are set meanwhile


def test_a_ceiling_that_ends_the_wait_says_so() -> None:
    job = set_policy(waiting(ROLLBACK), ceiling=2)
    assert job.state.queued == () and job.nothing_open
    policy = job.records[-1]
    assert (policy.cause, policy.reason) == (TriggerCause.UPDATE_POLICY, NOTHING)
    told = next(one for one in job.records if "wait no longer" in (one.message or "") and one != policy)
    assert (told.cause, told.requested_by, told.reason) == (TriggerCause.UPDATE_REQUIREMENT, "ann", NOTHING)
    assert "source, agg, sink of version 2 wait no longer: the 2 slots that can be used are enough" in (
        told.message or ""
    )
    set_policy(job).hold(4).wait(100).applied().wait(120_000)
    assert (job.parallelism, upper_bounds(job)) == ([4, 4, 4], {4})


def test_so_does_one_below_what_runs() -> None:
    job = set_policy(waiting(ROLLBACK), ceiling=1)
    assert job.kind == "Rescaling"
    assert "of version 2 wait no longer" in (job.open.message or "")
    assert (job.applied().parallelism, job.state.queued) == ([1, 1, 1], ())


def test_so_does_a_cap() -> None:
    job = waiting(ROLLBACK).do(SlotShareUpdated(SlotShare(2, cap=2)))
    assert job.state.queued == () and job.nothing_open
    ended = job.records[-1]
    assert (ended.number, ended.reason) == (2, NOTHING)
    assert (ended.message or "").endswith(
        "The bounds ask for no other parallelism than is in force, as far as its cap of 2 slot(s) allows."
    )


def test_also_if_its_record_has_ended() -> None:
    job = two()
    put(job, within(job, 600, ROLLBACK), a=(1, 4), b=(1, 2), who="ann")
    put(job, a=(1, 4), b=(2, 2), who="bob").wait(60_000)
    assert job.nothing_open and len(job.state.queued) == 1
    job.do(SlotShareUpdated(SlotShare(2, cap=4)))
    told = job.records[-1]
    assert (told.cause, told.requested_by, told.reason) == (TriggerCause.UPDATE_REQUIREMENT, "ann", NOTHING)
    assert {one.type for one in job.told[-6:]} == {
        PublicEventType.REQUIREMENTS,
        PublicEventType.SLOT_SHARE,
        PublicEventType.RESCALE_BEGUN,
        PublicEventType.RESCALE_ENDED,
        PublicEventType.NO_CHANGE,
    }
    assert job.told[-1].fields["reason"] == "cap"


# ---- COMMIT


def committed_later(held: int) -> Job:
    """ann's bounds of a have waited; the record of bob's later bounds of b has ended their record."""
    job = two()
    put(job, within(job, 300, COMMIT), a=(1, 4), b=(1, 2), who="ann")
    put(job, a=(1, 4), b=(2, 2), who="bob").wait(100_000).hold(held).wait(100_000)
    assert job.nothing_open and job.parallelism == [2, 2]
    return job.wait(100_000)


def test_commit_after_its_record_has_ended_is_by_whoever_asked_for_it() -> None:
    job = committed_later(held=5).wait(100)
    assert (job.kind, job.open.cause, job.open.requested_by) == (
        "Rescaling",
        TriggerCause.UPDATE_REQUIREMENT,
        "ann",
    )
    assert job.open.request_reason == "put 2"
    assert "Not all slots had come by the deadline: 6 are wanted, and 5 can be used" in (
        job.open.message or ""
    )
    assert job.applied().parallelism == [3, 2]


def test_commit_leaves_a_trace_if_nothing_follows() -> None:
    job = committed_later(held=4).wait(100_000)
    ended = job.records[-1]
    assert (ended.cause, ended.requested_by, ended.reason) == (
        TriggerCause.UPDATE_REQUIREMENT,
        "ann",
        NOTHING,
    )
    assert "Not all slots had come by the deadline" in (ended.message or "")


def test_commit_does_not_end_the_record_of_others() -> None:
    job = two()
    put(job, within(job, 60, COMMIT), a=(1, 4), b=(1, 2), who="ann")
    put(job, within(job, 90, ROLLBACK), a=(1, 4), b=(1, 9), who="bob").wait(60_000)
    told = job.records[-1]
    assert (told.number, told.requested_by, told.start_ms) == (3, "bob", told.end_ms)
    assert (told.message or "").startswith("The bounds of b of version 3 wait for their deadline.")
    assert (job.open.number, job.open.requested_by) == (2, "ann")
    assert "The bounds of version 2 count from now on" in (job.open.message or "")
    assert (waits(job), declared(job)) == ([3], [(1, 4), (1, 2)])


# ---- what is taken back by hand or at a deadline


def test_an_undo_does_not_end_the_record_of_others() -> None:
    job = two()
    put(job, within(job, 60, ROLLBACK), a=(1, 6), b=(1, 2), who="ann")
    put(job, within(job, 90, ROLLBACK), a=(1, 6), b=(1, 5), who="bob").wait(60_000)
    assert (declared(job), waits(job)) == ([(1, 2), (1, 2)], [3])
    told = job.records[-1]
    assert (told.number, told.rollback_of, told.requested_by) == (4, 2, "ann")
    assert "Takes back the bounds of version 2: Not all slots had come" in (told.message or "")
    undo(job)
    assert declared(job) == [(1, 2), (1, 2)], "those of others still wait, and can be taken back too"


def test_without_a_deadline_the_change_of_the_open_record_can_be_canceled() -> None:
    job = restarting_job(cooldown="1 h")
    wide, first, second = (1, 4), (1, 1), (1, 2)
    put(job, source=wide, agg=first, sink=wide)
    put(job, source=wide, agg=first, sink=second)
    assert [one.record for one in cancelable_of(job.state)] == [job.open.number]
    undo(job)
    assert declared(job) == [wide, first, wide], "what was declared before"
    assert cancelable_of(job.state) == ()


def taken_back() -> Job:
    """4 was declared and taken back to 2; four slots are held."""
    job = back_to_work(fail(tried_4()))
    assert job.state.trial.taken_back is not None and job.parallelism == [2, 2, 2]
    return job


def test_an_undo_remembers_what_was_taken_back() -> None:
    job = taken_back()
    put(job, within(job, 60, ROLLBACK), source=(1, 9), agg=(1, 4), sink=(1, 4)).hold(4).wait(100)
    assert (job.kind, job.parallelism) == ("Executing", [2, 2, 2]), (
        "the former bounds hold, and what they led to"
    )
    job.wait(60_000)
    assert declared(job) == [(1, 4)] * 3, "what was declared comes back, not what it led to"
    job.wait(60_000)
    assert job.state.trial.taken_back is not None
    assert (job.kind, job.parallelism) == ("Executing", [2, 2, 2])


def test_what_was_taken_back_may_be_tried_again_once_the_slots_are_there() -> None:
    job = taken_back()
    put(job, within(job, 60, ROLLBACK), source=(1, 9), agg=(1, 4), sink=(1, 4)).hold(9).wait(100)
    assert (job.kind, job.state.trial.taken_back) == ("Rescaling", None)
    assert (job.applied().parallelism, job.state.queued) == ([9, 4, 4], ())


def test_later_bounds_without_a_deadline_try_it_again_at_once() -> None:
    job = taken_back()
    put(job, within(job, 60, ROLLBACK), source=(1, 9), agg=(1, 4), sink=(1, 4)).hold(4).wait(100)
    put(job, source=(1, 9), agg=(1, 4), sink=(1, 3)).wait(100)
    assert job.applied().parallelism == [4, 4, 3]


def test_it_does_not_limit_what_has_its_slots_while_others_wait() -> None:
    job = back_to_work(fail(put(two(), a=(1, 4), b=(1, 4)).hold(8)))
    assert job.state.trial.taken_back is not None and job.parallelism == [2, 2]
    put(job, within(job, 60, ROLLBACK), a=(1, 5), b=(1, 4))
    put(job, within(job, 90, ROLLBACK), a=(1, 5), b=(1, 6)).hold(8).wait(100)
    assert (job.parallelism, waits(job)) == ([2, 2], [3, 4]), "b may be tried at 4 again, by the same change"
    job.hold(9).wait(100)
    assert (job.applied().parallelism, waits(job)) == ([5, 4], [4])


def test_an_undo_without_a_deadline_remembers_it_too() -> None:
    job = taken_back().hold(2)
    put(job, source=(1, 9), agg=(1, 4), sink=(1, 4))
    assert (job.kind, job.state.trial.taken_back) == ("Executing", None)
    undo(job).wait(60_000)
    assert job.state.trial.taken_back is not None
    assert (declared(job), job.parallelism) == ([(1, 4)] * 3, [2, 2, 2])


def test_limits_of_the_policy_do_not_become_declared_bounds() -> None:
    job = set_policy(taken_back(), floor=2)
    put(job, within(job, 60, ROLLBACK), source=(1, 9), agg=(1, 4), sink=(1, 4)).wait(60_000)
    assert declared(job) == [(1, 4)] * 3


def test_the_explanation_has_a_reason_for_what_waits() -> None:
    job = Job(mixed(), lower=1, upper=2).run(held=4)
    put(job, within(job, 60, ROLLBACK), source=(1, 6), agg=(1, 2), sink=(1, 2))
    assert [one.message for one in job.state.no_change] == [
        "8 slots are waited for until the deadline, and 4 can be used."
    ]
    assert any("wait until the job may use 8 slots" in one for one in explain(job.state, job.now_ms)[0])


def test_queued_bounds_fit_the_vertices_of_a_new_version() -> None:
    job = Job(lower=1, upper=8).run(held=2)
    job.put(1, 9, deadline=within(job, 600, ROLLBACK))
    source, agg, sink = job.graph.vertices
    new = replace(
        job.graph, vertices=(source, replace(agg, max_parallelism=12), replace(sink, max_parallelism=6))
    )
    job.do(VersionRequested(JobVersion(2, new, job.state.options), "ann")).stops()
    assert job.state.graph.by_id[agg.id].max_parallelism == 12
    (one,) = job.state.queued
    assert dict(one.bounds) == {source.id: Bounds(1, 9), agg.id: Bounds(1, 9)}, (
        "the sink has other bounds now"
    )
    job.starts().commit().wait(700_000)
    assert (declared(job), job.state.queued) == ([(1, 8), (1, 8), (1, 6)], ())


def test_and_are_no_more_than_those_can_be() -> None:
    job = Job(lower=1, upper=2).run(held=2)
    job.put(1, 9, deadline=within(job, 600, ROLLBACK))
    source, agg, sink = job.graph.vertices
    new = replace(job.graph, vertices=(source, replace(agg, max_parallelism=4), sink))
    job.do(VersionRequested(JobVersion(2, new, job.state.options), "ann")).stops()
    assert dict(job.state.queued[0].bounds)[agg.id] == Bounds(1, 4)

"""Bounds that waited and for which the job is restarted: they come into force, or wait again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model.job_state.versions import JobVersion
from app.scheduler.adaptive.events import VersionRequested
from tests.unit.scheduler.driving import Job, restarting_job
from tests.unit.scheduler.test_bounds_queue import ROLLBACK, within
from tests.unit.scheduler.test_deadlines_side_by_side import declared, put, two, waits
from tests.unit.scheduler.test_rollback import back_to_work, fail


def stopping() -> Job:
    """The job is stopped for 4 of everything, which has to be all; it ran at 2, and may at 1."""
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s").put(1, 2).wait(10_000)
    job.put(4, 4, deadline=within(job, 60, ROLLBACK)).hold(4).wait(100)
    assert job.kind == "Restarting" and job.state.queued[0].begun
    return job


def test_slots_that_are_lost_while_the_job_is_stopped_do_not_keep_it_down() -> None:
    job = stopping().hold(2).stops().wait(10_000)
    assert job.kind == "CreatingExecutionGraph"
    assert job.starts().parallelism == [2, 2, 2]
    assert not job.state.queued[0].begun
    job.commit().wait(60_000)
    assert declared(job) == [(1, 2)] * 3


def test_nor_those_that_are_lost_while_it_is_started() -> None:
    job = stopping().stops()
    assert job.kind == "CreatingExecutionGraph" and job.state.queued[0].begun
    job.hold(2).stops().wait(20_000)
    assert job.starts().parallelism == [2, 2, 2]


def test_a_deadline_that_passed_meanwhile_counts_if_nothing_comes_of_it() -> None:
    job = stopping().wait(100_000)
    assert declared(job) == [(4, 4)] * 3
    job.hold(2).stops().wait(10_000)
    assert declared(job) == [(1, 2)] * 3
    assert job.starts().parallelism == [2, 2, 2]


def test_the_deadline_of_other_bounds_does_not_take_back_what_it_is_stopped_for() -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s").put(1, 2).wait(10_000)
    put(job, within(job, 60, ROLLBACK), source=(1, 2), agg=(4, 4), sink=(1, 2)).hold(4).wait(100)
    put(job, within(job, 90, ROLLBACK), source=(1, 9), agg=(4, 4), sink=(1, 2))
    assert job.kind == "Restarting" and waits(job) == [job.state.requirements.version]
    job.wait(100_000)
    assert declared(job) == [(1, 2), (4, 4), (1, 2)]


def test_what_it_was_stopped_for_is_in_force_and_stays() -> None:
    job = stopping().stops().starts()
    assert (job.parallelism, job.state.queued) == ([4, 4, 4], ())
    job.commit().wait(120_000)
    assert declared(job) == [(4, 4)] * 3


def test_what_was_tried_and_failed_waits_for_no_deadline() -> None:
    job = stopping().stops()
    fail(job, stopped=True)
    assert job.state.trial.taken_back is not None and job.state.queued == ()
    job.wait(120_000)
    assert declared(job) == [(4, 4)] * 3


@pytest.mark.parametrize("stopped", [True, False])
def test_what_waits_beside_something_that_failed_still_has_its_deadline(stopped: bool) -> None:
    job = two()
    put(job, a=(1, 3), b=(1, 2)).hold(5).wait(100).applied()
    put(job, within(job, 60, ROLLBACK), a=(1, 3), b=(1, 9))
    fail(job, stopped=stopped)
    if stopped:
        back_to_work(job)
    assert job.state.trial.taken_back is not None
    job.wait(61_000)
    assert declared(job) == [(1, 3), (1, 2)]


def test_a_new_version_starts_with_what_was_applied_and_puts_it_back_if_its_slots_have_gone() -> None:
    job = stopping()
    source, agg, sink = job.graph.vertices
    new = replace(job.graph, vertices=(source, agg, replace(sink, max_parallelism=64)))
    job.do(VersionRequested(JobVersion(2, new, job.state.options), "ann")).stops()
    assert (job.kind, declared(job), waits(job)) == ("CreatingExecutionGraph", [(4, 4)] * 3, [])
    job.hold(2)
    assert (declared(job), waits(job)) == ([(1, 2)] * 3, [3])

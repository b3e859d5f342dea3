"""Rollback (ADR 20) and redistribution of state (ADR 2): each has its own failures; partitions do not come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model.job_state.changes import TakenBack
from app.model.job_state.partitions import RepartitionRefused
from app.model.requirements import Bounds, Requirements
from app.scheduler.adaptive.effects import StartAttempt
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    StateRepartitioned,
)
from app.scheduler.adaptive.goal import Goal
from app.scheduler.adaptive.state import JobState
from app.worker.refusals import StateConflict
from app.worker.requests.dry_run import dry_run
from app.worker.requests.requirements import decide_update
from app.worker.views import RequirementsUpdate
from tests.parts import with_part
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.test_rollback import BOOM, back_to_work, fail
from tests.unit.scheduler.test_state_repartition import (
    AGG,
    SINK,
    begun,
    done,
    partitions,
    put,
    running,
)


def test_a_crash_after_a_redistribution_takes_the_parallelism_back_and_leaves_the_state() -> None:
    job = fail(done(begun(running(held=12)), 12).wait(30_000))
    started = job.effect(StartAttempt)
    assert [count for _, count in started.plan.parallelism] == [2, 2, 2]
    assert partitions(job) == 12 and job.state.partitions.repartition is None
    back_to_work(job).wait(3_600_000)
    assert (job.kind, job.parallelism, partitions(job)) == ("Executing", [2, 2, 2], 12)
    assert job.state.trial.taken_back is not None and job.records[-1].rollback_of == job.records[-2].number


def test_a_crash_of_the_start_after_the_redistribution_is_taken_back_too() -> None:
    job = begun(running(held=12))
    job.do(StateRepartitioned(job.state.attempt, ((SINK, 12),)))
    fail(job)
    assert job.state.trial.taken_back is not None
    assert back_to_work(job).parallelism == [2, 2, 2] and partitions(job) == 12


def test_a_redistribution_that_is_given_up_is_no_bad_parallelism() -> None:
    job = begun(running(held=12))
    job.do(AttemptFailed(job.state.attempt, "no space", stopped=True, repartition=True))
    assert job.state.trial.taken_back is None and job.state.partitions.refused is not None
    job.wait(60_000).do(AttemptRunning(job.state.attempt)).commit()
    assert job.parallelism == [2, 8, 2] and job.state.trial.watch is not None


def test_nor_is_one_during_which_the_driver_dies_of_itself() -> None:
    job = begun(running(held=12))
    fail(job)
    begun_once = job.state.partitions.repartition
    assert job.state.trial.taken_back is None and begun_once is not None and begun_once.failed == 1
    assert partitions(job) == 12


def test_nor_one_within_the_watch_of_the_rescale_before() -> None:
    job = put(running(held=12), 4)
    job.applied() if job.kind == "Rescaling" else job.starts().commit()
    assert job.state.trial.watch is not None
    begun(job)
    job.do(AttemptFailed(job.state.attempt, "no space", stopped=True, repartition=True))
    assert job.state.trial.taken_back is None


def test_one_that_takes_too_long_is_given_up_and_no_more() -> None:
    job = begun(running(held=12))
    job.wait(120_000 + 1_800_000).do(AttemptFailed(job.state.attempt, "killed", stopped=True, outside=True))
    assert job.state.trial.taken_back is None and job.state.partitions.refused is not None


def test_what_there_are_too_few_partitions_for_now_does_not_come_back() -> None:
    job = running(held=12)
    put(job, 8)
    job.applied().wait(60_000).commit()
    assert (job.parallelism, job.state.trial.watch) == ([2, 8, 2], None)
    put(job, 4, 4).stops(driver_alive=True)
    done(job, 4)
    assert job.parallelism == [2, 4, 2]
    assert job.state.trial.watch is None, "at most 4 tasks have state: there is nothing to go back to"
    fail(job)
    assert job.state.trial.taken_back is None


@pytest.mark.parametrize("partitions_asked", [None, 20])
def test_what_is_asked_of_the_cluster_is_bounded_by_what_was_taken_back(partitions_asked: int | None) -> None:
    state = taken_back(running(held=12))
    wanted = Requirements(
        "r",
        7,
        tuple((one.id, Bounds(1, 20 if one.id == AGG else 2)) for one in state.graph.vertices),
        state_partitions=() if partitions_asked is None else ((AGG, partitions_asked),),
    )
    state = replace(state, requirements=wanted)
    goal = Goal.of(state)
    assert goal.now.desired == goal.whole.desired == 2
    assert goal.whole.graph.by_id[AGG].max_parallelism == 20
    assert (goal.declared.desired, goal.declared_whole.desired) == (8, 20)
    goal = Goal.of(with_part(state, "trial", taken_back=None))
    assert (goal.now.desired, goal.whole.desired) == (8, 20)


def taken_back(job: Job) -> JobState:
    """A job for which agg at 4 was taken back."""
    good = tuple((one.id, 2) for one in job.graph.vertices)
    tried = tuple((one.id, 4 if one.id == AGG else 2) for one in job.graph.vertices)
    taken = TakenBack(good, tried, 2, job.records[-1].cause, job.now_ms, BOOM)
    return with_part(job.state, "trial", taken_back=taken)


def same_again(state: JobState, *, retry: bool) -> RequirementsUpdate:
    return RequirementsUpdate({one: (own.lower, own.upper) for one, own in state.requirements}, retry=retry)


def test_equal_bounds_try_a_refused_redistribution_again_but_lift_nothing_that_was_taken_back() -> None:
    job = running(held=12)
    put(job, 12).stops(driver_alive=True)
    job.do(AttemptFailed(job.state.attempt, "no space", stopped=True, repartition=True))
    state = job.state
    assert isinstance(state.partitions.refused, RepartitionRefused)
    assert decide_update(state, same_again(state, retry=False), 0, 0).event is not None
    state = taken_back(job)
    assert decide_update(state, same_again(state, retry=False), 0, 0).event is None
    assert decide_update(state, same_again(state, retry=True), 0, 0).event is not None


def test_in_reactive_mode_nobody_declares_partitions() -> None:
    state = running().state
    state = replace(state, options=replace(state.options, mode="reactive"))
    update = replace(same_again(state, retry=True), state_partitions={AGG: 12})
    with pytest.raises(StateConflict, match="reactive mode"):
        decide_update(state, update, 0, 0)
    bounds = state.requirements.as_dict()
    found = dry_run(state, bounds, ((AGG, 12),), [], reach=lambda desired, _minimal: desired, retry=True)
    assert "reactive mode" in found.refused[0]

"""The rules beside the phases, in one step: in which order they look, and what they leave to one another."""

from __future__ import annotations

import operator
from dataclasses import replace

from app.model.job_state.versions import JobVersion
from app.model.requirements import Bounds, Requirements
from app.scheduler.adaptive.effects import DeclareResources
from app.scheduler.adaptive.events import (
    AttemptFailed,
    RequirementsUpdated,
    SlotsChanged,
    SlotShareUpdated,
    VersionRequested,
)
from app.scheduler.adaptive.trial import TRIAL_TIMER
from app.scheduler.step import RULES
from tests.unit.batch.driving import BatchJob, chain
from tests.unit.scheduler.driving import COOLDOWN, STABILIZATION, Job, group_graph, slots
from tests.unit.scheduler.test_bounds_queue import ROLLBACK, within
from tests.unit.scheduler.test_deadlines_side_by_side import put, two, waits
from tests.unit.scheduler.test_state_repartition import AGG, running


def with_version_on_trial(job: Job) -> Job:
    tried = replace(job.graph, artifacts=("other.py",))
    return job.do(VersionRequested(JobVersion(2, tried, job.state.options), "ann")).stops().starts()


def has_timer(job: Job, name: str) -> bool:
    return any(timer.name == name for timer in job.state.timers)


def test_the_trial_of_a_version_has_its_timer_when_bounds_are_applied_behind_the_handler() -> None:
    job = with_version_on_trial(Job(lower=1, upper=2).run(held=4))
    assert has_timer(job, TRIAL_TIMER)
    job.put(1, 8, deadline=within(job, 60, ROLLBACK))
    assert waits(job)
    job.do(SlotShareUpdated(replace(job.state.share, version=2, cap=4)))
    assert job.kind == "Rescaling" and has_timer(job, TRIAL_TIMER)


def test_each_rule_that_is_not_always_needed_names_fields_of_the_state() -> None:
    state = two().state
    for rule in RULES:
        for name in rule.uses:
            operator.attrgetter(name)(state)
    assert [name for rule in RULES for name in rule.uses].count("queued") == 1


def test_a_change_that_has_its_slots_does_not_wait_for_those_of_queued_bounds() -> None:
    graph = group_graph(["a", "b"])
    graph = replace(graph, vertices=tuple(replace(one, in_place="query-restart") for one in graph.vertices))
    options = {COOLDOWN: "0 ms", STABILIZATION: "60 s"}
    job = Job(graph, lower=1, upper=2, options=options).run(held=4).commit()
    put(job, within(job, 600, ROLLBACK), a=(1, 2), b=(1, 8))
    put(job, a=(1, 1), b=(1, 2))
    assert waits(job) and job.kind == "Executing"
    job.commit()
    assert job.kind == "Restarting"


def test_a_job_that_runs_can_do_without_what_more_partitions_would_need() -> None:
    job = running(held=8)
    agg = tuple((one.id, Bounds(10, 12) if one.id == AGG else Bounds(1, 2)) for one in job.graph.vertices)
    job.do(RequirementsUpdated(Requirements("w", 2, agg))).wait(5_000)
    assert job.kind == "Rescaling" and job.state.open_change is None
    assert (job.state.supply.declared, job.state.supply.minimal) == (12, 8)


def test_a_start_that_fails_in_the_trial_of_a_version_takes_the_version_back() -> None:
    job = with_version_on_trial(two(held=9)).commit()
    assert not job.state.trial.unproven and job.state.versions.is_on_trial
    job.do(AttemptFailed(job.state.attempt, "killed", stopped=True, outside=True)).wait(60_000)
    put(job, a=(1, 3), b=(1, 2))
    assert job.kind == "CreatingExecutionGraph"
    job.do(AttemptFailed(job.state.attempt, "KeyError: k", stopped=True))
    assert job.state.versions.notes[-1].outcome == "TAKEN_BACK" and job.state.trial.taken_back is None


def test_a_job_that_comes_back_below_its_lower_bounds_goes_by_the_slots_of_now() -> None:
    job = Job(group_graph(["a"]), lower=1, upper=4).run(held=4)
    job.put(12, 16)
    job.do(SlotsChanged(slots(4), cluster_unreachable=True))
    job.do(AttemptFailed(job.state.attempt, "killed", stopped=True, outside=True)).wait(60_000)
    job.do(SlotsChanged(slots(12), cluster_unreachable=True))
    assert job.kind == "WaitingForResources"
    job.do(SlotsChanged(slots(6))).wait(60_000)
    assert job.kind == "CreatingExecutionGraph"


def test_a_batch_job_asks_for_no_more_slots_before_its_driver_is_dead() -> None:
    job = BatchJob(chain(), held=2)
    job.run()
    job.do(AttemptFailed(1, "boom", stopped=False))
    assert (job.state.supply.declared, job.state.driver.alive) == (2, True)
    assert not any(isinstance(one, DeclareResources) for one in job.effects)

"""A new version of a program with an environment of its own: that is built while the version before runs on."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.job_state.partitions import Repartition
from app.model.state_partitions import numbers_of
from app.scheduler.adaptive import growth
from app.scheduler.adaptive.draft import InvalidTransition
from app.scheduler.adaptive.effects import StopAttempt, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    CancelRequested,
    EnvironmentReady,
    QueryEnded,
    StopRequested,
)
from app.scheduler.adaptive.versions import may_come
from app.scheduler.explain import explain
from tests.parts import with_part
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.programs import COPYING, begins, begun, declared, names, starts_query
from tests.unit.scheduler.test_first_query_of_versions import OTHER, asked, outcome

ENVIRONMENT = {"requirements": ["pyspark==4.2.0", "numpy==0"]}
WHY = "environment.requirements: numpy==0 was not found."


def building(job: Job | None = None, **document: Any) -> Job:
    """Version 2 is stored, and waits for its environment."""
    job = job or starts_query(begun()).commit()
    return job.do(asked(job, environment=ENVIRONMENT, **document))


def test_the_version_before_runs_on_until_it_was_built() -> None:
    job = building()
    assert (job.kind, outcome(job), job.state.versions.builds) == ("Executing", "STARTING", 2)
    assert job.nothing_open and job.effects == ()
    sentences = " ".join(explain(job.state, job.now_ms)[0])
    assert "What version 2 is to run in is being built. Version 1 stays in force until then." in sentences
    job.put(1, 1).applied()
    assert job.kind == "Executing" and job.state.versions.current == 1
    job.do(EnvironmentReady(2))
    assert (job.kind, job.effect(StopAttempt).mode) == ("Restarting", StopMode.DRAIN)
    assert job.open.message == "Version 2 of the job, in the place of version 1, asked for by ann."
    assert (job.open.requested_by, job.open.request_reason) == ("ann", None)
    job.stops()
    assert job.state.versions.current == 2 and declared(job) == dict.fromkeys(["in", "counts", "out"], (1, 1))
    starts_query(begins(job)).commit().applied()
    assert outcome(job) == "IN_FORCE"


def test_one_that_cannot_be_built_changes_nothing() -> None:
    job = building()
    plan, records = job.state.plan, len(job.records)
    job.do(EnvironmentReady(2, WHY))
    assert (job.kind, job.state.plan, job.effects) == ("Executing", plan, ())
    note = job.state.versions.notes[-1]
    assert (note.outcome, note.why) == ("TAKEN_BACK", WHY)
    assert job.state.versions.replacement is None and job.state.spare is None
    (record,) = job.records[records:]
    assert record.message == f"Version 2 of the job was not started: {WHY}"
    assert (record.requested_by, record.request_reason) == ("ann", None)
    assert job.nothing_open
    job.do(asked(job, 3))
    assert job.kind == "Restarting"


def test_a_failure_meanwhile_is_that_of_the_version_before() -> None:
    job = building()
    job.do(AttemptFailed(job.state.attempt, "KeyError: k", stopped=True))
    assert (job.kind, outcome(job)) == ("Restarting", "STARTING")
    job.do(EnvironmentReady(2))
    assert job.state.versions.current == 2, "it does not wait for the backoff"


def test_an_attempt_that_begins_meanwhile_is_at_the_version_before() -> None:
    job = building()
    job.do(AttemptFailed(job.state.attempt, "KeyError: k", stopped=True))
    job.wait(2_000)
    assert (job.kind, job.state.versions.current) == ("CreatingExecutionGraph", 1)
    starts_query(begins(job)).commit()
    job.do(EnvironmentReady(2)).stops()
    assert job.state.versions.current == 2


@pytest.mark.parametrize("event", [EnvironmentReady(3), EnvironmentReady(3, WHY), EnvironmentReady(1)])
def test_what_was_built_for_another_version_is_of_no_interest(event: EnvironmentReady) -> None:
    job = building()
    before = job.state
    assert job.do(event).state is before


def test_it_is_dropped_when_the_job_ends() -> None:
    job = building().do(CancelRequested("ann"))
    assert not may_come(job.state)
    with pytest.raises(InvalidTransition):
        job.do(EnvironmentReady(2))
    job.stops()
    assert (job.kind, outcome(job)) == ("Finished", "DROPPED")


def test_it_comes_when_the_job_is_not_stopped_after_all() -> None:
    job = building().do(StopRequested("t1"))
    assert not may_come(job.state)
    job.do(AttemptFailed(job.state.attempt, "KeyError: k", stopped=True))
    assert job.kind == "Restarting" and may_come(job.state)
    job.do(EnvironmentReady(2))
    assert job.state.versions.current == 2


def test_a_version_without_an_environment_of_its_own_comes_at_once() -> None:
    job = starts_query(begun()).commit()
    assert job.do(asked(job)).kind == "Restarting"


def test_packages_are_built_too() -> None:
    job = starts_query(begun()).commit()
    job.do(asked(job, packages=["a:b_2.13:1.0"]))
    assert job.state.versions.builds == 2


def left_to_idle() -> Job:
    """The state of a query that has ended is to have other partitions, by a redistribution that waits for it."""
    job = starts_query(starts_query(begun()).commit(), COPYING)
    key = next(one.id for one in job.state.graph.vertices if one.name == "out")
    job.do(QueryEnded(job.state.attempt, key))
    now = numbers_of(job.state.graph)
    before = tuple((vertex, 6) for vertex, _ in now)
    job.state = with_part(
        job.state, "partitions", repartition=Repartition(before, now, job.now_ms, late=(key,))
    )
    return job


def test_a_redistribution_that_waits_is_passed_over_when_the_version_comes_and_not_before() -> None:
    job = building(left_to_idle())
    begun_before = job.state.partitions.repartition
    assert begun_before is not None
    assert job.do(EnvironmentReady(2, WHY)).state.partitions.repartition is begun_before
    job.do(asked(job, 3, environment=ENVIRONMENT)).do(EnvironmentReady(3))
    assert (job.kind, job.state.partitions.repartition) == ("Restarting", None)


def test_a_redistribution_of_what_has_left_the_graph_holds_up_no_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = building(left_to_idle())
    monkeypatch.setattr(growth, "ENDED_KEPT", 1)
    copied = next(one.id for one in job.state.graph.vertices if one.name == "copy")
    starts_query(job.do(QueryEnded(job.state.attempt, copied)), OTHER)
    assert names(job) == ["raw", "copy", "one", "two"] and job.state.partitions.repartition is not None
    assert may_come(job.state) and job.do(EnvironmentReady(2)).kind == "Restarting"


def test_another_version_takes_the_place_of_one_whose_environment_is_being_built() -> None:
    job = building()
    job.do(asked(job, 3, environment=ENVIRONMENT))
    assert (outcome(job), job.state.versions.builds) == ("DROPPED", 3)
    assert job.state.versions.notes[-2].why == "Version 3 was asked for first."
    job.do(asked(job, 4))
    assert job.kind == "Restarting" and job.state.versions.builds is None
    job.stops()
    assert job.state.versions.current == 4

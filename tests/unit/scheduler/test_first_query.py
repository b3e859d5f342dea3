"""A program before its first query, of which it is one vertex; and its first query, which takes the place of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model.plan import Rung
from app.model.requirements import Deadline, OnTimeout
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.status import JobStatus
from app.scheduler.adaptive.attempts import START_TIMER
from app.scheduler.adaptive.effects import DeclareResources, SendPlan, StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStopped,
    CancelRequested,
    SlotsChanged,
    StopRequested,
)
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import COOLDOWN, Job, slots
from tests.unit.scheduler.programs import (
    AT_ONCE,
    COPYING,
    COUNTING,
    begins,
    begun,
    declared,
    limited,
    names,
    program,
    starts_query,
)

DAY_MS = 86_400_000
QUERY = ["in", "counts", "out"]


def timers(job: Job) -> list[str]:
    return [one.name for one in job.state.timers]


def posts(job: Job) -> list[tuple[int | None, int | None]]:
    """Of the open record, which has to be of the vertices of the graph."""
    assert [one.vertex_id for one in job.open.vertices] == [one.id for one in job.state.graph.vertices]
    return [(one.pre, one.post) for one in job.open.vertices]


def fails(job: Job, error: str = "KeyError: k") -> Job:
    return job.do(AttemptFailed(job.state.attempt, error, stopped=True))


# -- before the first query


def test_a_program_that_has_begun_executes_with_status_created_in_what_time_it_wants() -> None:
    job = Job(program(bounds=limited(2)), upper=2, options=AT_ONCE).submit(held=2)
    assert job.kind == "CreatingExecutionGraph" and START_TIMER in timers(job)
    begins(job)
    assert (job.kind, job.status, job.parallelism) == ("Executing", JobStatus.CREATED, [2])
    before = job.state
    job.wait(DAY_MS)
    assert job.state is before and START_TIMER not in timers(job)
    assert JobStatus.RUNNING not in dict(job.state.status_since_ms)
    assert "job" in explain(job.state, job.now_ms)[0][0]


def test_begun_is_told_twice_to_no_effect() -> None:
    job = begun()
    before = job.state
    assert begins(job).state is before


@pytest.mark.parametrize("known", [False, True])
def test_begun_of_an_attempt_that_is_being_killed_changes_nothing(known: bool) -> None:
    job = begun()
    if known:
        starts_query(job).commit()
    fails(job).wait(1_000)
    job.do(SlotsChanged(()))
    assert job.effect(StopAttempt).mode is StopMode.KILL
    before = job.state
    assert begins(job).state is before and "stop-timeout" in " ".join(timers(job))


@pytest.mark.parametrize(
    ("change", "left"),
    [(SlotsChanged(slots(3)), 3), (SlotsChanged(slots(4), allowed=2), 2), (SlotsChanged(slots(6)), 6)],
)
def test_slots_are_lost_given_back_and_got_in_place(change: SlotsChanged, left: int) -> None:
    job = begun(held=4, upper=6)
    job.do(change)
    assert (job.kind, job.status) == ("Rescaling", JobStatus.CREATED)
    assert [count for _, count in job.effect(SendPlan).plan.parallelism] == [left]
    job.applied()
    assert (job.kind, job.status, job.parallelism) == ("Executing", JobStatus.CREATED, [left])
    starts_query(job, parallelism=left)
    assert (job.kind, job.status, job.parallelism) == ("Executing", JobStatus.RUNNING, [left] * 3)


def test_other_bounds_of_the_program_are_a_rescale_in_place() -> None:
    job = begun(held=4, upper=2)
    job.put(1, 4)
    assert [count for _, count in job.effect(SendPlan).plan.parallelism] == [4]
    job.applied()
    assert (job.parallelism, job.nothing_open) == ([4], True)


@pytest.mark.parametrize("rescaled", [False, True])
def test_a_program_may_end_without_a_query(rescaled: bool) -> None:
    job = begun(held=4, upper=6)
    if rescaled:
        job.hold(6).applied()
    job.do(AttemptFinished(job.state.attempt))
    assert (job.kind, job.status, job.nothing_open) == ("Finished", JobStatus.FINISHED, True)
    told = [one.fields["status"] for one in job.told if "status" in one.fields]
    assert told == ["CREATED", "FINISHED"]


def test_after_a_failure_before_the_first_query_the_program_is_begun_anew() -> None:
    fails(job := begun())
    assert (job.kind, job.status) == ("Restarting", JobStatus.RESTARTING)
    job.wait(1_000)
    assert job.kind == "CreatingExecutionGraph" and names(job) == ["job"]
    assert [count for _, count in job.state.phase.plan.parallelism] == [2]
    begins(job)
    assert (job.kind, job.status) == ("Executing", JobStatus.CREATED)
    starts_query(job)
    assert (job.status, job.parallelism, names(job)) == (JobStatus.RUNNING, [2, 2, 2], QUERY)
    job.commit()
    assert job.ended() == [
        ("INITIAL_SCHEDULE", "JOB_FAILOVER_RESTARTING", 1),
        ("RECOVERABLE_FAILOVER", "SUCCEEDED", 1),
    ]


def test_a_program_that_cannot_be_begun_is_tried_again() -> None:
    job = Job(program(), options=AT_ONCE).submit(held=2)
    fails(job, "no module named x").wait(60_000)
    assert job.kind == "CreatingExecutionGraph" and job.effect(StartAttempt).attempt == 2
    assert begins(job).kind == "Executing"


@pytest.mark.parametrize("first", [False, True])
def test_a_stop_before_the_first_query_drains_the_program(first: bool) -> None:
    job = begun().do(StopRequested("t"))
    assert (job.kind, job.status) == ("StopWithSavepoint", JobStatus.CREATED)
    assert job.effect(StopAttempt).mode is StopMode.DRAIN
    if first:
        starts_query(job)
        assert (job.kind, job.status) == ("StopWithSavepoint", JobStatus.RUNNING)
        assert job.parallelism == [2, 2, 2]
    job.do(AttemptStopped(job.state.attempt, drained=True, location="/c"))
    assert job.status is JobStatus.FINISHED
    assert job.state.stop is not None and job.state.stop.location == "/c"


@pytest.mark.parametrize("first", [False, True])
def test_a_stop_that_fails_leaves_the_program_as_it_was(first: bool) -> None:
    job = begun(held=4, upper=4).do(StopRequested("t"))
    if first:
        starts_query(job, parallelism=4)
    job.do(AttemptStopped(job.state.attempt, driver_alive=True, error="the disk is full"))
    status = JobStatus.RUNNING if first else JobStatus.CREATED
    assert (job.kind, job.status) == ("Executing", status)
    assert posts(job) == [(None, 4)] * len(job.state.graph.vertices)
    if not first:
        starts_query(job, parallelism=4)
    assert job.commit().ended() == [("INITIAL_SCHEDULE", "SUCCEEDED", 1)]


def test_a_cancel_before_the_first_query() -> None:
    job = begun().do(CancelRequested("ann"))
    assert (job.kind, job.effect(StopAttempt).mode) == ("Canceling", StopMode.KILL)
    before = job.state
    assert starts_query(job).state is before, "late report"
    assert job.stops().status is JobStatus.CANCELED


# -- the first query


def test_with_the_first_query_the_job_runs_and_the_record_of_its_start_is_of_the_vertices() -> None:
    job = begun()
    first = job.open
    job.wait(5_000)
    starts_query(job)
    assert (job.kind, job.status, job.parallelism) == ("Executing", JobStatus.RUNNING, [2, 2, 2])
    since = dict(job.state.status_since_ms)
    assert since[JobStatus.RUNNING] == job.now_ms and since[JobStatus.CREATED] == job.now_ms - 5_000
    told = next(one for one in job.told if one.fields.get("status") == "RUNNING")
    assert told.fields["previousStatus"] == "CREATED"
    assert (job.open.uuid, job.open.number, job.open.rung) == (first.uuid, 1, Rung.NEW_DRIVER)
    assert job.open.requirements_uuid == job.state.requirements.uuid
    assert posts(job) == [(None, 2)] * 3
    assert [one.desired for one in job.open.groups] == [2]
    assert names(job) == QUERY and job.state.plan == job.state.last_plan
    assert not job.has_effect(SendPlan) and not job.records
    job.commit()
    assert job.ended() == [("INITIAL_SCHEDULE", "SUCCEEDED", 1)] and job.nothing_open
    assert job.wait(DAY_MS).ended() == [("INITIAL_SCHEDULE", "SUCCEEDED", 1)]


def test_its_bounds_are_those_of_the_document_and_not_those_of_the_program() -> None:
    job = begun(
        held=3, upper=6, bounds={"in": {"upperBound": 3}, "counts": {"lowerBound": 2, "upperBound": 40}}
    )
    job.put(2, 5)
    starts_query(job)
    assert declared(job) == {"in": (1, 3), "counts": (2, 12), "out": (1, 12)}
    assert job.state.requirements.version == 3
    assert job.state.requirements.reason == "The program has started a query with in, counts, out."
    assert job.state.supply.declared == 12


def test_a_second_query_has_a_record_of_its_own() -> None:
    job = starts_query(begun())
    starts_query(job, COPYING)
    assert job.open.number == 1
    assert [one.vertex_id for one in job.open.vertices] == [one.id for one in job.state.graph.vertices]
    (record,) = job.records
    assert (record.number, record.cause, record.reason) == (
        2,
        TriggerCause.INITIAL_SCHEDULE,
        TerminatedReason.SUCCEEDED,
    )
    assert [one.post for one in record.vertices] == [2, 2]
    assert job.commit().nothing_open


def test_if_the_record_of_the_start_has_ended_the_first_query_has_one_of_its_own() -> None:
    job = begun(held=2, upper=4).hold(4).applied()
    assert (job.parallelism, job.nothing_open) == ([4], True)
    assert job.ended() == [
        ("INITIAL_SCHEDULE", "SUCCEEDED", 1),
        ("NEW_RESOURCE_AVAILABLE", "SUCCEEDED", 2),
    ]
    starts_query(job, parallelism=4)
    record = job.records[2]
    assert (record.cause, record.reason, record.rung) == (
        TriggerCause.INITIAL_SCHEDULE,
        TerminatedReason.SUCCEEDED,
        Rung.IN_PLACE,
    )
    assert [(one.vertex_id, one.pre, one.post) for one in record.vertices] == [
        (one.id, None, 4) for one in job.state.graph.vertices
    ]
    assert job.commit().nothing_open and len(job.records) == 3


@pytest.mark.parametrize("upper", [2, 4])
def test_a_rescale_on_its_way_is_one_of_the_first_query(upper: int) -> None:
    """As far as its vertices may be as parallel as the program was to be."""
    job = begun(held=2, upper=4, bounds={**limited(upper), "later": {"upperBound": 4}}).hold(4)
    assert job.kind == "Rescaling"
    record = job.open
    starts_query(job)
    assert (job.kind, job.status, job.parallelism) == ("Rescaling", JobStatus.RUNNING, [2, 2, 2])
    assert job.open.number == record.number
    # Of less the driver knows itself.
    assert job.has_effect(SendPlan) is (upper == 4)
    assert [count for _, count in job.state.phase.target.parallelism] == [upper] * 3
    assert [after for _, after in posts(job)] == [upper] * 3
    job.applied()
    assert (job.kind, job.parallelism, job.nothing_open) == ("Executing", [upper] * 3, True)


def test_what_the_first_query_could_have_more_is_a_rescale() -> None:
    job = begun(held=4, upper=4)
    starts_query(job, parallelism=2)
    assert (job.kind, job.parallelism) == ("Rescaling", [2, 2, 2])
    assert [count for _, count in job.effect(SendPlan).plan.parallelism] == [4, 4, 4]
    assert posts(job) == [(2, 4)] * 3
    job.applied()
    assert job.parallelism == [4, 4, 4] and job.nothing_open
    assert [(cause, reason) for cause, reason, _ in job.ended()] == [
        ("INITIAL_SCHEDULE", "SUCCEEDED"),
        ("NEW_RESOURCE_AVAILABLE", "SUCCEEDED"),
    ]
    assert [one.post for one in job.records[0].vertices] == [2, 2, 2]


@pytest.mark.parametrize("script", ["in.py", "counts.py", "out.py"])
@pytest.mark.parametrize("rescaled", [False, True])
def test_the_vertex_of_the_program_may_have_the_id_of_one_of_the_query(script: str, rescaled: bool) -> None:
    document = {**limited(4), "in": {"upperBound": 3}, "counts": {"lowerBound": 2, "upperBound": 3}}
    job = begun(held=2, upper=4, script=script, bounds=document)
    if rescaled:
        job.hold(4).applied()
        job.do(SlotsChanged(slots(3), allowed=3)).applied()
    held = 3 if rescaled else 2
    starts_query(job, parallelism=2)
    assert declared(job) == {"in": (1, 3), "counts": (2, 3), "out": (1, 4)}
    if rescaled:
        job.applied()
    assert (names(job), job.parallelism) == (QUERY, [held] * 3)
    assert job.status is JobStatus.RUNNING


def test_bounds_of_the_program_that_wait_for_their_slots_end_with_the_first_query() -> None:
    job = begun(held=2, upper=2)
    job.put(1, 8, deadline=Deadline(job.now_ms + 60_000, OnTimeout.ROLLBACK))
    assert job.state.queued and job.open.cause is TriggerCause.UPDATE_REQUIREMENT
    starts_query(job)
    assert job.state.queued == () and declared(job)["in"] == (1, 2)
    assert job.commit().wait(120_000).nothing_open
    assert (job.kind, job.parallelism, timers(job)) == ("Executing", [2, 2, 2], [])
    assert declared(job)["in"] == (1, 2), "nothing is rolled back"


def test_a_rescale_before_the_first_query_is_not_on_trial() -> None:
    job = begun(held=2, upper=4).hold(3).applied().hold(4).applied()
    assert job.state.trial.watch is None and job.state.trial.unproven
    assert job.records[-1].message == "The program had not started a query in this attempt yet."
    fails(job, "Too many connections.")
    assert job.state.trial.taken_back is None and job.kind == "Restarting"
    begins(job.wait(1_000))
    assert job.parallelism == [4]
    assert starts_query(job, parallelism=4).state.trial.watch is None


@pytest.mark.parametrize("stopped", [True, False])
def test_a_failure_with_the_first_query_restarts_what_is_known_by_then(stopped: bool) -> None:
    job = begun().do(AttemptFailed(1, "boom", stopped=False))
    assert job.kind == "Restarting"
    starts_query(job)
    assert names(job) == QUERY, "it may have a checkpoint"
    job.do(AttemptFailed(1, "boom", stopped=True) if stopped else AttemptStopped(1)).wait(2_000)
    assert job.kind == "CreatingExecutionGraph"
    assert [count for _, count in job.state.phase.plan.parallelism] == [2, 2, 2]
    starts_query(begins(job)).commit()
    assert (job.kind, job.status, job.nothing_open) == ("Executing", JobStatus.RUNNING, True)


def test_what_the_job_asks_for_is_what_its_first_query_wants() -> None:
    job = begun(held=2, upper=4, bounds={**limited(4), "in": {"lowerBound": 2, "upperBound": 3}})
    assert (job.state.supply.minimal, job.state.supply.declared) == (1, 4)
    starts_query(job)
    asked = job.effect(DeclareResources)
    assert (asked.minimal, asked.desired) == (2, 4)


def test_the_record_of_the_start_says_what_slots_the_first_query_wants() -> None:
    job = begun(held=3, upper=6, bounds={**limited(4), "in": {"lowerBound": 2, "upperBound": 4}})
    (group,) = job.open.groups
    assert (group.desired, group.minimal, group.pre, group.post) == (6, 1, None, 3)
    starts_query(job, parallelism=3)
    (group,) = job.open.groups
    assert (group.desired, group.minimal, group.pre, group.post) == (4, 2, None, 3)


# -- a first query that needs fewer slots than the program had

NARROW = (COUNTING[0], replace(COUNTING[1], state_partitions=2), COUNTING[2])


def narrow(**options: object) -> Job:
    """Each vertex of the query runs at its upper bound, two, in the four slots that the program had."""
    job = begins(Job(program(), upper=12, options={**AT_ONCE, **options}).submit(4))
    return starts_query(job, NARROW, 2)


def test_slots_that_the_program_had_and_its_first_query_does_not_need_are_given_back_in_place() -> None:
    job = narrow()
    assert (job.kind, job.parallelism, job.effect(SendPlan).plan.slot_count) == ("Rescaling", [2, 2, 2], 2)
    job.commit().applied()
    assert (job.kind, job.parallelism) == ("Executing", [2, 2, 2])
    assert [one.rung for one in job.records][-1] is Rung.IN_PLACE
    job.wait(120_000)
    assert len(job.state.slots) == 2 and not any(isinstance(one, StopAttempt) for one in job.history)


def test_other_jobs_get_them_at_once_and_the_program_runs_on() -> None:
    job = narrow(**{COOLDOWN: "1 h", "slotwise.in-place.cooldown": "1 h"})
    job.do(SlotsChanged(job.state.slots, allowed=2, reason="Shares are evened out."))
    if job.kind == "Rescaling":
        job.commit().applied()
    assert (job.kind, job.state.attempt, job.parallelism) == ("Executing", 1, [2, 2, 2])
    assert not any(isinstance(one, StopAttempt) for one in job.history)
    plan = job.state.plan
    assert plan is not None and plan.slot_count == 2

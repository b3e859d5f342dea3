"""A program whose queries are known, before it starts one of them in another attempt."""

from __future__ import annotations

from app.model.status import JobStatus
from app.scheduler.adaptive import growth
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.effects import SendPlan, StopAttempt, StopMode
from app.scheduler.adaptive.events import AttemptFailed, AttemptStopped, StopRequested
from app.scheduler.adaptive.last_failure import last_failure
from app.scheduler.adaptive.state import Executing
from app.scheduler.explain import explain
from tests.parts import with_part
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.programs import begins, begun, starts_query
from tests.unit.scheduler.test_first_query import DAY_MS, fails, timers


def again(held: int = 2, upper: int = 2) -> Job:
    """A program whose query is known has begun in another attempt."""
    job = starts_query(begun(held, upper), parallelism=held).commit()
    return begins(fails(job).wait(1_000))


def test_a_program_with_known_queries_executes_from_its_beginning_on() -> None:
    job = again()
    assert (job.kind, job.status, job.parallelism) == ("Executing", JobStatus.CREATED, [2, 2, 2])
    said = "The program runs, and has not started a query in attempt 2 yet."
    assert said in explain(job.state, job.now_ms)[0]
    before = job.state
    job.wait(DAY_MS)
    assert job.state is before and timers(job) == []
    starts_query(job)
    assert (job.kind, job.status, job.parallelism) == ("Executing", JobStatus.RUNNING, [2, 2, 2])
    told = [one.fields["status"] for one in job.told if "status" in one.fields]
    assert told == ["CREATED", "RUNNING", "RESTARTING", "CREATED", "RUNNING"]
    assert job.commit().ended()[1:] == [("RECOVERABLE_FAILOVER", "SUCCEEDED", 2)]


def test_a_failure_before_the_known_queries_is_one_for_the_restart_strategy() -> None:
    """As a database that is away for two minutes, which the program asks first."""
    job = again()
    for attempt in range(3, 30):
        fails(job, f"OperationalError: no route to host, {attempt}")
        assert (job.kind, job.status) == ("Restarting", JobStatus.RESTARTING)
        begins(job.wait(1_000))
        assert (job.kind, job.state.attempt) == ("Executing", attempt)
    assert starts_query(job).commit().status is JobStatus.RUNNING


def test_a_stop_before_the_known_queries_drains_the_program() -> None:
    job = again().do(StopRequested("t"))
    assert (job.kind, job.effect(StopAttempt).mode) == ("StopWithSavepoint", StopMode.DRAIN)
    job.do(AttemptStopped(2, drained=True, location="/c"))
    assert job.status is JobStatus.FINISHED


def test_slots_and_bounds_before_the_known_queries_are_rescales_in_place() -> None:
    job = again(held=4, upper=6)
    job.hold(3)
    assert (job.kind, job.status) == ("Rescaling", JobStatus.CREATED)
    assert [count for _, count in job.effect(SendPlan).plan.parallelism] == [3, 3, 3]
    job.applied()
    job.put(1, 2)
    assert [count for _, count in job.effect(SendPlan).plan.parallelism] == [2, 2, 2]
    job.applied()
    assert (job.kind, job.status, job.parallelism) == ("Executing", JobStatus.CREATED, [2, 2, 2])


def test_a_failure_before_the_first_query_is_not_blamed_on_a_rescale() -> None:
    job = again(held=2, upper=4)
    job.hold(4).applied()
    assert job.state.trial.watch is not None
    assert "on trial" not in " ".join(explain(job.state, job.now_ms)[0])
    fails(job, "OperationalError: no route to host")
    assert (job.kind, job.state.trial.taken_back) == ("Restarting", None)
    starts_query(begins(job.wait(1_000)), parallelism=4)
    assert "on trial" in " ".join(explain(job.state, job.now_ms)[0])
    fails(job, "Too many connections.")
    assert job.state.trial.taken_back is not None


def test_a_session_that_the_cluster_does_not_let_begin_is_tried_for_ever_and_not_counted() -> None:
    job = again()
    before = job.state.recovery.strategy
    for attempt in range(3, 40):
        failed = AttemptFailed(
            job.state.attempt, "None of 2 executors has come.", stopped=True, by_cluster=True
        )
        assert job.do(failed).kind == "Restarting"
        begins(job.wait(10_000))
        assert (job.kind, job.state.attempt, job.state.recovery.strategy) == ("Executing", attempt, before)
    starts_query(job)
    job.do(AttemptFailed(job.state.attempt, "None has come.", stopped=True, by_cluster=True))
    assert job.state.recovery.strategy != before, "its queries ran"


def test_a_rescale_before_the_first_query_has_shown_nothing() -> None:
    job = fails(again(held=2, upper=4)).wait(1_000)
    begins(job)
    job.hold(4).applied()
    phase, watch = job.state.phase, job.state.trial.watch
    assert isinstance(phase, Executing) and not phase.first_batch and last_failure(job.state) is not None
    assert watch is not None and not watch.ran
    job.wait(DAY_MS)
    begins(fails(job, "KeyError: k").wait(1_000))
    assert job.state.trial.watch is not None, "no batch has come"
    starts_query(job, parallelism=4).commit()
    assert last_failure(job.state) is None


def test_a_redistribution_is_not_given_up_for_what_comes_before_it() -> None:
    job = starts_query(begun(held=12, upper=2)).commit()
    job.put(1, 20).stops()
    for _ in range(5):
        assert job.state.partitions.repartition is not None and job.state.partitions.repartition.failed == 0
        fails(begins(job), "OperationalError: no route to host").wait(1_000)
    starts_query(begins(job))
    fails(job, "out of memory").wait(1_000)
    assert job.state.partitions.repartition is not None and job.state.partitions.repartition.failed == 1


def test_an_attempt_of_a_driver_of_the_build_before_has_started_what_it_knew() -> None:
    job = starts_query(begun()).commit()
    fails(job).wait(1_000).starts()
    assert (job.kind, job.status) == ("Executing", JobStatus.RUNNING)
    stored = with_part(job.state, "driver", started=())
    assert status_of(stored) is JobStatus.CREATED
    assert growth.as_taken_up(stored) == job.state
    waiting = again().state
    assert growth.as_taken_up(waiting) is waiting


def test_the_watch_of_a_rescale_begins_with_the_first_query() -> None:
    job = again(held=2, upper=4)
    job.hold(4).applied()
    watch = job.state.trial.watch
    assert watch is not None
    job.wait(watch.until_ms - watch.since_ms + 1)
    starts_query(job, parallelism=4)
    again_watched = job.state.trial.watch
    assert again_watched is not None and again_watched.since_ms == job.now_ms
    assert again_watched.until_ms - again_watched.since_ms == watch.until_ms - watch.since_ms

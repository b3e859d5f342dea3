"""A start that fails since executors do not come, or cannot work, is tried again for as long as that takes."""

from __future__ import annotations

from app.model.protocol import Report, outcome_document
from app.scheduler.adaptive.effects import StartAttempt, StopAttempt
from app.scheduler.adaptive.events import AttemptFailed, StartScheduling
from app.scheduler.explain import explain
from app.worker.job.drivers import outcome_event
from tests.unit.scheduler.driving import Job

BLIND = "Executor 1 on worker-2 does not see /shared/jobs."


def start_fails(job: Job, error: str = BLIND, **fields: bool) -> Job:
    assert job.kind == "CreatingExecutionGraph"
    job.do(AttemptFailed(job.state.attempt, error, stopped=False, outside=True, by_cluster=True, **fields))
    assert job.has_effect(StopAttempt)
    return job.stops()


def test_it_does_not_count() -> None:
    options = {
        "jobmanager.adaptive-scheduler.retry-execution-graph-creation.restart-strategy.type": "fixed-delay",
        "jobmanager.adaptive-scheduler.retry-execution-graph-creation.restart-strategy.fixed-delay.attempts": 1,
    }
    job = Job(options=options).do(StartScheduling()).hold(2)
    for _ in range(20):
        start_fails(job)
        assert (job.kind, job.timer_in_ms("backoff")) == ("RetryingExecutionGraphCreation", 10_000)
        job.wait(10_000)
        assert job.effect(StartAttempt).plan.slot_count == 2
    assert job.state.recovery.creation.attempts == 0


def test_the_explanation_says_why_and_when_it_is_tried_again() -> None:
    job = start_fails(Job().do(StartScheduling()).hold(2))
    assert any(BLIND in one and "10 s" in one for one in explain(job.state, job.now_ms)[0])


def test_what_cannot_be_recovered_from_ends_the_job() -> None:
    job = start_fails(Job().do(StartScheduling()).hold(2), recoverable=False)
    assert str(job.status) == "FAILED"


def test_a_redistribution_that_fails_keeps_its_own_rules() -> None:
    job = start_fails(Job().do(StartScheduling()).hold(2), repartition=True)
    assert job.state.recovery.creation.attempts == 1


def test_only_the_driver_says_that_it_is_the_clusters_doing() -> None:
    for by_cluster in (True, False):
        said = Report(seq=1, at_ms=1, type="failed", error=BLIND, outside=True, by_cluster=by_cluster)
        event = outcome_event(1, Report(**outcome_document(said)))  # type: ignore[arg-type]
        assert isinstance(event, AttemptFailed)
        assert event.by_cluster is by_cluster
    killed = AttemptFailed(1, "The driver process 7 was killed by signal 9.", stopped=True, outside=True)
    job = Job().do(StartScheduling()).hold(2).do(killed)
    assert (job.kind, job.state.recovery.creation.attempts) == ("RetryingExecutionGraphCreation", 1)

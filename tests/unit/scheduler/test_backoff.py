"""The backoff before a restart or another start: when it begins, and that nothing begins it anew."""

from __future__ import annotations

import pytest

from app.scheduler.adaptive.events import AttemptFailed, AttemptFinished, AttemptStartFailed, StartScheduling
from app.scheduler.adaptive.stops import BACKOFF_TIMER
from tests.unit.scheduler.driving import Job

STRATEGY = "restart-strategy.exponential-delay"
CREATION = f"jobmanager.adaptive-scheduler.retry-execution-graph-creation.{STRATEGY}"
EXACT: dict[str, object] = {f"{STRATEGY}.jitter-factor": 0, f"{CREATION}.jitter-factor": 0}


def fail_start(job: Job) -> int:
    """The attempt does not start; after how long another one is made."""
    assert job.kind == "CreatingExecutionGraph"
    job.wait(1).do(AttemptStartFailed(job.state.attempt, "no"))
    delay_ms = job.timer_in_ms(BACKOFF_TIMER)
    job.wait(delay_ms)
    return delay_ms


def test_starts_that_failed_before_one_succeeded_do_not_count_for_those_that_fail_later() -> None:
    job = Job(options=EXACT).do(StartScheduling()).hold(2)
    assert [fail_start(job) for _ in range(3)] == [1_000, 1_500, 2_250]
    job.starts().commit().do(AttemptFailed(job.state.attempt, "boom", stopped=True)).wait(1_000)
    assert fail_start(job) == 1_000


@pytest.mark.parametrize("again", ["stopped", "failed"])
def test_an_attempt_that_is_told_dead_twice_does_not_begin_the_backoff_anew(again: str) -> None:
    job = Job(options=EXACT).run()
    job.do(AttemptFailed(1, "boom", stopped=False)).stops()
    assert job.timer_in_ms(BACKOFF_TIMER) == 1_000
    job.wait(600)
    if again == "stopped":
        job.stops()
    else:
        job.do(AttemptFailed(1, "another", stopped=True))
    assert job.timer_in_ms(BACKOFF_TIMER) == 400


def test_an_attempt_that_is_known_dead_does_not_finish_the_job_any_more() -> None:
    job = Job(options=EXACT).run()
    job.do(AttemptFailed(1, "boom", stopped=False)).stops().do(AttemptFinished(1))
    assert (job.kind, job.timer_in_ms(BACKOFF_TIMER)) == ("Restarting", 1_000)
    assert job.wait(1_000).kind == "CreatingExecutionGraph"

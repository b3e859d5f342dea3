"""The same error of the user's code is met a few times in a row only, whatever the restart strategy allows (ADR 22)."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.status import JobStatus
from app.scheduler.adaptive.events import AttemptFailed, BatchCompleted, QueryFailed
from app.scheduler.explain import explain
from app.store.codec import dump_state, load_state
from tests.unit.scheduler.driving import Job, two_sinks

BOOM = "Vertex sink failed at code.py:5: ZeroDivisionError: division by zero"
WHAT = "ZeroDivisionError at code.py:5"
NO_WAIT: dict[str, object] = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "0 s",
}


def running(options: dict[str, object] | None = None) -> Job:
    return Job(options={**NO_WAIT, **(options or {})}).run()


def raises(job: Job, batch_id: int, **more: Any) -> Job:
    """The attempt fails in ``batch_id``; the next one runs, if there is one."""
    fields: dict[str, Any] = {"user_error": WHAT, "query_id": "query", **more}
    job.do(AttemptFailed(job.state.attempt, BOOM, stopped=True, batch_id=batch_id, **fields))
    if job.kind == "CreatingExecutionGraph":
        job.starts()
    return job


def times(job: Job) -> list[int]:
    return [one.times for one in job.state.recovery.user_errors]


def test_the_third_time_in_a_row_ends_the_job_with_a_sentence() -> None:
    job = raises(raises(running(), 7), 7)
    assert job.kind == "Executing" and times(job) == [2]
    assert f"{WHAT} came 2 time(s) in a row" in " ".join(explain(job.state, job.now_ms)[0])
    raises(job, 7)
    assert job.status is JobStatus.FAILED
    cause = job.state.phase.cause  # type: ignore[union-attr]
    assert cause == (
        f"{BOOM}. The same error ({WHAT}) came 3 times in a row without the query getting further, and the same input "
        "raises it again (slotwise.failure.user-code-attempts is 3)."
    )
    assert job.ended()[-1][1] == "JOB_FAILED"


@pytest.mark.parametrize(("limit", "survives"), [(1, 0), (2, 1), (5, 4)])
def test_the_number_is_an_option(limit: int, survives: int) -> None:
    job = running({"slotwise.failure.user-code-attempts": str(limit)})
    for _ in range(survives):
        assert raises(job, 7).kind == "Executing"
    assert raises(job, 7).status is JobStatus.FAILED


def test_zero_is_no_limit() -> None:
    job = running({"slotwise.failure.user-code-attempts": "0"})
    for _ in range(20):
        assert raises(job, 7).kind == "Executing"


def test_the_restart_strategy_may_be_used_up_first() -> None:
    job = raises(running({"restart-strategy.fixed-delay.attempts": "1"}), 7)
    raises(job, 7)
    assert "Recovery is suppressed" in str(job.state.phase.cause)  # type: ignore[union-attr]


def test_a_batch_that_is_committed_at_last_ends_the_row() -> None:
    job = raises(raises(running(), 7), 7)
    job.do(BatchCompleted(job.state.attempt, "query", 6, job.state.plan_version))
    assert times(job) == [2], "batch 7 is still to come"
    job.do(BatchCompleted(job.state.attempt, "another", 7, job.state.plan_version))
    assert times(job) == [2]
    job.do(BatchCompleted(job.state.attempt, "query", 7, job.state.plan_version))
    assert times(job) == []
    assert raises(raises(job, 8), 8).kind == "Executing"


def test_a_later_batch_means_progress_also_if_nobody_has_heard_of_it() -> None:
    job = running()
    for batch_id in range(7, 30):
        assert raises(job, batch_id).kind == "Executing"
    assert times(job) == [1]


def test_an_error_that_comes_a_batch_later_each_time_is_slowed_down_and_counted() -> None:
    """No batch is in its way for good, so it goes on, at the delays of the restart strategy."""
    job = Job(options={"restart-strategy.exponential-delay.jitter-factor": "0"}).run()
    for batch_id, delay_ms in enumerate((1_000, 1_500, 2_250, 3_375, 5_062), start=7):
        raises(job, batch_id)
        assert job.kind == "Restarting" and job.timer_in_ms("backoff") == delay_ms
        job.wait(delay_ms)
        job.starts()
        job.wait(60_000)
        job.do(BatchCompleted(job.state.attempt, "query", batch_id, job.state.plan_version))
    told = (
        "5 failure(s) count for the restart strategy exponential-delay (backoff 1 s to 1 min, multiplier 1.5"
    )
    assert told in " ".join(explain(job.state, job.now_ms)[0])
    hour_ms = 3_600_000
    assert "count for the restart" not in " ".join(explain(job.state, job.now_ms + hour_ms)[0])
    job.wait(hour_ms)
    assert raises(job, 99).timer_in_ms("backoff") == 1_000, "a long run without a failure resets it"


@pytest.mark.parametrize("batch_id", [-1, 6])
def test_a_batch_that_is_unknown_or_an_earlier_one_means_none(batch_id: int) -> None:
    job = raises(raises(running(), 7), batch_id)
    assert times(job) == [2]
    assert raises(job, 7).status is JobStatus.FAILED


OUTSIDE: dict[str, Any] = {"query_id": "", "user_error": "SystemExit at job.py, line 12"}
"""A program that ends itself is outside of its queries: ``batch_id`` is then the number of committed batches."""


def test_any_batch_that_is_committed_ends_the_row_of_an_error_outside_of_the_queries() -> None:
    job = raises(running(), 1, **OUTSIDE)
    for batch_id in range(1, 14):
        job.do(BatchCompleted(job.state.attempt, "query", batch_id, job.state.plan_version))
    assert times(job) == []
    raises(raises(job, 14, **OUTSIDE), 14, **OUTSIDE)
    assert job.kind == "Executing" and times(job) == [2]
    assert raises(job, 14, **OUTSIDE).status is JobStatus.FAILED, "nothing was committed between these three"


def test_so_does_one_of_which_nobody_has_heard() -> None:
    job = running()
    for committed in (1, 14, 15, 40):
        assert raises(job, committed, **OUTSIDE).kind == "Executing"
        assert times(job) == [1]
    assert times(raises(job, 0, **OUTSIDE)) == [2], (
        "nothing was committed since, and no query had been started"
    )


def test_a_batch_says_nothing_of_what_another_query_fails_with() -> None:
    job = raises(raises(running(), 7), 20, **OUTSIDE)
    job.do(BatchCompleted(job.state.attempt, "another", 99, job.state.plan_version))
    assert [one.query_id for one in job.state.recovery.user_errors] == ["query"]


def test_another_error_begins_another_row() -> None:
    job = raises(raises(running(), 7), 7)
    raises(job, 7, user_error="KeyError at code.py:9")
    assert job.kind == "Executing" and times(job) == [1]


@pytest.mark.parametrize("more", [{"user_error": None}, {"outside": True}])
def test_what_is_not_the_codes_doing_never_counts(more: dict[str, Any]) -> None:
    job = raises(raises(running(), 7), 7)
    for _ in range(5):
        assert raises(job, 7, **more).kind == "Executing"
    assert times(job) == [2], "nor does it end the row"
    assert raises(job, 7).status is JobStatus.FAILED


def test_a_rescale_that_is_taken_back_for_it_counts_nothing() -> None:
    job = raises(running().put(1, 4).hold(4).applied(), 7)
    assert job.state.trial.taken_back is not None and times(job) == []


def test_an_error_that_was_there_before_a_rescale_goes_on_being_counted() -> None:
    job = raises(raises(running(), 7), 7)
    job.put(1, 4).hold(4).applied()
    raises(job, 7, plan_version=job.state.plan_version)
    assert job.state.trial.taken_back is None and job.status is JobStatus.FAILED


def test_queries_are_counted_apart_and_local_failovers_too() -> None:
    job = Job(two_sinks(), options=NO_WAIT).run()
    first, second = (vertex.id for vertex in job.graph.vertices if vertex.is_sink)

    def query_raises(sink: str, number: int, query_id: str) -> None:
        event = QueryFailed(
            job.state.attempt, sink, number, BOOM, user_error=WHAT, query_id=query_id, batch_id=3
        )
        job.do(event)

    query_raises(first, 1, "q1")
    query_raises(second, 1, "q2")
    assert job.kind == "Executing" and times(job) == [1, 1]
    query_raises(first, 2, "q1")
    assert job.kind == "Restarting" and sorted(times(job)) == [1, 2]
    job.stops().starts()
    query_raises(first, 1, "q1")
    assert job.kind == "Failing"


def test_it_survives_the_server() -> None:
    job = raises(running(), 7)
    assert load_state(dump_state(job.state), job.graph, job.state.options) == job.state

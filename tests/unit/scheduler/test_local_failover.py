"""Of several queries only the one that failed is restarted, and the whole job if that does not help (ADR 22)."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.status import JobStatus
from app.scheduler.adaptive.draft import InvalidTransition
from app.scheduler.adaptive.effects import RestartQuery, StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptStopped,
    CancelRequested,
    DriverContact,
    QueryFailed,
    QueryRecovered,
    StopRequested,
)
from app.scheduler.adaptive.local_failover import LOCAL_TIMER, event_of_first_call, event_of_takeover
from app.scheduler.explain import explain
from app.store.codec import dump_state, load_state
from app.worker.job.drivers import is_known_failure
from app.worker.job.orders import orders_for
from tests.unit.scheduler.driving import JOB, Job, chain, two_sinks

BOOM = "Vertex sink failed: ConnectionError: the table is locked"
FIXED: dict[str, object] = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "5 s",
}
TIMEOUT_MS = 60_000


def running(options: dict[str, object] | None = None, **more: Any) -> Job:
    return Job(two_sinks(), options={**FIXED, **(options or {})}, **more).run()


def sink(job: Job, position: int = 0) -> str:
    return [vertex.id for vertex in job.graph.vertices if vertex.is_sink][position]


def fails(job: Job, number: int = 1, position: int = 0, **more: Any) -> Job:
    return job.do(
        QueryFailed(job.state.attempt, sink(job, position), number, more.pop("error", BOOM), **more)
    )


def recovers(job: Job, number: int = 1, position: int = 0) -> Job:
    return job.do(QueryRecovered(job.state.attempt, sink(job, position), number))


def words(job: Job) -> str:
    return " ".join(explain(job.state, job.now_ms)[0])


def test_the_query_is_started_again_after_the_backoff_and_the_job_runs_on() -> None:
    job = fails(running())
    assert job.kind == "Executing" and job.status is JobStatus.RUNNING
    assert not job.effects and job.timer_in_ms(LOCAL_TIMER) == 5_000
    assert "started again in 5.0 s" in words(job) and "the table is locked" in words(job)
    assert orders_for(job.state, 1).restarts == {}
    job.wait(4_999)
    assert not job.has_effect(RestartQuery)
    job.wait(1)
    assert job.effect(RestartQuery) == RestartQuery(1, sink(job), 1)
    assert orders_for(job.state, 1).restarts == {sink(job): 1}
    assert "60 s to commit a batch" in words(job)
    recovers(job)
    assert not [timer for timer in job.state.timers if timer.name == LOCAL_TIMER]
    assert "restarted alone" not in words(job)
    job.wait(10 * TIMEOUT_MS)
    assert job.kind == "Executing" and job.state.attempt == 1
    assert job.state.recovery.num_restarts == 1


def test_the_history_has_it_as_local_and_there_is_no_rescale_record() -> None:
    job = running()
    records = job.state.timeline.records
    fails(job, vertex="sink", why="It is tried again because x names y.")
    (entry,) = job.state.recovery.failures[-1]
    assert (entry.local, entry.vertex, entry.why) == (True, "sink", "It is tried again because x names y.")
    assert job.state.timeline.records == records and job.nothing_open


def test_a_record_that_is_open_gets_a_sentence() -> None:
    job = running({"slotwise.rollback.watch-period": "0 ms"}, upper=2).put(1, 4).hold(4)
    assert job.kind == "Rescaling"
    fails(job)
    assert job.kind == "Rescaling" and f"restarted alone: {BOOM}" in (job.open.message or "")


def test_a_rescale_that_begins_or_ends_meanwhile_forgets_nothing() -> None:
    job = fails(running({"slotwise.rollback.watch-period": "0 ms"}, upper=2))
    job.put(1, 4).hold(4)
    assert job.kind == "Rescaling" and job.timer_in_ms(LOCAL_TIMER) == 5_000
    job.wait(5_000)
    assert job.has_effect(RestartQuery)
    job.applied()
    assert job.kind == "Executing" and job.timer_in_ms(LOCAL_TIMER) == TIMEOUT_MS
    assert recovers(job).parallelism == [4, 4, 4, 4]


def test_it_is_escalated_when_no_batch_is_committed_in_its_time() -> None:
    job = fails(running()).wait(5_000 + TIMEOUT_MS - 1)
    assert job.kind == "Executing"
    job.wait(1)
    assert job.kind == "Restarting" and job.effect(StopAttempt).mode is StopMode.KILL
    assert job.state.recovery.local == ()
    first, second = job.state.recovery.failures
    assert first[0].local and not second[0].local
    assert second[0].error.startswith(
        "The query of sink sink was restarted alone and has not committed a batch"
    )
    assert job.open.cause.value == "RECOVERABLE_FAILOVER"
    assert job.state.recovery.strategy.attempts == 2
    job.stops().wait(5_000)
    assert job.effect(StartAttempt).attempt == 2


def test_a_batch_of_another_query_is_no_recovery() -> None:
    job = fails(running()).wait(5_000)
    job.commit()
    recovers(job, position=1)
    recovers(job, number=7)
    assert job.wait(TIMEOUT_MS).kind == "Restarting"


def test_it_is_escalated_when_it_fails_again_meanwhile() -> None:
    job = fails(fails(running()).wait(5_000), number=2)
    assert job.kind == "Restarting"
    assert "failed again before it had committed a batch" in job.state.recovery.failures[-1][0].why


def test_one_that_has_recovered_may_fail_again() -> None:
    job = recovers(fails(running()).wait(5_000))
    fails(job, number=2).wait(5_000)
    assert orders_for(job.state, 1).restarts == {sink(job): 2}
    assert recovers(job, number=2).kind == "Executing"


def test_two_queries_are_restarted_side_by_side() -> None:
    job = fails(running())
    job.wait(2_000)
    fails(job, position=1)
    assert job.timer_in_ms(LOCAL_TIMER) == 3_000
    job.wait(5_000)
    assert orders_for(job.state, 1).restarts == {sink(job, 0): 1, sink(job, 1): 1}
    recovers(job)
    assert job.wait(TIMEOUT_MS).kind == "Restarting"


@pytest.mark.parametrize("number", [0, 1])
def test_the_same_failure_told_again_changes_nothing(number: int) -> None:
    job = recovers(fails(running()).wait(5_000))
    before = job.state
    fails(job, number=number)
    assert job.state is before


def test_a_job_with_one_query_restarts_as_a_whole() -> None:
    job = Job(chain(), options=FIXED).run()
    assert fails(job).kind == "Restarting"


def test_it_can_be_turned_off() -> None:
    assert fails(running({"slotwise.failure.local-timeout": "0"})).kind == "Restarting"


def test_what_is_not_recoverable_ends_the_job() -> None:
    job = fails(running(), recoverable=False, why="It is final because of NameError.")
    assert job.kind == "Failing"
    assert "not recoverable. It is final because of NameError." in words(job)
    job.stops()
    assert job.status is JobStatus.FAILED


def test_it_counts_in_the_restart_strategy() -> None:
    job = running()
    for number in (1, 2, 3):
        recovers(fails(job, number=number).wait(5_000), number=number)
    assert job.kind == "Executing"
    fails(job, number=4)
    assert job.kind == "Failing" and "Recovery is suppressed by fixed-delay" in words(job)


def test_without_the_slots_of_the_lower_bounds_the_whole_job_is_restarted() -> None:
    job = running(lower=2).hold(1)
    assert job.kind == "Executing"
    fails(job)
    assert job.kind == "Restarting"
    assert "the lower bounds need 2 slots and the job has 1" in job.state.recovery.failures[-1][0].why


def test_slots_that_are_lost_during_the_backoff_escalate_it() -> None:
    job = fails(running(lower=2)).hold(1)
    assert job.kind == "Executing"
    assert job.wait(5_000).kind == "Restarting"
    assert not job.has_effect(RestartQuery)


def test_a_rescale_on_trial_is_blamed_and_taken_back() -> None:
    job = running(upper=2).put(1, 4).hold(4).applied()
    assert job.kind == "Executing" and job.state.trial.watch is not None
    fails(job, plan_version=job.state.plan_version)
    assert job.kind == "Restarting" and job.state.trial.taken_back is not None


def test_a_rescale_on_trial_is_not_blamed_for_what_was_done_to_the_query() -> None:
    job = running(upper=2).put(1, 4).hold(4).applied()
    fails(job, plan_version=job.state.plan_version, outside=True)
    assert (job.kind, job.state.trial.taken_back) == ("Executing", None)
    assert job.wait(5_000).has_effect(RestartQuery)


def test_a_rescale_by_restart_takes_the_query_along() -> None:
    options = {
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
        "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 s",
        "jobmanager.adaptive-scheduler.rescale-trigger.max-delay": "0 s",
    }
    job = fails(Job(two_sinks(in_place=False), upper=2, options={**FIXED, **options}).run())
    job.put(1, 4).hold(4).wait(1)
    assert job.kind == "Restarting" and job.state.recovery.local == ()
    job.do(AttemptStopped(1, driver_alive=True)).starts()
    assert job.parallelism == [4, 4, 4, 4]


def test_a_stop_is_refused_until_it_runs_again_and_a_cancel_is_not() -> None:
    job = fails(running())
    with pytest.raises(InvalidTransition, match="stop the job once it runs again"):
        job.do(StopRequested("t1"))
    job.wait(5_000)
    recovers(job)
    assert job.do(StopRequested("t1")).kind == "StopWithSavepoint"
    assert fails(running()).do(CancelRequested()).kind == "Canceling"


def test_a_query_that_fails_while_draining_breaks_the_stop_off() -> None:
    job = fails(running().do(StopRequested("t1")))
    assert job.kind == "Restarting" and job.state.stop is not None
    assert job.state.stop.state == "COMPLETED" and job.state.stop.error == BOOM


def test_its_driver_dies_meanwhile() -> None:
    job = fails(running()).wait(5_000)
    job.do(AttemptFailed(1, "The driver process 7 was killed by signal 9.", stopped=True, outside=True))
    assert job.kind == "Restarting" and job.state.recovery.local == ()
    job.wait(5_000)
    assert job.starts().commit().kind == "Executing"
    late = QueryRecovered(1, sink(job), 1)
    before = job.state
    assert job.do(late).state is before


def test_the_death_of_a_driver_is_not_taken_for_what_failed_locally_before() -> None:
    job = fails(running())
    assert not is_known_failure(job.state, AttemptFailed(1, BOOM, stopped=True))


def test_one_with_long_batches_has_the_time_for_one() -> None:
    job = fails(running(), longest_batch_ms=45_000).wait(5_000)
    assert job.timer_in_ms(LOCAL_TIMER) == 90_000
    assert job.wait(89_999).kind == "Executing"
    job.wait(1)
    assert job.kind == "Restarting" and "within 90000 ms" in job.state.recovery.failures[-1][0].error
    assert fails(running(), longest_batch_ms=29_000).wait(5_000).timer_in_ms(LOCAL_TIMER) == TIMEOUT_MS


def test_its_time_begins_when_its_driver_has_called_whoever_has_taken_the_job_up() -> None:
    job = fails(running()).wait(5_000)
    told = event_of_takeover(job.state)
    assert told == DriverContact(1, heard=False)
    job.do(told)
    assert event_of_takeover(fails(running()).state) == told, "also of one that waits for its backoff"
    assert not [timer for timer in job.state.timers if timer.name == LOCAL_TIMER]
    assert "not heard its driver yet" in words(job)
    job.wait(100 * TIMEOUT_MS)
    assert job.kind == "Executing" and orders_for(job.state, 2).restarts == {sink(job): 1}
    heard = event_of_first_call(job.state)
    assert heard == DriverContact(1, heard=True)
    job.do(heard)
    assert event_of_first_call(job.state) is None and job.timer_in_ms(LOCAL_TIMER) == TIMEOUT_MS
    before = job.wait(1_000).state
    assert job.do(heard).state is before, "to call again gives it no more time"
    assert job.wait(TIMEOUT_MS - 1_000).kind == "Restarting"


def test_what_is_ordered_before_the_driver_has_called_has_all_its_time_then() -> None:
    job = fails(running()).do(DriverContact(1, heard=False))
    assert job.timer_in_ms(LOCAL_TIMER) == 5_000
    assert "started again in 5.0 s" in words(job)
    job.wait(5_000)
    assert job.has_effect(RestartQuery)
    job.wait(2 * TIMEOUT_MS).do(DriverContact(1, heard=True))
    assert job.timer_in_ms(LOCAL_TIMER) == TIMEOUT_MS
    assert event_of_takeover(recovers(job).state) is None, "nothing to wait for"


def test_it_survives_the_server() -> None:
    job = fails(running()).wait(5_000)
    state = load_state(dump_state(job.state), job.graph, job.state.options)
    assert state == job.state and orders_for(state, 2).restarts == {sink(job): 1}
    assert state.job_id == JOB

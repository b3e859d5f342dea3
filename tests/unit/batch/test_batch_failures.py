"""What a failure makes run again, and what is said of it."""

from __future__ import annotations

from app.api.render.execution import VertexExecution, vertex_executions
from app.model.batch import RegionStatus
from app.model.job_state.batch import REGION_TIMER
from app.model.protocol import Report
from app.model.public_event import PublicEventType
from app.model.status import JobStatus
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.effects import SendPlan
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStopped,
    RegionFailed,
    RegionFinished,
)
from app.scheduler.adaptive.last_failure import last_failure
from app.scheduler.batch.scheduling import DECISIONS_KEPT
from app.scheduler.explain import explain
from app.worker.job.orders import orders_for
from app.worker.job.public_events import step_events
from app.worker.under_way import is_under_way
from app.worker.views import JobView
from tests.unit.batch.driving import MB, T0_MS, running


def test_a_region_that_left_too_little_runs_again() -> None:
    job = running()
    order = job.orders["customers"]
    job.do(RegionFinished(1, order.region, order.run))
    assert job.state.recovery.failures[-1][0].error == "Region 0 left other results than its readers need."
    assert job.wait().orders["customers"].run == 2


def test_a_region_that_fails_for_ever_does_not_let_the_state_grow() -> None:
    job = running()
    for _ in range(20):
        job.fail("customers").wait()
    assert job.state.batch is not None
    assert len(job.state.batch.decisions) == DECISIONS_KEPT + 1
    assert job.orders["customers"].run == 21


def test_a_failed_region_runs_again_alone_after_the_backoff() -> None:
    job = running().finish("customers").finish("orders").fail("joined")
    assert job.orders == {} and job.state.recovery.num_restarts == 1 and job.kind == "Executing"
    assert job.state.recovery.failures[-1][0].error == "boom"
    assert [type(effect) for effect in job.effects] == [SendPlan], "the driver is told at once"
    job.wait()
    assert job.orders["joined"].run == 2
    job.finish("joined")
    assert list(job.orders) == ["total+store"]


def test_what_failed_and_when_it_runs_again_is_said() -> None:
    job = running().finish("customers").finish("orders")
    running_now, _ = explain(job.state, job.now_ms)
    assert any(one.startswith("joined runs at") for one in running_now)
    job.fail("joined")
    sentences, _ = explain(job.state, job.now_ms)
    assert "2 of 4 regions are finished; none is running." in sentences
    assert "joined will run again after a failure: boom. The next start is in 1.0 s." in sentences
    assert not any(one.startswith("joined runs at") for one in sentences), "that is not decided any more"
    assert "in 400 ms." in " ".join(explain(job.state, job.now_ms + 600)[0])
    job.wait()
    sentences, _ = explain(job.state, job.now_ms)
    assert "run again after" not in " ".join(sentences)
    assert "Now running again: joined for the 2. time. The last failure: boom" in sentences


def test_a_failure_is_not_got_over_until_no_region_has_to_run_again() -> None:
    job = running().finish("customers")
    view = JobView(job.state, status_of(job.state), T0_MS, None, None, epoch=1)
    assert is_under_way(view, job.now_ms) and last_failure(job.state) is None
    for _ in range(2):
        job.finish("orders").fail("joined", "orders")
        assert last_failure(job.state) is not None, "two regions wait"
        job.wait()
        assert last_failure(job.state) is not None, "one runs again"
    job.finish("orders").finish("joined")
    assert last_failure(job.state) is None


def test_a_batch_job_is_under_way_with_a_task_that_is_done_and_not_one_of_an_earlier_run() -> None:
    job = running()

    def under_way(run: int, done: int) -> bool:
        number = job.orders["customers"].region
        report = Report(1, 1, "region-progress", region=number, run=run, tasks_done=done, tasks_total=9)
        told = {number: report}
        view = JobView(job.state, status_of(job.state), T0_MS, None, None, epoch=1, region_progress=told)
        return is_under_way(view, job.now_ms)

    assert [under_way(1, 0), under_way(1, 1)] == [False, True]
    job.fail("customers").wait()
    assert [under_way(1, 1), under_way(2, 1)] == [False, False], "after a failure a task is not enough"


def test_a_vertex_that_is_to_run_again_has_no_parallelism_and_no_times() -> None:
    """Else its time would be counted on while it does not run."""
    job = running().finish("customers").finish("orders")

    def executions() -> dict[str, VertexExecution]:
        view = JobView(job.state, status_of(job.state), T0_MS, None, None, epoch=1)
        return {one.vertex.name: one for one in vertex_executions(view)}

    before = executions()
    assert (before["joined"].parallelism, before["joined"].start_ms) == (2, job.now_ms)
    assert before["orders"].written is not None
    job.fail("joined", "orders")
    after = executions()
    for name in ("joined", "orders"):
        one = after[name]
        assert (one.status, one.parallelism, one.tasks) == ("CREATED", -1, 0), name
        assert (one.start_ms, one.end_ms, one.duration_ms(job.now_ms)) == (-1, -1, -1)
        assert one.read is None and one.written is None
    assert after["customers"] == before["customers"]


def test_a_region_that_waits_to_run_again_does_not_hold_up_others() -> None:
    job = running().fail("customers").finish("orders")
    assert job.orders == {}
    job.wait()
    assert list(job.orders) == ["customers"] and job.orders["customers"].run == 2
    job.finish("customers")
    assert list(job.orders) == ["joined"]


def test_a_region_that_waits_to_run_again_is_told_as_a_restart_after_its_backoff() -> None:
    job = running()
    order = job.orders["customers"]
    failed = RegionFailed(1, order.region, order.run, "boom")
    job.do(failed)
    delay_ms = next(timer.at_ms for timer in job.state.timers if timer.name == REGION_TIMER) - job.now_ms
    assert delay_ms > 0
    told = [(one.type, one.fields) for one in step_events(job.told, failed, job.state, job.now_ms)]
    assert [kind for kind, _ in told] == [PublicEventType.FAILURE, PublicEventType.RESTART]
    assert told[1][1] == {"scope": "job", "query": None, "number": 1, "backoffInMillis": delay_ms}


def test_a_lost_result_makes_exactly_its_producer_run_again() -> None:
    job = running().finish("customers").finish("orders").fail("joined", "orders").wait()
    assert list(job.orders) == ["orders"] and job.orders["orders"].run == 2
    job.finish("orders")
    assert list(job.orders) == ["joined"]
    assert [one.run for one in job.state.batch.regions] == [1, 2, 2, 0]  # type: ignore[union-attr]


def test_a_failure_that_is_final_ends_the_job() -> None:
    job = running().fail("orders", recoverable=False)
    assert job.kind == "Failing" and orders_for(job.state, 1).stop == "kill"
    job.do(AttemptStopped(1))
    assert status_of(job.state) is JobStatus.FAILED


def test_a_new_driver_goes_on_from_the_finished_regions() -> None:
    job = running().finish("customers").do(AttemptFailed(1, "killed", stopped=True))
    assert job.kind == "Restarting"
    job.wait()
    assert job.kind == "CreatingExecutionGraph" and job.state.attempt == 2
    job.run()
    assert list(job.orders) == ["orders"] and job.orders["orders"].run == 2
    customers = job.state.batch.regions[0]  # type: ignore[union-attr]
    assert (customers.status, customers.run) == (RegionStatus.FINISHED, 1)
    # What the first driver had begun of this region may still be reported: it is another run.
    job.do(RegionFinished(2, 1, 1))
    assert list(job.orders) == ["orders"]


def test_a_driver_that_dies_after_the_last_region_costs_no_region() -> None:
    job = running().finish("customers").finish("orders").finish("joined").finish("total+store")
    job.do(AttemptFailed(1, "killed", stopped=True)).wait().run()
    assert job.orders == {} and orders_for(job.state, 2).stop == "drain"
    job.do(AttemptFinished(2))
    assert status_of(job.state) is JobStatus.FINISHED


def test_the_stack_of_a_failed_region_is_shortened() -> None:
    """The whole state is written with every transaction."""
    job = running()
    order = job.orders["orders"]
    job.do(RegionFailed(1, order.region, order.run, "boom " * 10_000, stack="at somewhere\n" * 100_000))
    (failure,) = job.state.recovery.failures[-1]
    assert failure.stack is not None
    assert len(failure.error) < 5_000 and len(failure.stack) < 50_000


def test_the_same_error_of_the_code_ends_the_job_at_the_third_time() -> None:
    job = running()

    def raises(region: str, what: str = "ValueError at code.py:3") -> None:
        order = job.orders[region]
        job.do(RegionFailed(1, order.region, order.run, "boom", user_error=what))
        if job.kind == "Executing":
            job.wait()

    raises("customers")
    raises("customers")
    raises("customers", "KeyError at code.py:9")
    raises("orders")
    raises("customers")
    raises("customers")
    assert job.kind == "Executing"
    job.finish("orders")
    assert [one.query_id for one in job.state.recovery.user_errors] == ["region 0"], (
        "a region that is done is forgotten"
    )
    raises("customers")
    assert job.kind == "Failing"
    assert "came 3 times in a row" in " ".join(explain(job.state, job.now_ms)[0])


def test_sizes_that_an_earlier_driver_found_count_where_the_next_one_does_not_find_any() -> None:
    job = running()
    job.do(AttemptFailed(1, "killed", stopped=True)).wait()
    assert job.kind == "CreatingExecutionGraph"
    job.run(orders=50 * MB)
    assert job.state.batch is not None
    found = {job.name(vertex): size for vertex, size in job.state.batch.source_bytes}
    assert found == {"customers": 3 * MB, "orders": 50 * MB}

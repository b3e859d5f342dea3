"""A failure that was there before a rescale is not blamed on it, and a job that never ran has no way back (ADR 20)."""

from __future__ import annotations

import pytest

from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptMisplaced,
    AttemptStartFailed,
    BatchCompleted,
    QueryFailed,
)
from app.store.codec import dump_state, load_state
from tests.unit.scheduler.driving import Job, chain, two_sinks
from tests.unit.scheduler.test_bounds_queue import ROLLBACK, undo, within
from tests.unit.scheduler.test_rollback import BOOM, NOW, back_to_work, fail, running_at_2, words

HOUR_MS = 3_600_000


def failing_from_the_start(**more: object) -> Job:
    """Runs at 2 and has committed nothing."""
    job = Job(upper=2, options=dict(more))
    job.start_up(held=2)
    return job


def assert_nobody_is_blamed(job: Job) -> None:
    assert job.state.trial.taken_back is None
    assert not any("aken back" in (one.message or "") for one in job.records)
    assert not any(one.rollback_of for one in job.records)
    assert "taken back" not in words(job)


def test_a_job_that_never_ran_does_not_run_as_before() -> None:
    job = fail(failing_from_the_start()).wait(2_000).starts()
    job.put(1, 4).hold(4)
    assert job.kind == "Rescaling"
    fail(job)
    assert job.kind == "Restarting" and job.state.recovery.strategy.attempts == 2
    job.wait(5_000).starts()
    assert job.parallelism == [4, 4, 4]
    assert_nobody_is_blamed(job)
    assert job.ended()[-2:] == [
        ("RECOVERABLE_FAILOVER", "SUCCEEDED", 2),
        ("UPDATE_REQUIREMENT", "JOB_FAILOVER_RESTARTING", 1),
    ]


def test_nor_does_one_whose_first_batch_never_came_for_another_reason() -> None:
    job = fail(failing_from_the_start(), outside=True, error="The driver was killed by signal 9.")
    job.put(1, 4).hold(4).wait(2_000).starts()
    assert job.parallelism == [4, 4, 4]
    fail(job)
    assert job.kind == "Restarting"
    assert_nobody_is_blamed(job)


def test_a_start_that_fails_as_the_job_has_is_not_the_fault_of_bounds_that_came_between() -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).run(held=2)
    fail(job).put(1, 4).hold(4).wait(2_000)
    assert job.kind == "CreatingExecutionGraph" and job.state.last_plan is not None
    fail(job)
    assert job.kind == "RetryingExecutionGraphCreation" and job.state.recovery.creation.attempts == 1
    assert_nobody_is_blamed(job)


def test_nor_is_a_start_that_fails_as_the_start_before() -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).run(held=2)
    fail(job, outside=True, error="The driver was killed by signal 9.").wait(2_000)
    fail(job)
    assert job.kind == "RetryingExecutionGraphCreation"
    job.put(1, 4).hold(4).wait(60_000)
    assert job.kind == "CreatingExecutionGraph"
    fail(job)
    assert_nobody_is_blamed(job)


def test_another_failure_than_before_is_the_rescales() -> None:
    job = fail(running_at_2(), error="Another error").put(1, 4).hold(4).wait(2_000).starts()
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]


@pytest.mark.parametrize(("older", "blamed"), [(True, True), (False, False)])
def test_a_first_batch_while_the_next_plan_is_on_its_way_counts_if_it_is_not_of_that_plan(
    older: bool, blamed: bool
) -> None:
    job = failing_from_the_start()
    version = job.state.plan_version
    job.put(1, 4).hold(4)
    assert job.kind == "Rescaling"
    job.do(BatchCompleted(job.state.attempt, "query", 7, version if older else version + 1))
    fail(job)
    assert (job.state.trial.taken_back is not None) is blamed


@pytest.mark.parametrize("idle", [False, True])
def test_a_first_batch_while_the_attempt_is_being_stopped_for_a_rescale_counts(idle: bool) -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).start_up(held=2).put(1, 4).hold(4)
    assert job.kind == "Restarting"
    (job.applied() if idle else job.commit()).stops(driver_alive=True).starts()
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]


def test_it_is_known_after_a_restart_of_the_server() -> None:
    job = fail(running_at_2()).wait(2_000).starts()
    job.state = load_state(dump_state(job.state), job.state.graph, job.state.options)
    fail(job.put(1, 4).hold(4))
    assert_nobody_is_blamed(job)


@pytest.mark.parametrize("again", [BOOM, f"{BOOM} (4)"])
def test_what_the_job_met_between_batches_before_is_not_the_rescales(again: str) -> None:
    first = again.replace("4", "2")
    job = back_to_work(fail(running_at_2(), error=first).wait(2_000))
    job.put(1, 4).hold(4).applied().wait(10_000)
    fail(job, error=again)
    assert job.kind == "Restarting" and job.state.trial.taken_back is None
    assert back_to_work(job.wait(5_000)).parallelism == [4, 4, 4]
    back_to_work(fail(job, error="Another error"))
    assert job.parallelism == [2, 2, 2], "the trial goes on: another failure is the rescale's"


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("no <Row object at 0x7f3a10>", "no <Row object at 0x7fbeef>"),
        ("[id = 3f0a41c2-9d0e-4b7a-8c11-aa02bb03cc04]", "[id = beefbeef-0a0b-0c0d-0e0f-fedcbafedcba]"),
        ("Broken: [Ljava.lang.Object;@1b2c3d4", "Broken: [Ljava.lang.Object;@beefbee"),
    ],
    ids=["address of Python", "UUID", "address of Java"],
)
def test_what_differs_each_time_makes_no_other_failure_of_it(first: str, again: str) -> None:
    job = back_to_work(fail(running_at_2(), error=first).wait(2_000))
    fail(job.put(1, 4).hold(4).applied().wait(10_000), error=again)
    assert job.kind == "Restarting" and job.state.trial.taken_back is None


@pytest.mark.parametrize("again", ["no column face", "no column bead-feed", "no facade@home"])
def test_words_of_hexadecimal_letters_are_words(again: str) -> None:
    job = back_to_work(fail(running_at_2(), error="no column dead").wait(2_000))
    fail(job.put(1, 4).hold(4).applied().wait(10_000), error=again)
    assert job.state.trial.taken_back is not None


def test_a_failure_of_long_ago_is_no_excuse() -> None:
    job = back_to_work(fail(running_at_2()).wait(2_000)).wait(HOUR_MS)
    assert back_to_work(fail(job.put(1, 4).hold(4))).parallelism == [2, 2, 2]


def test_nor_is_one_of_another_vertex() -> None:
    job = back_to_work(fail(running_at_2(), vertex="source").wait(2_000))
    assert back_to_work(fail(job.put(1, 4).hold(4), vertex="sink")).parallelism == [2, 2, 2]


def test_nor_is_one_that_a_rescale_was_taken_back_for() -> None:
    job = back_to_work(fail(running_at_2().put(1, 4).hold(4)))
    assert back_to_work(fail(job.put(1, 3).hold(3))).parallelism == [2, 2, 2]


def test_nor_is_one_at_a_plan_that_other_bounds_replaced_on_its_way() -> None:
    job = running_at_2().put(1, 4).hold(4)
    overtaken = job.state.plan_version
    job.put(1, 3)
    fail(job, plan_version=overtaken)
    assert job.kind == "Restarting", "nobody knows of the plan that is on its way"
    fail(job.wait(2_000).starts())
    assert back_to_work(job).parallelism == [2, 2, 2]


@pytest.mark.parametrize("ignored", [False, True], ids=["misplaced", "plan not taken"])
def test_nor_is_one_at_a_plan_that_was_sent_before_the_attempt_was_told_to_stop(ignored: bool) -> None:
    job = running_at_2().put(1, 4).hold(4)
    assert job.kind == "Rescaling"
    sent, apply_ms = job.state.plan_version, job.state.options.apply_timeout_ms
    if ignored:
        job.wait(apply_ms)
        for number in (1, 2):
            job.do(BatchCompleted(job.state.attempt, "query", number, sent - 1))
        job.wait(apply_ms)
    else:
        job.do(AttemptMisplaced(job.state.attempt, "The driver was started on another cluster."))
    assert job.kind == "Restarting"
    fail(job, plan_version=sent).starts()
    assert job.parallelism == [4, 4, 4]
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]


def test_a_failure_at_what_is_back_in_force_is_no_rescales() -> None:
    job = fail(running_at_2().put(1, 4).hold(4)).starts()
    assert job.parallelism == [2, 2, 2]
    fail(job).put(1, 3).hold(3).wait(2_000).starts()
    assert job.parallelism == [3, 3, 3]
    fail(job)
    assert job.kind == "Restarting" and job.state.trial.taken_back is None


def test_nor_is_one_of_an_attempt_that_was_started_for_bounds_which_were_withdrawn_meanwhile() -> None:
    job = fail(running_at_2().put(1, 4).hold(4))
    job.do(AttemptStartFailed(job.state.attempt, "no memory"))
    job.put(1, 3, deadline=within(job, 60, ROLLBACK)).wait(2_000)
    undo(job.put_each(source=(1, 3), agg=(1, 4), sink=(1, 4)))
    assert job.state.trial.taken_back is not None
    job.starts()
    assert job.parallelism == [3, 3, 3]
    fail(job, plan_version=job.state.plan.version)  # type: ignore[union-attr]
    back_to_work(job.wait(5_000))
    assert job.parallelism == [2, 2, 2]
    assert back_to_work(fail(job.put(1, 4).hold(4))).parallelism == [2, 2, 2]


def test_nor_is_one_at_a_plan_whose_slots_went_while_it_was_on_its_way() -> None:
    job = back_to_work(fail(running_at_2().put(1, 4).hold(4)))
    job.put(1, 9, deadline=within(job, 60, ROLLBACK)).hold(9)
    assert job.kind == "Rescaling" and job.state.trial.taken_back is None
    overtaken = job.state.plan_version
    job.hold(4)
    assert job.state.plan_version > overtaken and job.state.trial.taken_back is not None
    fail(job, plan_version=overtaken)
    back_to_work(job.wait(5_000))
    assert back_to_work(fail(job.put(1, 4).hold(4))).parallelism == [2, 2, 2]


def test_a_query_that_failed_alone_before_a_rescale_is_restarted_alone_after_it() -> None:
    job = Job(two_sinks(), upper=2).run(held=2)
    sink = next(vertex.id for vertex in job.graph.vertices if vertex.name == "sink-raw")

    def query_fails(number: int) -> None:
        version = job.state.plan_version
        job.do(QueryFailed(job.state.attempt, sink, number, BOOM, query_id="raw", plan_version=version))

    query_fails(1)
    job.wait(2_000).do(BatchCompleted(job.state.attempt, "raw", 1, job.state.plan_version))
    job.put(1, 4).hold(4).applied()
    query_fails(2)
    assert job.state.trial.taken_back is None


def test_a_process_that_was_killed_before_is_no_excuse() -> None:
    job = fail(running_at_2(), outside=True, error="The driver was killed by signal 9.")
    job.put(1, 4).hold(4).wait(2_000).starts()
    fail(job)
    assert job.state.trial.taken_back is not None


def test_a_late_report_of_the_first_attempt_changes_nothing() -> None:
    job = running_at_2()
    same = job.state
    assert job.do(AttemptFailed(0, BOOM, stopped=True)).state is same


DAMAGED = "SparkException: Encountered error while reading file file:/in/a.parquet."


@pytest.mark.parametrize("in_place", [True, False])
def test_damaged_files_are_not_a_rescales_doing(in_place: bool) -> None:
    job = Job(chain(in_place=in_place), upper=2, options=NOW).run(held=2).put(1, 4).hold(4)
    job.applied() if in_place else job.stops(driver_alive=True).starts().commit()
    fail(job.wait(17_000), error=DAMAGED, by_files=True)
    assert job.kind == "Restarting" and job.state.recovery.strategy.attempts == 1, (
        "the restart strategy is asked"
    )
    assert back_to_work(job.wait(5_000)).parallelism == [4, 4, 4]
    assert_nobody_is_blamed(job)
    assert back_to_work(fail(job, error="Another error")).parallelism == [2, 2, 2], "the trial goes on"


def test_nor_are_they_if_they_keep_an_attempt_from_starting() -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).run(held=2).put(1, 4).hold(4)
    fail(job.stops(driver_alive=True), error=DAMAGED, by_files=True)
    assert job.kind == "RetryingExecutionGraphCreation"
    assert_nobody_is_blamed(job)


def test_nor_of_one_query_of_several() -> None:
    job = Job(two_sinks(), upper=2).run(held=2).put(1, 4).hold(4).applied()
    sink = next(vertex.id for vertex in job.graph.vertices if vertex.name == "sink-raw")
    version = job.state.plan_version
    job.do(QueryFailed(job.state.attempt, sink, 1, DAMAGED, plan_version=version, by_files=True))
    assert job.kind == "Executing" and len(job.state.recovery.local) == 1, "it is restarted alone"
    assert_nobody_is_blamed(job)

"""A higher parallelism at which the job gets less done is taken back (ADR 20), and nothing else is taken for that."""

from __future__ import annotations

from typing import Any

from app.model.job_state.changes import Pace
from app.scheduler.adaptive.events import BatchCompleted, PlanApplied, SlotsChanged
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import STABILIZATION, Job, slots

GOOD = (Pace("query", 50_000, 5_000),)
"""10,000 rows per second."""


def raised(*, upper: int = 4, before: tuple[Pace, ...] = GOOD, options: dict[str, Any] | None = None) -> Job:
    """2 was raised to 4, which has just come into force."""
    job = Job(upper=2, options=options).run(held=2).put(1, upper).hold(upper)
    return job.do(PlanApplied(1, job.state.plan_version, before=before))


def batches(job: Job, count: int, rows: int | None, *, every_ms: int = 5_000, query: str = "query") -> Job:
    """``count`` batches of a second each; None: no more rows waited."""
    for _ in range(count):
        job.wait(every_ms)
        job.batch += 1
        pace = None if rows is None else Pace(query, rows, 1_000)
        job.do(BatchCompleted(job.state.attempt, query, job.batch, job.state.plan_version, pace=pace))
    return job


def test_a_collapse_is_taken_back_in_place_and_said() -> None:
    job = batches(raised(), 7, 3_000)
    assert job.kind == "Rescaling"
    job.applied()
    assert job.parallelism == [2, 2, 2]
    assert job.records[-1].rollback_of == job.records[-2].number
    sentences, _ = explain(job.state, job.now_ms)
    assert any("fell from 10,000 to 3,000 rows per second" in one for one in sentences)
    batches(job.wait(120_000), 20, 1_000)
    assert job.parallelism == [2, 2, 2] and job.nothing_open


def test_what_is_still_half_as_fast_stays() -> None:
    job = batches(raised(), 30, 5_100)
    assert (
        job.parallelism == [4, 4, 4] and job.state.trial.watch is None and job.state.trial.taken_back is None
    )


def test_a_source_that_has_less_to_give_is_no_collapse() -> None:
    job = batches(raised(), 30, None)
    assert job.parallelism == [4, 4, 4] and job.state.trial.taken_back is None


def test_the_first_batches_may_be_slow() -> None:
    job = batches(batches(raised(), 2, 10, every_ms=12_000), 10, 9_000)
    assert job.parallelism == [4, 4, 4] and job.state.trial.taken_back is None


def test_nothing_is_judged_in_the_first_half_of_the_watch() -> None:
    job = batches(raised(), 20, 100, every_ms=1_000)
    assert job.kind == "Executing" and job.parallelism == [4, 4, 4]
    assert batches(job, 10, 100, every_ms=1_000).kind == "Rescaling"


def test_a_slow_start_is_forgotten_when_it_is_over() -> None:
    job = batches(raised(), 20, 100, every_ms=1_000)
    assert batches(batches(job, 8, 9_000, every_ms=1_000), 30, 9_000, every_ms=1_000).parallelism == [4, 4, 4]


def test_without_a_measure_from_before_nothing_is_judged() -> None:
    assert batches(raised(before=()), 30, 10).parallelism == [4, 4, 4]


def test_less_parallelism_is_meant_to_do_less() -> None:
    job = Job(upper=4).run(held=4).put(1, 1)
    job.do(PlanApplied(1, job.state.plan_version, before=GOOD))
    batches(job, 30, 100)
    assert (job.kind, job.parallelism, job.state.trial.taken_back) == ("Executing", [1, 1, 1], None)


def test_a_fall_after_the_watch_is_not_the_rescales_fault() -> None:
    job = batches(batches(raised(), 20, 10_000), 20, 10)
    assert job.parallelism == [4, 4, 4]


def test_a_rescale_during_the_watch_is_weighed_against_what_was_before_the_first() -> None:
    job = batches(raised(), 3, 9_000).put(1, 6).hold(6)
    job.do(PlanApplied(1, job.state.plan_version, before=(Pace("query", 5_000, 5_000),)))
    assert batches(job, 8, 3_000).applied().parallelism == [2, 2, 2]


def test_every_query_counts() -> None:
    both = (*GOOD, Pace("other", 50_000, 5_000))
    job = raised(before=both)
    for _ in range(8):
        batches(batches(job, 1, 100, every_ms=2_500), 1, 19_000, every_ms=2_500, query="other")
    assert job.parallelism == [4, 4, 4], "one is slower, and the other is faster by as much"
    job = raised(before=both)
    for _ in range(8):
        batches(batches(job, 1, 100, every_ms=2_500), 1, 5_000, every_ms=2_500, query="other")
    assert job.state.trial.taken_back is not None


def test_it_can_be_turned_off_alone() -> None:
    assert batches(raised(options={"slotwise.rollback.min-throughput": "0"}), 30, 1).parallelism == [4, 4, 4]


def test_no_more_is_kept_than_is_needed() -> None:
    job = batches(raised(options={"slotwise.rollback.watch-period": "1 h"}), 200, 9_000)
    assert job.state.trial.watch is not None and len(job.state.trial.watch.after) == 7


def test_nothing_is_taken_back_for_its_pace_while_another_change_is_in_the_making() -> None:
    job = raised(options={STABILIZATION: "1 h"}).put(1, 6)
    assert job.open.cause.value == "UPDATE_REQUIREMENT", "it waits for two slots more"
    batches(job, 20, 100, every_ms=2_000)
    assert (job.kind, job.state.trial.taken_back) == ("Executing", None)
    assert job.open.cause.value == "UPDATE_REQUIREMENT"


def test_nothing_is_taken_back_for_its_pace_while_the_cluster_cannot_be_seen() -> None:
    """Executors that are lost are not replaced meanwhile, and that is why it is slow."""
    job = raised().do(SlotsChanged(slots(4), cluster_unreachable=True))
    batches(job, 20, 100, every_ms=2_000)
    assert (job.kind, job.parallelism, job.state.trial.taken_back) == ("Executing", [4, 4, 4], None)
    batches(job.hold(4), 7, 100, every_ms=2_000)
    assert job.state.trial.taken_back is not None


def test_the_pace_of_short_batches_is_that_of_the_time_in_which_they_ran() -> None:
    job = raised(before=(Pace("query", 1_000, 100),))
    for _ in range(12):
        job.wait(5_000)
        job.batch += 1
        short = Pace("query", 300, 100)
        job.do(BatchCompleted(job.state.attempt, "query", job.batch, job.state.plan_version, pace=short))
    assert job.state.trial.taken_back is not None
    assert "fell from 10,000 to 3,000 rows per second" in job.state.trial.taken_back.why

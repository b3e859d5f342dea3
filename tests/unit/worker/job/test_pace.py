"""What a rescale is weighed against: only batches after which more rows waited, and only enough of them."""

from __future__ import annotations

from dataclasses import replace

from app.model.job_state.changes import Pace
from app.model.protocol import Report
from app.worker.job.pace import PaceMeter, pace_of

BATCH = Report(
    1, 5_000, "batch", plan_version=1, query_id="q", started_ms=4_000, input_rows=2_000, backlog_rows=9
)


def meter(count: int, *, version: int = 1, rows: int = 2_000) -> PaceMeter:
    found = PaceMeter()
    for _ in range(count):
        found.note(replace(BATCH, plan_version=version, input_rows=rows))
    return found


def test_a_batch_with_more_to_do_has_a_pace() -> None:
    assert pace_of(BATCH) == Pace("q", 2_000, 1_000)


def test_a_batch_that_says_nothing_has_none() -> None:
    for silent in ({"backlog_rows": 0}, {"backlog_rows": None}, {"input_rows": 0}, {"reprocessed": True}):
        assert pace_of(replace(BATCH, **silent)) is None
    assert pace_of(replace(BATCH, started_ms=5_000)) is None


def test_the_pace_before_is_that_of_the_latest_batches() -> None:
    found = meter(2, rows=1)
    for _ in range(20):
        found.note(BATCH)
    assert found.before(2) == (Pace("q", 10_000, 5_000),)
    assert found.before(1) == ()


def test_too_few_batches_are_no_measure() -> None:
    assert meter(4).before(2) == ()
    assert meter(5).before(2) != ()


def test_each_query_has_to_be_measured() -> None:
    found = meter(9)
    found.note(replace(BATCH, query_id="other"))
    assert found.before(2) == ()


def test_old_plans_are_forgotten() -> None:
    found = PaceMeter()
    for version in range(1, 50):
        found.note(replace(BATCH, plan_version=version))
    assert len(found._batches) == 4

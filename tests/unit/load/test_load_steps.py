"""The coarse history of a job's load: what went in comes out, and its size does not grow."""

from __future__ import annotations

import sys

import pytest

from app.load.steps import COLUMNS_MAX, STEPS, LoadSteps

START_MS = 1_700_000_040_000


def test_a_batch_is_spread_over_the_steps_that_it_took() -> None:
    steps = LoadSteps()
    steps.note(START_MS + 2_500, START_MS + 12_500, rows=1_000, backlog_rows=40, busy_ms={"v": 5_000.0})
    stretch = steps.read(5_000, START_MS + 21_000)
    assert stretch.starts_ms == [START_MS + 5_000 * index for index in range(5)]
    assert stretch.rows_per_second == [50.0, 100.0, 50.0, 0.0, 0.0]
    assert stretch.backlog_rows == [None, None, 40.0, None, None]
    assert stretch.longest_batch_ms == [None, None, 10_000.0, None, None]
    assert stretch.batch_ms_per_second == [500.0, 1000.0, 500.0, 0.0, 0.0]
    assert stretch.busy_ms_per_second == {"v": [250.0, 500.0, 250.0, 0.0, 0.0]}


@pytest.mark.parametrize("step_ms", STEPS)
def test_hours_of_batches_keep_their_rate_and_no_more_steps_than_the_limit(step_ms: int) -> None:
    steps = LoadSteps()
    for second in range(0, 8 * 3_600, 2):
        start_ms = START_MS + 1_000 * second
        steps.note(start_ms, start_ms + 1_500, rows=20, backlog_rows=second, busy_ms={"v": 300.0})
    now_ms = START_MS + 8 * 3_600_000
    stretch = steps.read(step_ms, now_ms)
    assert len(stretch.starts_ms) == STEPS[step_ms]
    assert stretch.starts_ms[-1] <= now_ms < stretch.starts_ms[-1] + step_ms
    # Two seconds do not fit evenly into five.
    assert stretch.rows_per_second[:-1] == pytest.approx([10.0] * (STEPS[step_ms] - 1), rel=0.25)
    assert sum(stretch.rows_per_second[:-1]) / (STEPS[step_ms] - 1) == pytest.approx(10.0, rel=0.01)
    backlogs = [value for value in stretch.backlog_rows if value is not None]
    assert backlogs == sorted(backlogs) and backlogs[-1] == 8 * 3_600 - 2


def test_a_pause_longer_than_all_that_is_kept_leaves_nothing_of_before() -> None:
    steps = LoadSteps()
    steps.note(START_MS, START_MS + 1_000, rows=10, backlog_rows=1, busy_ms={})
    stretch = steps.read(5_000, START_MS + 3_600_000)
    assert len(stretch.starts_ms) == STEPS[5_000]
    assert set(stretch.rows_per_second) == {0.0} and set(stretch.backlog_rows) == {None}


def test_a_batch_of_before_all_that_is_kept_changes_nothing() -> None:
    steps = LoadSteps()
    steps.note(START_MS, START_MS + 1_000, rows=10, backlog_rows=None, busy_ms={})
    before = steps.read(5_000, START_MS + 2_000)
    steps.note(START_MS - 2_000_000, START_MS - 1_999_000, rows=99, backlog_rows=9, busy_ms={"v": 1.0})
    after = steps.read(5_000, START_MS + 2_000)
    assert (after.starts_ms, after.rows_per_second) == (before.starts_ms, before.rows_per_second)


def test_before_the_first_batch_there_is_nothing() -> None:
    assert LoadSteps().read(5_000, START_MS).starts_ms == []


def test_its_bytes_are_those_of_the_page() -> None:
    """docs/metrics.md: 3,840 bytes for each column, and so many columns."""
    steps = LoadSteps()
    busy = {f"v{number}": 1.0 for number in range(2 * COLUMNS_MAX)}
    for second in range(10_000):
        at_ms = START_MS + 1_000 * second
        steps.note(at_ms, at_ms + 900, rows=1, backlog_rows=1, busy_ms=busy if second % 1_000 == 0 else {})
    columns = [column for ring in steps._rings.values() for column in ring.columns.values()]
    assert len(columns) == len(STEPS) * COLUMNS_MAX
    assert sum(map(sys.getsizeof, columns)) < COLUMNS_MAX * 3_840 + len(columns) * 100
    assert set(steps.read(5_000, START_MS).busy_ms_per_second) == {
        f"v{number}" for number in range(COLUMNS_MAX - 4)
    }

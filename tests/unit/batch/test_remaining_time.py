"""How far a run is and how long it may still take, from its tasks."""

from __future__ import annotations

import pytest

from app.scheduler.batch.remaining_time import TaskCount, percent, rest_ms


@pytest.mark.parametrize(
    ("done", "known", "expected"),
    [
        (0, 0, 0),
        (0, 40, 0),
        (12, 40, 30),
        (1, 3, 33),
        (2, 3, 66),
        (999, 1000, 99),
        (40, 40, 99),
        (50, 40, 99),
    ],
)
def test_percent_is_whole_and_below_100_until_the_run_has_ended(done: int, known: int, expected: int) -> None:
    assert percent(TaskCount(done, known)) == expected


@pytest.mark.parametrize(
    ("done", "known", "elapsed_ms", "expected"),
    [
        (12, 40, 3471, 8099),
        (1, 2, 1000, 1000),
        (99, 100, 99_000, 1000),
        (1, 100, 0, 0),
        # A clock that was set back.
        (1, 2, -5, 0),
    ],
)
def test_the_rest_takes_as_long_as_what_is_done_did(
    done: int, known: int, elapsed_ms: int, expected: int
) -> None:
    assert rest_ms(TaskCount(done, known), elapsed_ms) == expected


@pytest.mark.parametrize(("done", "known"), [(0, 0), (0, 40), (40, 40), (41, 40)])
def test_nothing_is_estimated_where_nothing_tells(done: int, known: int) -> None:
    assert rest_ms(TaskCount(done, known), 10_000) is None

"""What tasks cost by themselves, from busy times at different loads."""

from __future__ import annotations

import pytest

from app.autoscaler.decide import decide
from app.autoscaler.policy import Policy
from app.autoscaler.seen import KEPT_MS, Memory, Point, learned, own_ms
from tests.unit.autoscaler.jobs import NOW_MS, snapshot, vertex


def line(*rows: float, own: float = 300.0, row_ms: float = 10.0) -> tuple[Point, ...]:
    profile: tuple[Point, ...] = ()
    for each in rows:
        profile = learned(profile, Point(each, own + row_ms * each, NOW_MS))
    return profile


def test_it_is_the_height_of_the_line_at_no_rows() -> None:
    assert own_ms(line(5, 10, 20, 40), 500, 500) == pytest.approx(300)
    # It cannot be more than what was measured now.
    assert own_ms(line(5, 10, 20, 40), 200, 500) == 200


def test_without_pauses_there_are_fewer_batches_the_more_rows_there_are() -> None:
    """Tasks of 300 ms in batches of 600 are busy for 500 ms at no rows. With rows for 400 ms of each second there is
    time for one batch only: 300 + 400."""
    assert own_ms(line(5, 10, 20, 40, own=500.0, row_ms=5.0), 700, 1000) == pytest.approx(300)


@pytest.mark.parametrize(
    "profile",
    [
        (),
        line(5, 40),
        line(20, 21, 23, 26, 29),
        line(5, 10, 20, 40, own=500, row_ms=-5),
        line(5, 10, 40, own=0),
    ],
    ids=["nothing", "two loads", "about one load", "a line that falls", "a line through nothing"],
)
def test_without_loads_that_differ_nothing_is_known(profile: tuple[Point, ...]) -> None:
    assert own_ms(profile, 500, 500) == pytest.approx(0, abs=1e-9)


def test_of_one_load_the_latest_point_counts_and_old_ones_are_forgotten() -> None:
    first, second = Point(10.0, 400.0, 0), Point(10.1, 500.0, 1_000)
    assert learned((first,), second) == (second,)
    assert learned((second,), Point(20.0, 500.0, KEPT_MS + 1_001)) == (Point(20.0, 500.0, KEPT_MS + 1_001),)


def test_what_says_nothing_is_not_learned() -> None:
    for point in (Point(0.0, 400.0, 0), Point(10.0, 0.0, 0), Point(500.0, 950.0, 0)):
        assert learned((), point) == ()


def test_many_loads_are_few_points() -> None:
    assert len(line(*(1 + each / 10 for each in range(1000)))) < 30


def test_tasks_that_cost_by_themselves_do_not_keep_their_number() -> None:
    """Eight tasks are busy for half of the time, and nearly all of that without rows: two can do what the rows need."""
    vertices = vertex(parallelism=8, busy_ms=500.0)
    known = line(5, 10, 20, 40, own=375.0)
    assert decide(snapshot(vertices), Policy()).memory.recommended[-1].tasks == {"slow": 6}
    (found,) = decide(snapshot(vertices, memory=Memory(profile=known)), Policy()).memory.recommended
    assert found.tasks == {"slow": 2}

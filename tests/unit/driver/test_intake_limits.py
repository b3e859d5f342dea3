"""How much a source may give to the next batch, by what the ones before took."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.driver.intake_limits import Aim, SourceLimit, Taken

TARGET_MS = 10_000
AIM = Aim(TARGET_MS)


def after(most: int | None, count: int, took_ms: float, **of: object) -> int | None:
    limit = SourceLimit(most)
    limit.note(Taken("rows", count, **of), took_ms, AIM)  # type: ignore[arg-type]
    return limit.most


@pytest.mark.parametrize(
    ("count", "limit", "took_ms", "expected"),
    [
        # A heap: what can be worked off in the target.
        (5_000, None, 50_000, 1_000),
        # All is well.
        (1_000, None, 9_000, None),
        (1_000, 5_000, 2_000, 5_000),
        # More was left behind than the limit let through, and it took no time.
        (1_000, 1_000, 1_000, 4_000),
        (950, 1_000, 1_000, 3_800),
        # Slower than it was, or faster.
        (1_000, 1_000, 20_000, 500),
        (1_000, 1_000, 8_000, 1_250),
        # Close enough.
        (1_000, 1_000, 10_500, 1_000),
        (1_000, 1_000, 9_500, 1_000),
        # Never nothing.
        (1, None, 600_000, 1),
        (1, 1, 600_000, 1),
        # Of a sink that reads twice Spark counts twice.
        (2_000, 1_000, 10_000, 1_000),
        # The batch had nothing of this source.
        (0, None, 50_000, None),
        (0, 300, 50_000, 300),
    ],
)
def test_the_next_limit_is_what_fills_the_target(
    count: int, limit: int | None, took_ms: int, expected: int | None
) -> None:
    assert after(limit, count, took_ms) == expected


def test_never_beyond_what_the_program_allows_or_below_what_it_waits_for() -> None:
    assert after(None, 100, 12_000, own=100) == 84
    assert after(50, 50, 1_000, own=100) is None
    assert after(None, 1_000, 50_000, least=800) == 800


def test_a_source_with_few_of_the_rows_is_not_cut_and_may_grow() -> None:
    assert after(None, 10, 50_000, share=0.05) is None
    assert after(10, 10, 50_000, share=0.05) == 40
    assert after(None, 10, 50_000, share=0.2) == 2


def test_a_source_that_does_not_tell_is_taken_to_have_given_all_that_it_may() -> None:
    """40 files of 2.5 s each come for each batch, and there may be 1000."""
    limit, seen = SourceLimit(), []
    for _ in range(5):
        took_ms = min(limit.most or 1_000, 40) * 2_500
        limit.note(Taken("files", None, own=1_000), took_ms, AIM)
        seen.append(limit.most)
    assert seen[-1] == 4


def driven(
    time_of: Callable[[int], float],
    arrival: float,
    batches: int,
    *,
    first: int,
    aim: Aim = AIM,
    unit: str = "rows",
) -> tuple[list[int], float]:
    """The sizes of batches of a query that takes ``time_of`` so many ms for so many rows, of which ``arrival`` come in
    a second; and how many wait in the end."""
    limit, waiting, sizes = SourceLimit(), float(first), []
    for _ in range(batches):
        count = int(min(waiting, limit.most or waiting))
        took_ms = time_of(count)
        waiting += arrival * took_ms / 1000 - count
        limit.note(Taken(unit, count), took_ms, aim)
        sizes.append(count)
    return sizes, waiting


@pytest.mark.parametrize(
    ("own_ms", "row_ms", "arrival", "first"),
    [
        (12_000, 0.01, 1_000, 12_000),
        (7_000, 0.01, 1_000, 1),
        (9_000, 0.5, 1_000, 18_000),
        (8_000, 0.5, 1_000, 16_000),
        (300, 2.0, 450, 50_000),
        (30_000, 0.1, 5_000, 1_000_000),
        (10, 5.0, 150, 100_000),
    ],
)
def test_a_query_that_keeps_up_without_limits_does_so_with_them(
    own_ms: float, row_ms: float, arrival: float, first: int
) -> None:
    """However much a batch takes by itself: what a second of batches does is at most a quarter less."""
    sizes, waiting = driven(lambda count: own_ms + row_ms * count, arrival, 300, first=first)
    last = sizes[-20:]
    done = sum(last) / sum(own_ms + row_ms * each for each in last) * 1000
    assert done > 0.99 * min(arrival, 0.75 * 1000 / row_ms)
    assert waiting < max(first, 5 * arrival * (4 * own_ms + 10_000) / 1000)


def test_batches_of_a_backlog_are_near_the_target_from_the_second_on() -> None:
    sizes, _ = driven(lambda count: 300 + 2.0 * count, 2_200, 40, first=20_000)
    assert max(300 + 2.0 * each for each in sizes[1:]) < 1.2 * TARGET_MS


@pytest.mark.parametrize(("file_ms", "tasks"), [(30_000, 8), (6_000, 4), (12_000, 8), (7_000, 8)])
def test_no_task_is_without_a_file_that_cannot_be_split(file_ms: int, tasks: int) -> None:
    def time_of(count: int) -> float:
        return 200 + file_ms * -(-count // tasks)

    sizes, _ = driven(time_of, 10, 50, first=500, aim=Aim(TARGET_MS, tasks=tasks), unit="files")
    assert all(each % tasks == 0 and each >= tasks for each in sizes[1:])
    assert sum(sizes) / sum(map(time_of, sizes)) > 0.9 * tasks / (file_ms + 200)


def test_with_more_tasks_the_limit_follows() -> None:
    limit = SourceLimit(2)
    limit.note(Taken("files", 2), 12_000, Aim(TARGET_MS, tasks=8))
    assert limit.most == 8


def test_a_batch_that_took_long_by_chance_costs_little() -> None:
    """A pause of 30 s in a query whose batches take 1 s."""
    limit = SourceLimit()
    limit.note(Taken("rows", 500), 31_000, AIM)
    assert limit.most == 162
    for _ in range(4):
        count = min(5_000, limit.most)
        limit.note(Taken("rows", count), 500 + count, AIM)
    assert limit.most > 4_000

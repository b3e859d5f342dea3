"""FLIP-187's formula: bytes over bytes per task, broadcast bytes capped, powers of two within the bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.scheduler.batch.flip187 import formula, nearest_power_of_two, power_of_two_from, power_of_two_to

MB = 1024 * 1024


def parallelism(
    bytes_: int, broadcast: int = 0, *, volume: int = MB, lowest: int = 1, highest: int = 128
) -> int:
    return formula(bytes_, broadcast, volume_bytes=volume).within(lowest, highest)


@pytest.mark.parametrize(
    ("bytes_", "broadcast", "expected"),
    [
        (0, 0, 1),
        (1, 0, 1),
        (MB, 0, 1),
        (MB + 1, 0, 2),
        (8 * MB, 0, 8),
        # 5 is nearer to 4, 7 to 8, and 6 is between: the larger one.
        (5 * MB, 0, 4),
        (6 * MB, 0, 8),
        (7 * MB, 0, 8),
        # Each task reads the broadcast bytes too: half of its volume is left for the others.
        (4 * MB, MB // 2, 8),
        (3 * MB, MB // 4, 4),
        # More than half of the volume does not count.
        (4 * MB, 100 * MB, 8),
        (10_000 * MB, 0, 128),
    ],
)
def test_the_formula(bytes_: int, broadcast: int, expected: int) -> None:
    assert parallelism(bytes_, broadcast) == expected


def test_only_broadcast_inputs_need_one_task() -> None:
    assert parallelism(0, 100 * MB) == 1
    assert parallelism(0, 100 * MB, lowest=3) == 4


@pytest.mark.parametrize(
    ("lowest", "highest", "low", "high"),
    [(1, 1, 1, 1), (3, 10, 4, 8), (4, 8, 4, 8), (5, 7, 5, 7), (6, 6, 6, 6)],
)
def test_bounds_become_powers_of_two_where_one_lies_between_them(
    lowest: int, highest: int, low: int, high: int
) -> None:
    assert parallelism(0, lowest=lowest, highest=highest) == low
    assert parallelism(1_000 * MB, lowest=lowest, highest=highest) == high


@given(
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.integers(1, 1 << 30),
    st.integers(1, 500),
    st.integers(0, 500),
)
def test_the_bounds_always_hold(bytes_: int, broadcast: int, volume: int, lowest: int, more: int) -> None:
    highest = lowest + more
    found = formula(bytes_, broadcast, volume_bytes=volume)
    within = found.within(lowest, highest)
    assert lowest <= within <= highest
    if power_of_two_from(lowest) <= highest:
        assert within.bit_count() == 1
    assert found.counted_broadcast_bytes <= volume / 2


@given(st.integers(1, 1 << 20))
def test_powers_of_two(number: int) -> None:
    below, above = power_of_two_to(number), power_of_two_from(number)
    assert below <= number <= above < 2 * number
    assert below.bit_count() == above.bit_count() == 1
    assert abs(nearest_power_of_two(number) - number) == min(number - below, above - number)

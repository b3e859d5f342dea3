"""Which subpartitions a task reads: by count and by bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.batch import Skew
from app.scheduler.batch.ranges import by_count, by_remainder, even_ranges, skewed


@pytest.mark.parametrize(
    ("subpartitions", "tasks", "expected"),
    [
        (6, 4, [(0,), (1, 2), (3,), (4, 5)]),
        (3, 2, [(0,), (1, 2)]),
        (8, 3, [(0, 1), (2, 3, 4), (5, 6, 7)]),
        (5, 1, [(0, 1, 2, 3, 4)]),
    ],
)
def test_i5_ranges_by_count(subpartitions: int, tasks: int, expected: list[tuple[int, ...]]) -> None:
    assert list(by_count(subpartitions, tasks)) == expected


@pytest.mark.parametrize(("subpartitions", "tasks"), [(3, 4), (3, 0)])
def test_i5_more_tasks_than_subpartitions_are_refused(subpartitions: int, tasks: int) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        by_count(subpartitions, tasks)


def test_ranges_by_remainder_are_buckets_of_fewer_buckets() -> None:
    assert by_remainder(8, 4) == ((0, 4), (1, 5), (2, 6), (3, 7))
    with pytest.raises(ValueError, match="do not divide"):
        by_remainder(8, 3)


def indices(sizes: list[int], volume: int, lowest: int, highest: int) -> list[list[int]] | None:
    groups = even_ranges(sizes, volume, lowest, highest)
    return None if groups is None else [list(group) for group in groups]


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([1, 2, 3, 4, 5], 6, [[0, 1, 2], [3], [4]]),
        ([10, 1, 1, 1, 10], 10, [[0], [1, 2, 3], [4]]),
        ([0, 0, 0, 0], 5, [[0, 1, 2, 3]]),
        ([7, 7, 7], 5, [[0], [1], [2]]),
    ],
)
def test_i3_vectors(sizes: list[int], limit: int, expected: list[list[int]]) -> None:
    assert indices(sizes, limit, 1, 100) == expected


def test_i3_too_few_ranges_become_the_wanted_number_and_those_as_even_as_can_be() -> None:
    assert indices([4, 4, 4, 4, 4, 4], 100, 2, 6) == [[0, 1, 2], [3, 4, 5]]
    assert indices([1, 1, 8, 1, 1], 100, 3, 5) == [[0, 1], [2], [3, 4]]


def test_i3_too_many_ranges_become_fewer() -> None:
    assert indices([5, 5, 5, 5], 5, 1, 2) == [[0, 1], [2, 3]]


def test_i3_zeros_are_spread_by_count_when_bytes_cannot_tell() -> None:
    assert indices([0, 0, 0, 0], 5, 2, 4) == [[0], [1], [2], [3]]
    assert indices([0, 0, 0, 0], 5, 2, 3) == [[0], [1], [2, 3]]


def test_i3_fewer_slices_than_tasks_have_no_ranges() -> None:
    assert indices([3, 3], 5, 3, 4) is None


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.integers(1, 80),
    st.integers(1, 12),
    st.integers(0, 12),
)
def test_i3_every_subpartition_is_read_once_in_order_by_a_legal_number_of_tasks(
    sizes: list[int], volume: int, lowest: int, more: int
) -> None:
    found = indices(sizes, volume, lowest, lowest + more)
    if found is None:
        assert len(sizes) < lowest
        return
    assert [index for group in found for index in group] == list(range(len(sizes)))
    assert lowest <= len(found) <= lowest + more
    assert all(found)


@pytest.mark.parametrize(
    ("sizes", "factor", "threshold", "expected"),
    [
        # Above the factor times the median, and above the threshold: at it is not above it.
        ([40, 400, 40], 4.0, 100, (1,)),
        ([40, 160, 40], 4.0, 100, ()),
        ([40, 161, 40], 4.0, 100, (1,)),
        ([40, 400, 40], 4.0, 400, ()),
        # The median counts as 1 at least.
        ([0, 0, 0, 5, 4], 4.0, 0, (3,)),
        ([7], 4.0, 0, ()),
    ],
)
def test_i3_skewed_subpartitions(
    sizes: list[int], factor: float, threshold: int, expected: tuple[int, ...]
) -> None:
    assert skewed(sizes, Skew(factor=factor, threshold_bytes=threshold)) == expected

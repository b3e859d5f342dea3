"""Which task has which state partitions, and where it runs."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from app.driver.state_places import Share, shares


def owners_of(made: tuple[Share, ...]) -> dict[int, int]:
    return {one: share.executor for share in made for one in share.partitions if share.executor is not None}


def settled(count: int, width: int, executors: list[int], owners: dict[int, int]) -> dict[int, int]:
    """Who has which after some batches."""
    for _ in range(4):
        owners = owners_of(shares(count, width, executors, owners))
    return owners


def moves(before: dict[int, int], after: dict[int, int]) -> int:
    return sum(1 for one, owner in before.items() if after.get(one) != owner)


def test_what_nobody_has_is_divided_in_order() -> None:
    assert shares(5, 2, [7, 9], {}) == (Share(7, (0, 1, 2)), Share(9, (3, 4)))


def test_a_newcomer_takes_its_share_and_nothing_else_moves() -> None:
    before = owners_of(shares(12, 2, [0, 1], {}))
    after = settled(12, 3, [0, 1, 2], before)
    assert sorted(Counter(after.values()).values()) == [4, 4, 4]
    assert moves(before, after) == 4, "those that the newcomer has"


def test_a_newcomer_gets_its_share_in_four_batches() -> None:
    owners = owners_of(shares(48, 2, [0, 1], {}))
    sizes = []
    for _ in range(5):
        owners = owners_of(shares(48, 3, [0, 1, 2], owners))
        sizes.append(Counter(owners.values())[2])
    assert sizes == [4, 8, 12, 16, 16]


def test_on_the_way_nobody_has_much_more_than_another_of_those_before() -> None:
    """A batch takes as long as its longest task."""
    owners = owners_of(shares(48, 2, [0, 1], {}))
    longest = []
    for _ in range(4):
        owners = owners_of(shares(48, 4, [0, 1, 2, 3], owners))
        longest.append(max(Counter(owners.values()).values()))
    assert longest == [21, 18, 15, 12]


def test_what_a_newcomer_gets_of_a_lost_one_it_gets_at_once() -> None:
    before = owners_of(shares(12, 3, [0, 1, 2], {}))
    made = shares(12, 3, [0, 1, 3], before)
    assert sorted(len(share.partitions) for share in made) == [4, 4, 4]


def test_what_a_lost_one_had_is_all_that_moves() -> None:
    before = owners_of(shares(12, 4, [0, 1, 2, 3], {}))
    made = shares(12, 3, [0, 1, 3], before)
    assert moves(before, owners_of(made)) == 3
    assert sorted(len(share.partitions) for share in made) == [4, 4, 4]


def test_of_more_executors_than_tasks_those_that_have_the_state() -> None:
    before = {0: 5, 1: 5, 2: 8, 3: 8}
    assert owners_of(shares(4, 2, [1, 5, 6, 8], before)) == before


def test_of_others_those_that_have_less_to_do_and_then_the_oldest() -> None:
    places = [share.executor for share in shares(4, 2, [0, 1, 2, 3], {}, {0: 1, 1: 1})]
    assert places == [2, 3]
    assert [share.executor for share in shares(4, 2, [0, 1, 2, 3], {0: 1}, {0: 1, 1: 5})] == [1, 2]


def test_a_task_without_an_executor_runs_anywhere() -> None:
    made = shares(6, 3, [4], dict.fromkeys(range(6), 4))
    assert [share.executor for share in made].count(None) == 2
    assert Share(4, (0, 1)) in made


def test_more_tasks_than_partitions_are_as_many_as_partitions() -> None:
    assert [share.partitions for share in shares(2, 5, [1, 2, 3], {})] == [(0,), (1,)]


@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.sets(st.integers(0, 15), max_size=12),
    st.dictionaries(st.integers(0, 50), st.integers(0, 20)),
)
def test_whole_in_the_end_even_stable_and_with_few_moves(
    count: int, width: int, executors: set[int], owners: dict[int, int]
) -> None:
    made = shares(count, width, sorted(executors), owners)
    for _ in range(4):
        assert sorted(one for share in made for one in share.partitions) == list(range(count))
        assert len(made) == min(width, count) and all(share.partitions for share in made)
        places = [share.executor for share in made if share.executor is not None]
        assert len(places) == len(set(places)) == min(len(executors), len(made))
        assert set(places) <= executors
        # Nobody below its share gives one away.
        for share in made:
            had = {
                one
                for one in range(count)
                if share.executor is not None and owners.get(one) == share.executor
            }
            assert len(had & set(share.partitions)) >= min(len(had), count // len(made))
            # What could stay with another one comes a quarter of a share at a time.
            others = set(places) - {share.executor}
            could_stay = {one for one in share.partitions if owners.get(one) in others}
            assert share.executor is None or len(could_stay) <= -(-(count // len(made) + 1) // 4)
        owners = owners_of(made)
        made = shares(count, width, sorted(executors), owners)
    sizes = [len(share.partitions) for share in made]
    assert max(sizes) - min(sizes) <= 1
    assert moves(owners, owners_of(made)) == 0

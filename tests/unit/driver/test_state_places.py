"""Which task has which state partitions, and where it runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.driver.state_places import Share, shares


def owners_of(made: tuple[Share, ...]) -> dict[int, int]:
    return {one: share.executor for share in made for one in share.partitions if share.executor is not None}


def moves(before: dict[int, int], after: dict[int, int]) -> int:
    return sum(1 for one, owner in before.items() if after.get(one) != owner)


def test_what_nobody_has_is_divided_in_order() -> None:
    assert shares(5, 2, [7, 9], {}) == (Share(7, (0, 1, 2)), Share(9, (3, 4)))


def test_a_newcomer_takes_its_share_and_nothing_else_moves() -> None:
    before = owners_of(shares(12, 2, [0, 1], {}))
    made = shares(12, 3, [0, 1, 2], before)
    assert sorted(len(share.partitions) for share in made) == [4, 4, 4]
    assert moves(before, owners_of(made)) == 4, "those that the newcomer has"


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
def test_whole_even_stable_and_with_few_moves(
    count: int, width: int, executors: set[int], owners: dict[int, int]
) -> None:
    made = shares(count, width, sorted(executors), owners)
    assert sorted(one for share in made for one in share.partitions) == list(range(count))
    sizes = [len(share.partitions) for share in made]
    assert len(sizes) == min(width, count) and max(sizes) - min(sizes) <= 1
    places = [share.executor for share in made if share.executor is not None]
    assert len(places) == len(set(places)) == min(len(executors), len(made))
    assert set(places) <= executors
    again = shares(count, width, sorted(executors), owners_of(made))
    assert again == made or moves(owners_of(made), owners_of(again)) == 0
    # Nobody below its share gives one away.
    for share in made:
        had = {
            one for one in range(count) if share.executor is not None and owners.get(one) == share.executor
        }
        assert len(had & set(share.partitions)) >= min(len(had), count // len(made))

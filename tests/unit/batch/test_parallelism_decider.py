"""VertexParallelismDecider: both rules, on finished results."""

from __future__ import annotations

from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.batch import DeciderRule, LimitedBy, Result, Skew, SkewStrategy
from app.model.options import JobOptions
from app.model.requirements import Bounds
from app.scheduler.batch.limits import Limits, limits
from app.scheduler.batch.parallelism_decider import Division, Inputs, decide, groups_of
from app.scheduler.batch.source_sizes import subpartitions_for

MB = 1024 * 1024
RULES = tuple(DeciderRule)


def result(*bytes_of: int) -> Result:
    return Result("dataset", 1, "/result", "0" * 64, bytes_of, (1,) * len(bytes_of))


def between(lower: int, upper: int) -> Limits:
    return Limits.of(Bounds(lower, upper))


def decided(inputs: Inputs, rule: DeciderRule, lower: int = 1, upper: int = 16) -> Division:
    return decide(inputs, rule, volume_bytes=MB, limits=between(lower, upper))


def test_a_lower_bound_that_came_after_the_write_asks_for_no_more_tasks_than_there_are_parts() -> None:
    wanted = between(8, 16).readable(4)
    assert (wanted.lowest, wanted.highest, wanted.reason) == (4, 4, LimitedBy.SUBPARTITIONS)
    found = decided(Inputs(hashed=(result(MB, MB, 0, 0),)), DeciderRule.EVEN_DATA, lower=8)
    assert found.groups == ((0,), (1,), (2,), (3,)), "its parts are divided by what is in them all the same"


@pytest.mark.parametrize("rule", RULES)
def test_l23_all_inputs_are_broadcast(rule: DeciderRule) -> None:
    assert decided(Inputs(broadcast=(result(100 * MB),)), rule, lower=2).parallelism == 2


@pytest.mark.parametrize("rule", RULES)
def test_l23_zero_bytes(rule: DeciderRule) -> None:
    for inputs in (
        Inputs(hashed=(result(*(0,) * 8),)),
        Inputs(others=(result(0),)),
        Inputs(others=(result(),)),
    ):
        assert decided(inputs, rule).parallelism == 1
        assert decided(inputs, rule, lower=4).parallelism == 4


def test_l23_a_single_huge_subpartition() -> None:
    inputs = Inputs(hashed=(result(100 * MB, *(0,) * 7),))
    # The formula knows the sum only: as many tasks as there are subpartitions, of which one has all the work.
    assert decided(inputs, DeciderRule.FLIP_187).parallelism == 8
    # Even data finds that no other task would have anything to do.
    assert decided(inputs, DeciderRule.EVEN_DATA) == Division(2, 100, groups=((0,), (1, 2, 3, 4, 5, 6, 7)))


@pytest.mark.parametrize("rule", RULES)
def test_l23_a_maximum_of_the_vertex_below_the_global_minimum(rule: DeciderRule) -> None:
    """The lowest is then the vertex's maximum (I.2 step 2), so that there is one choice left."""
    least_of_8 = JobOptions(auto_min=8)
    within = limits(Bounds(1, 5), least_of_8)
    assert (within.lowest, within.highest) == (5, 5)
    inputs = Inputs(hashed=(result(*(MB,) * 5),))
    assert decide(inputs, rule, volume_bytes=100 * MB, limits=within).parallelism == 5


@pytest.mark.parametrize("rule", RULES)
def test_fewer_subpartitions_than_the_lower_bound_are_a_limit_that_is_named(rule: DeciderRule) -> None:
    """More tasks than were written for would read nothing. Such a bound was raised after the write."""
    found = decided(Inputs(hashed=(result(MB, MB),)), rule, lower=5, upper=16)
    assert (found.parallelism, found.limit, found.limited_by) == (2, 2, LimitedBy.SUBPARTITIONS)


@pytest.mark.parametrize("rule", RULES)
def test_a_limit_is_named_only_where_it_makes_a_difference(rule: DeciderRule) -> None:
    def limited(bytes_of: int, within: Limits) -> tuple[int, int | None, str | None]:
        inputs = Inputs(hashed=(result(*(bytes_of,) * 8),))
        found = decide(inputs, rule, volume_bytes=MB, limits=within)
        return found.parallelism, found.limit, found.limited_by

    at_most_4, at_least_4 = (
        limits(Bounds(1, 16), options) for options in (JobOptions(auto_max=4), JobOptions(auto_min=4))
    )
    assert limited(MB // 4, between(1, 16)) == (2, None, None)
    assert limited(MB // 4, at_most_4) == limited(MB // 4, between(1, 4)) == (2, None, None)
    assert limited(MB, at_most_4) == (4, 4, LimitedBy.OPTIONS)
    assert limited(MB, between(1, 4)) == (4, None, None)
    assert limited(MB // 4, at_least_4) == (4, 4, LimitedBy.OPTIONS)
    assert limited(MB, at_least_4) == (8, None, None)
    assert limited(2 * MB, between(1, 16)) == (8, 8, LimitedBy.SUBPARTITIONS)
    # The client's lower bound counts more than the options.
    assert limited(MB, limits(Bounds(6, 8), JobOptions(auto_max=4)))[0] in (6, 8)
    off = limits(Bounds(1, 8), JobOptions(auto_enabled=False))
    assert limited(MB // 4, off) == (8, 8, LimitedBy.OPTIONS)


def test_where_the_sizes_of_subpartitions_decide_no_limit_is_named() -> None:
    found = decided(Inputs(hashed=(result(100 * MB, *(0,) * 7),)), DeciderRule.EVEN_DATA)
    assert (found.wanted, found.parallelism, found.limited_by) == (100, 2, None)


def test_skewed_subpartitions_are_left_to_spark() -> None:
    inputs = Inputs(hashed=(result(MB, 9 * MB, MB, MB), result(0, 0, 0, MB)))

    def division(
        strategy: SkewStrategy, rule: DeciderRule = DeciderRule.EVEN_DATA, upper: int = 4
    ) -> Division:
        skew = Skew(strategy, factor=4.0, threshold_bytes=2 * MB)
        return decide(inputs, rule, volume_bytes=4 * MB, limits=between(1, upper), skew=skew)

    assert division(SkewStrategy.AUTO) == division(SkewStrategy.FORCED) == Division(4, 4, skewed=(1,))
    # No task could take anything off another one.
    assert division(SkewStrategy.AUTO, upper=1).skewed == ()
    assert division(SkewStrategy.NONE).groups == ((0,), (1,), (2, 3))
    assert division(SkewStrategy.AUTO, DeciderRule.FLIP_187) == Division(4, 4, normalized=4)
    # At the threshold is not above it.
    at_it = Inputs(hashed=(result(MB, 8 * MB, 2 * MB, 2 * MB),))
    skew = Skew(SkewStrategy.AUTO, factor=4.0, threshold_bytes=MB)
    assert (
        decide(at_it, DeciderRule.EVEN_DATA, volume_bytes=4 * MB, limits=between(1, 4), skew=skew).skewed
        == ()
    )


def groups(inputs: Inputs, found: Division) -> list[tuple[tuple[int, ...], ...]]:
    """Per hashed input the subpartitions of each task."""
    return [groups_of(inputs, one, found.groups, found.parallelism) for one in inputs.hashed]


def test_even_data_of_inputs_with_different_numbers_of_subpartitions() -> None:
    """Rows of one key have the same hash modulo 4 in both, so parts 0 and 4 of the one meet part 0 of the other."""
    inputs = Inputs(hashed=(result(3 * MB, 0, 0, 0, 2 * MB, 0, MB // 2, 0), result(3 * MB, 1, 1, 1)))
    found = decided(inputs, DeciderRule.EVEN_DATA, upper=4)
    assert (found.parallelism, found.groups) == (2, ((0,), (1, 2, 3)))
    assert groups(inputs, found) == [((0, 4), (1, 5, 2, 6, 3, 7)), ((0,), (1, 2, 3))]


def test_skew_counts_in_the_smaller_number_of_subpartitions() -> None:
    # Neither 3 MB nor 2 MB is much, but they are one part of the four.
    inputs = Inputs(hashed=(result(0, 3 * MB, 0, 0, 0, 2 * MB, 0, 0), result(MB, MB, MB, MB)))
    skew = Skew(SkewStrategy.AUTO, factor=4.0, threshold_bytes=4 * MB)
    found = decide(inputs, DeciderRule.EVEN_DATA, volume_bytes=MB, limits=between(1, 4), skew=skew)
    assert found.skewed == (1,)


def test_the_formula_on_inputs_with_different_numbers_of_subpartitions() -> None:
    twice = Inputs(hashed=(result(*(0,) * 14), result(*(0,) * 7)))
    five = decided(twice, DeciderRule.FLIP_187, lower=5, upper=7)
    assert five.parallelism == 5
    first, second = groups(twice, five)
    assert second == ((0,), (1,), (2, 3), (4,), (5, 6))
    assert first == ((0, 7), (1, 8), (2, 9, 3, 10), (4, 11), (5, 12, 6, 13))
    # Where all can be divided by the tasks they are, whether they divide each other or not.
    odd = Inputs(hashed=(result(*(0,) * 6), result(*(0,) * 4)))
    two = decided(odd, DeciderRule.FLIP_187, lower=2, upper=2)
    assert groups(odd, two) == [((0, 2, 4), (1, 3, 5)), ((0, 2), (1, 3))]
    three = decided(odd, DeciderRule.FLIP_187, lower=3, upper=3)
    assert groups(odd, three) == [(), ()]


def test_the_formula_says_what_it_made_of_the_bytes() -> None:
    inputs = Inputs(hashed=(result(*(MB,) * 3),), broadcast=(result(100 * MB),))
    # Half of each task's megabyte is left for 3 MB: 6 tasks, between 4 and 8 the larger one.
    assert decided(inputs, DeciderRule.FLIP_187, upper=2) == Division(
        2, 6, normalized=8, counted_broadcast_bytes=MB // 2
    )


def test_unhashed_inputs_fix_the_number_of_tasks_for_even_data() -> None:
    inputs = Inputs(hashed=(result(4 * MB, 0, 0, 0),), others=(result(4 * MB),))
    assert decided(inputs, DeciderRule.EVEN_DATA, upper=4).parallelism == 4


SIZES = st.sampled_from((1, 2, 3, 4, 6, 8, 12, 16, 32, 5, 7)).flatmap(
    lambda count: st.lists(st.integers(0, 20 * MB), min_size=count, max_size=count)
)


@given(
    SIZES,
    st.one_of(SIZES, st.just([])),
    st.sampled_from(RULES),
    st.integers(1, 8),
    st.integers(0, 24),
)
def test_every_subpartition_of_every_hashed_input_is_read_once(
    first: list[int], second: list[int], rule: DeciderRule, lower: int, more: int
) -> None:
    inputs = Inputs(hashed=tuple(result(*sizes) for sizes in (first, second) if sizes))
    found = decided(inputs, rule, lower, lower + more)
    assert 1 <= found.parallelism <= min(lower + more, *inputs.subpartitions)
    of_inputs = groups(inputs, found)
    if not all(of_inputs):
        # They cannot be divided alike, so Spark shuffles them.
        assert not any(of_inputs) and inputs.common is None
        return
    for one, of_tasks in zip(inputs.hashed, of_inputs, strict=True):
        assert len(of_tasks) == found.parallelism
        assert sorted(part for group in of_tasks for part in group) == list(range(len(one.bytes_of)))
    # One task reads all rows of a key: the parts of a hash are of the same task in each input.
    task_of = [
        {part: task for task, group in enumerate(of_tasks) for part in group} for of_tasks in of_inputs
    ]
    for key_hash in range(lcm(*inputs.subpartitions)):
        assert len({tasks[key_hash % len(tasks)] for tasks in task_of}) == 1


@given(st.integers(1, 64), st.integers(0, 64))
def test_subpartitions_suffice_for_every_decision_within_the_bounds(lower: int, more: int) -> None:
    upper = lower + more
    parts = subpartitions_for(lower, upper)
    assert lower <= parts <= upper
    inputs = Inputs(hashed=(result(*(MB,) * parts),))
    found = decided(inputs, DeciderRule.FLIP_187, lower, upper)
    assert lower <= found.parallelism <= upper
    assert parts % found.parallelism == 0, "Spark's own division serves"

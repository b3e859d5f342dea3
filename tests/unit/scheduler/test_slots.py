"""The slot allocator: what a job needs, how slots are spread over its groups, and which slots it takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.plan import Plan, Slot
from app.model.requirements import Bounds, Requirements
from app.scheduler.slots import Demand, GroupBounds, assign, distribute
from tests.unit.scheduler.driving import bounds, chain, group_graph, mixed, slots


def groups(**wanted: tuple[int, int]) -> list[GroupBounds]:
    return [GroupBounds(name, *pair) for name, pair in wanted.items()]


@pytest.mark.parametrize(
    ("wanted", "count", "shares"),
    [
        (groups(A=(1, 2), B=(1, 8)), 6, {"A": 2, "B": 4}),
        (groups(A=(1, 10), B=(1, 10)), 5, {"A": 2, "B": 3}),
        (groups(A=(1, 4), B=(2, 4), C=(1, 1)), 7, {"A": 3, "B": 3, "C": 1}),
        (groups(A=(2, 8), B=(3, 4)), 5, {"A": 2, "B": 3}),
        (groups(A=(2, 8), B=(3, 4)), 4, None),
        (groups(A=(1, 3), B=(1, 3), C=(1, 3)), 8, {"A": 2, "B": 3, "C": 3}),
        (groups(A=(4, 4), B=(1, 100)), 20, {"A": 4, "B": 16}),
        (groups(A=(1, 1)), 0, None),
        (groups(A=(1, 2), B=(1, 2)), 100, {"A": 2, "B": 2}),
    ],
)
def test_l18_distribution_vectors(
    wanted: Sequence[GroupBounds], count: int, shares: dict[str, int] | None
) -> None:
    assert distribute(wanted, count) == shares


def test_l18_better_a_tie_is_broken_by_declared_order() -> None:
    """Production Flink's order is that of a hash map."""
    for _ in range(3):
        assert distribute(groups(Z=(1, 10), A=(1, 10)), 5) == {"Z": 2, "A": 3}


pairs = st.tuples(st.integers(1, 20), st.integers(0, 30)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(pairs, min_size=1, max_size=6), st.integers(0, 120))
def test_l18_bounds_are_guaranteed_and_slots_are_used_up_to_division_remainders(
    wanted: list[tuple[int, int]], count: int
) -> None:
    own = [GroupBounds(f"g{index}", *pair) for index, pair in enumerate(wanted)]
    shares = distribute(own, count)
    if sum(lower for lower, _ in wanted) > count:
        assert shares is None
        return
    assert shares is not None
    assert list(shares) == [one.name for one in own], "in declared order"
    assert sum(shares.values()) <= count
    for one in own:
        assert one.lower <= shares[one.name] <= one.upper
    left = count - sum(shares.values())
    if any(shares[one.name] < one.upper for one in own):
        assert left < len(own), "slots are left although a group could use them"


@given(st.lists(pairs, min_size=1, max_size=4), st.integers(0, 60))
def test_l18_one_slot_more_never_takes_one_from_the_job(wanted: list[tuple[int, int]], count: int) -> None:
    own = [GroupBounds(f"g{index}", *pair) for index, pair in enumerate(wanted)]
    fewer, more = distribute(own, count), distribute(own, count + 1)
    if fewer is not None:
        assert more is not None and sum(more.values()) >= sum(fewer.values())


def each(graph: object, **wanted: tuple[int, int]) -> Requirements:
    vertices = graph.vertices  # type: ignore[attr-defined]
    return Requirements("u", 1, tuple((one.id, Bounds(*wanted[one.name])) for one in vertices))


def test_l18_a_group_needs_the_largest_bounds_of_its_vertices_and_a_job_the_sum_of_its_groups() -> None:
    graph = mixed()
    wanted = each(graph, source=(1, 3), agg=(2, 4), sink=(1, 2))
    assert Demand.of(graph, wanted).minimal == 2 + 1
    assert Demand.of(graph, wanted).desired == 4 + 2
    assert Demand.of(graph, wanted).parallelism(2) is None


def test_what_was_asked_for_last_is_not_taken_for_what_is_asked_for_now() -> None:
    one, two = chain(), mixed()
    few, many = bounds(one, 1, 2), bounds(one, 1, 6)
    for _ in range(2):
        asked = [Demand.of(graph, wanted).desired for graph in (one, two) for wanted in (few, many)]
        assert asked == [2, 6, 4, 12]
    assert Demand.of(one, few) is Demand.of(one, few), "it is worked out once"


def test_until_state_is_redistributed_no_bound_is_above_its_partitions() -> None:
    graph = chain()
    most = graph.vertices[0].max_parallelism
    demand = Demand.of(graph, bounds(graph, most + 1, most + 4))
    assert set(demand.bounds.values()) == {Bounds(most, most)}
    assert (demand.minimal, demand.desired) == (most, most)


def test_l18_a_vertex_runs_at_no_more_than_its_own_upper_bound() -> None:
    graph = chain()
    wanted = each(graph, source=(1, 2), agg=(1, 5), sink=(1, 3))
    found = Demand.of(graph, wanted).parallelism(4)
    assert found is not None and list(found.values()) == [2, 4, 3]


# -- which slots


def plan(
    count: int, held: Sequence[Slot], previous: Plan | None = None, *, minimal: bool = True
) -> list[str]:
    graph = chain()
    demand = Demand.of(graph, bounds(graph, 1, count))
    found = assign(demand, held, version=1, previous=previous, prefer_minimal_taskmanagers=minimal)
    assert found is not None
    return list(found.group_slots[0][1])


def test_slots_come_from_as_few_taskmanagers_as_possible() -> None:
    held = [*slots(1, manager="a"), *slots(3, manager="b"), *slots(2, manager="c")]
    assert plan(3, held) == ["b-0", "b-1", "b-2"]
    assert plan(4, held) == ["b-0", "b-1", "b-2", "c-0"]
    assert plan(3, held, minimal=False) == ["a-0", "b-0", "b-1"]


def test_a_group_keeps_the_slots_it_had() -> None:
    before = Plan(1, (), (("default", ("c-1", "a-0")),))
    held = [*slots(1, manager="a"), *slots(3, manager="b"), *slots(2, manager="c")]
    assert plan(3, held, before) == ["c-1", "a-0", "c-0"], "and takes more where it is already"


def test_a_group_that_shrinks_leaves_the_emptiest_taskmanager() -> None:
    before = Plan(1, (), (("default", ("a-0", "b-0", "b-1")),))
    held = [*slots(1, manager="a"), *slots(2, manager="b")]
    assert plan(2, held, before) == ["b-0", "b-1"]


def test_too_few_slots_give_no_plan() -> None:
    graph = group_graph(["x", "y"])
    assert assign(Demand.of(graph, bounds(graph, 2, 3)), slots(3), version=1) is None


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_a_plan_uses_each_slot_once_and_as_many_as_decided(
    held: int, lower: int, more: int, minimal: bool
) -> None:
    graph = group_graph(["x", "y"])
    demand = Demand.of(graph, bounds(graph, lower, lower + more))
    own = tuple(Slot(f"s{index}", f"tm{index % 3}") for index in range(held))
    first = assign(demand, own, version=1, prefer_minimal_taskmanagers=minimal)
    if first is None:
        assert held < 2 * lower
        return
    used = [slot for _, taken in first.group_slots for slot in taken]
    assert len(set(used)) == len(used) == first.slot_count <= held
    assert dict(first.parallelism) == demand.parallelism(held)
    again = assign(demand, own, version=2, previous=first, prefer_minimal_taskmanagers=minimal)
    assert again is not None and again.group_slots == first.group_slots, "nothing moves without a reason"

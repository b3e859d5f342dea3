"""What holds of every decision, whatever is seen."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.autoscaler.decide import decide, limits_of
from app.autoscaler.policy import Policy, Range
from app.autoscaler.seen import Action, Load, Memory, Point, Recommendation, Snapshot, Vertex
from app.model.requirements import Bounds
from app.model.scaling_policy import NO_LIMITS, FloorCeiling
from tests.unit.autoscaler.jobs import NOW_MS, snapshot

parts = st.floats(0, 1)
figures = st.floats(0, 1e6)
anything = st.none() | st.floats()


operators = st.sampled_from(((None, None), (None, 3), (2, None), (5, None), (2, 2), (2, 7), (4, 20)))


@st.composite
def vertices(draw: st.DrawFn, group: str | None = None) -> tuple[Vertex, ...]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        most = draw(st.integers(1, 40))
        upper = draw(st.integers(1, most))
        floor, ceiling = draw(operators)
        found.append(
            Vertex(
                f"v{number}",
                f"v{number}",
                group or draw(st.sampled_from(("a", "b"))),
                draw(st.integers(1, upper)),
                draw(st.integers(1, upper)),
                upper,
                most,
                draw(st.floats(0.1, 1000)),
                draw(st.floats(1, 3)),
                FloorCeiling(None if floor is None else min(floor, most), ceiling),
            )
        )
    return tuple(found)


loads = st.builds(
    Load,
    st.just(60_000),
    st.floats(0.1, 1e5),
    st.none() | figures,
    st.none() | st.floats(-1e4, 1e4),
    st.floats(0, 1000),
    parts,
    st.floats(0, 60_000),
)
ranges = st.tuples(st.none() | st.integers(1, 6), st.none() | st.integers(6, 50)).map(lambda two: Range(*two))
policies = st.builds(
    Policy,
    parallelism=ranges,
    vertices=st.dictionaries(st.sampled_from(("v0", "v1")), ranges),
    scale_down_window_ms=st.sampled_from((0, 600_000)),
    recommend_only=st.booleans(),
)
pasts = st.lists(st.tuples(st.integers(1, 2_000), st.integers(1, 60)), max_size=5).map(
    lambda many: tuple(
        Recommendation(NOW_MS - ago_s * 1000, {f"v{number}": tasks for number in range(4)})
        for ago_s, tasks in sorted(many, reverse=True)
    )
)


points = st.builds(Point, st.floats(0.01, 1e4), st.floats(0.1, 900), st.just(NOW_MS - 1_000))
memories = st.builds(Memory, pasts, st.lists(points, max_size=6).map(tuple))


@st.composite
def snapshots(draw: st.DrawFn, group: str | None = None) -> Snapshot:
    seen = snapshot(*draw(vertices(group)), load=draw(loads), memory=draw(memories))
    split = draw(st.integers(1, len(seen.vertices)))
    ids = [each.id for each in seen.vertices]
    return replace(seen, queries=tuple(tuple(each) for each in (ids[:split], ids[split:]) if each))


@given(snapshots(), policies)
def test_bounds_are_within_limits(seen: Snapshot, policy: Policy) -> None:
    limits = limits_of(seen, policy)
    found = decide(seen, policy)
    for each in seen.vertices:
        upper = found.upper.get(each.id)
        if upper is not None:
            assert max(each.lower, limits[each.id].least) <= upper <= min(each.most, limits[each.id].most)
            assert upper != each.upper
            assert upper >= min(policy.parallelism.min or 1, each.most, limits[each.id].most)


@given(snapshots(), policies)
def test_what_the_operator_would_cut_is_not_asked_for(seen: Snapshot, policy: Policy) -> None:
    """And what the operator has corrected already is not declared once more."""
    found = decide(seen, policy)
    for each in seen.vertices:
        upper = found.upper.get(each.id)
        if upper is not None:
            counts = each.operator.within(Bounds(each.lower, upper), each.most).upper
            assert counts == upper != each.effective.upper


@given(snapshots(), policies)
def test_limits_of_the_operator_that_do_not_bind_change_nothing(seen: Snapshot, policy: Policy) -> None:
    wide = FloorCeiling(1, 100)
    free, bound = (
        replace(seen, vertices=tuple(replace(each, operator=limits) for each in seen.vertices))
        for limits in (NO_LIMITS, wide)
    )
    assert decide(bound, policy) == decide(free, policy)


@given(snapshots(), policies)
def test_what_was_declared_is_not_declared_again(seen: Snapshot, policy: Policy) -> None:
    """Before it is in force, and with the same figures, nothing new follows from it."""
    found = decide(seen, policy)
    assert decide(seen, policy) == found
    there = tuple(replace(each, upper=found.upper.get(each.id, each.upper)) for each in seen.vertices)
    again = decide(replace(seen, vertices=there, memory=found.memory), policy)
    if found.utilization is not None:
        assert again.upper == {}


@given(snapshots(), policies)
def test_recommending_changes_nothing_but_the_action(seen: Snapshot, policy: Policy) -> None:
    only = decide(seen, replace(policy, recommend_only=True))
    assert only.action is not Action.SCALE
    acting = decide(seen, replace(policy, recommend_only=False))
    assert (only.upper, only.utilization) == (acting.upper, acting.utilization)
    assert (only.action is Action.RECOMMEND) == (acting.action is Action.SCALE)


def fitting(seen: Snapshot, policy: Policy) -> dict[str, int]:
    """What the load asks for. The bounds are such that no limit asks for a change first."""
    limits = limits_of(seen, policy)
    there = tuple(replace(each, upper=limits[each.id].clamp(each.effective.upper)) for each in seen.vertices)
    return dict(decide(replace(seen, vertices=there), policy).memory.recommended[-1].tasks)


@given(snapshots("one"), policies, st.floats(1, 10), st.sampled_from(("backlog", "growth", "busy")))
def test_more_to_do_never_asks_for_fewer_tasks(
    seen: Snapshot, policy: Policy, times: float, what: str
) -> None:
    assert seen.load is not None
    load = replace(seen.load, backlog_rows=seen.load.backlog_rows or 1.0, growth_per_second=1.0)
    few = replace(seen, load=load)
    if what == "backlog":
        many = replace(few, load=replace(load, backlog_rows=load.backlog_rows * times))
    elif what == "growth":
        many = replace(few, load=replace(load, growth_per_second=times))
    else:
        busier = tuple(replace(each, busy_ms=each.busy_ms * times) for each in few.vertices)
        many = replace(few, vertices=busier)
    less, more = fitting(few, policy), fitting(many, policy)
    assert all(less[vertex_id] <= more[vertex_id] for vertex_id in less)


@given(vertices(), anything, anything, anything, anything, anything, anything)
@settings(max_examples=200)
@example((Vertex("v0", "v0", "a", 1, 1, 1, 1, 1.0),), 5e-324, 1.0, None, None, None, None)
def test_figures_that_are_no_numbers_decide_nothing(
    many: tuple[Vertex, ...],
    rows: float | None,
    backlog: float | None,
    growth: float | None,
    per_second: float | None,
    share: float | None,
    batch: float | None,
) -> None:
    load = Load(60_000, rows or 0.0, backlog, growth, per_second or 0.0, share or 0.0, batch or 0.0)
    found = decide(snapshot(*many, load=load), Policy())
    if any(value is not None and not math.isfinite(value) for value in astuple(load)):
        assert (found.action, found.upper) == (Action.NONE, {})
    assert found.reason and "nan" not in found.reason

"""Floor and ceiling: what counts of declared bounds, which limits fit a job, and how a difference is told."""

from __future__ import annotations

import itertools

import pytest

from app.model.requirements import Bounds
from app.model.scaling_policy import FloorCeiling, ScalingPolicy, differences, faults, in_graph, within
from tests.unit.scheduler.driving import bounds, chain, group_graph, vertex

GRAPH = chain()
SOURCE, AGG, SINK = (one.id for one in GRAPH.vertices)


def counting(lower: int, upper: int, floor: int | None, ceiling: int | None) -> Bounds:
    """What counts of bounds of agg, under limits of its own."""
    policy = ScalingPolicy(2, vertices=((AGG, FloorCeiling(floor, ceiling)),))
    found = within(policy, GRAPH, bounds(GRAPH, lower, upper))
    assert (found[SOURCE], found[SINK]) == (Bounds(lower, upper),) * 2, "the limits are of agg"
    return found[AGG]


@pytest.mark.parametrize(
    ("declared", "floor", "ceiling", "counts"),
    [
        ((1, 4), None, None, (1, 4)),
        ((1, 4), 2, None, (2, 4)),
        ((1, 1), 2, None, (2, 2)),
        ((3, 4), 2, None, (3, 4)),
        ((1, 16), None, 8, (1, 8)),
        ((12, 16), None, 8, (8, 8)),
        ((1, 4), None, 8, (1, 4)),
        ((1, 16), 4, 4, (4, 4)),
    ],
)
def test_the_floor_and_the_ceiling_win_over_what_was_declared(
    declared: tuple[int, int], floor: int | None, ceiling: int | None, counts: tuple[int, int]
) -> None:
    assert counting(*declared, floor, ceiling) == Bounds(*counts)


def test_whatever_is_declared_and_set_what_counts_is_a_range_within_the_policy() -> None:
    limits = [(None, None), (None, 2), (2, None), (2, 3), (3, 3)]
    for lower, upper, (floor, ceiling) in itertools.product(range(1, 5), range(1, 5), limits):
        if lower > upper:
            continue
        found = counting(lower, upper, floor, ceiling)
        assert (floor or 1) <= found.lower <= found.upper <= (ceiling or 128)
        allowed = set(range(floor or 1, (ceiling or 128) + 1)) & set(range(lower, upper + 1))
        assert not allowed or found == Bounds(min(allowed), max(allowed)), "what is allowed by both counts"


def test_without_a_policy_the_requirements_are_those_that_were_declared() -> None:
    declared = bounds(GRAPH, 1, 4)
    assert within(ScalingPolicy(), GRAPH, declared) is declared
    assert not ScalingPolicy(7) and list(differences(ScalingPolicy(7), GRAPH, declared)) == []


def test_limits_of_a_vertex_go_before_those_for_all() -> None:
    policy = ScalingPolicy(2, FloorCeiling(2, 8), ((AGG, FloorCeiling(None, 16)),))
    assert policy[AGG] == FloorCeiling(2, 16)
    assert policy[SINK] == FloorCeiling(2, 8)


def test_a_floor_counts_up_to_the_state_partitions() -> None:
    """Else it would redistribute the state. More partitions than that are for an upper bound to ask for."""
    graph = group_graph(["source"])
    few = graph.__class__(graph.name, graph.type, (vertex("source", maximum=4, group="source"),))
    policy = ScalingPolicy(2, FloorCeiling(6))
    assert within(policy, few, bounds(few, 1, 2))[few.vertices[0].id] == Bounds(4, 4)
    assert within(policy, few, bounds(few, 1, 9))[few.vertices[0].id] == Bounds(6, 9)


def test_what_else_the_requirements_say_stays() -> None:
    declared = bounds(GRAPH, 1, 4, 3, requested_by="ann", reason="peak")
    found = within(ScalingPolicy(2, FloorCeiling(2)), GRAPH, declared)
    assert (found.uuid, found.version, found.requested_by, found.reason) == (
        declared.uuid,
        3,
        "ann",
        "peak",
    )


def test_limits_that_do_not_fit_the_job_are_named_all_at_once() -> None:
    errors = faults(
        GRAPH,
        FloorCeiling(None, 4),
        {AGG: FloorCeiling(5), SINK: FloorCeiling(200, 300), "x": FloorCeiling(1)},
    )
    assert errors == [
        "Job vertex x was not found in the job graph.",
        f"For job vertex {AGG} (agg), the floor 5 (of its own) is above the ceiling 4 (for all vertices).",
        f"For job vertex {SINK} (sink), the floor 200 (of its own) is above its max parallelism, 128: set a floor of "
        "128 at most for this vertex.",
    ]
    assert faults(GRAPH, FloorCeiling(2, 4), {AGG: FloorCeiling(None, 128)}) == []


def test_a_difference_says_which_limit_made_it() -> None:
    policy = ScalingPolicy(2, FloorCeiling(None, 8), ((AGG, FloorCeiling(4)), (SINK, FloorCeiling(20, 30))))
    assert list(differences(policy, GRAPH, bounds(GRAPH, 1, 16))) == [
        "source may run at 1 to 8; 1 to 16 was declared. That is the ceiling 8 of the scaling policy.",
        "agg may run at 4 to 8; 1 to 16 was declared. That is the floor 4 and the ceiling 8 of the scaling policy.",
        "sink may run at 20 to 20; 1 to 16 was declared. That is the floor 20 of the scaling policy.",
    ]
    assert list(differences(policy, GRAPH, bounds(GRAPH, 5, 7)))[-1].startswith("sink")


def test_limits_of_vertices_are_in_the_graphs_order_without_empty_ones() -> None:
    given = {SINK: FloorCeiling(1), SOURCE: FloorCeiling(), AGG: FloorCeiling(None, 2)}
    assert in_graph(GRAPH, given.items()) == ((AGG, FloorCeiling(None, 2)), (SINK, FloorCeiling(1)))


def test_it_knows_which_of_its_vertices_a_graph_does_not_have() -> None:
    policy = ScalingPolicy(2, vertices=((AGG, FloorCeiling(1)), ("gone", FloorCeiling(2))))
    assert policy.gone_from(GRAPH) == ("gone",)

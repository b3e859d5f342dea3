"""What is decided, and the words for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.autoscaler.decide import decide
from app.autoscaler.policy import Period, Policy, Range
from app.autoscaler.seen import Action, Memory, Recommendation
from app.model.scaling_policy import FloorCeiling
from tests.unit.autoscaler.jobs import LOAD, NOW_MS, snapshot, vertex

POLICY = Policy()
BUSY = vertex(busy_ms=900.0)
"""At 2 tasks: with 6 ms for planning and committing it needs 91 % of the time, at 3 tasks 61 %."""
LAZY = vertex(parallelism=8, busy_ms=50.0)
"""At 8 tasks: 6 % of the time; at 1 task 41 %."""


def test_more_tasks_are_asked_for_when_the_time_is_nearly_used_up() -> None:
    found = decide(snapshot(BUSY), POLICY)
    assert (found.action, found.upper) == (Action.SCALE, {"slow": 3})
    assert (found.utilization, found.expected) == (pytest.approx(0.906), pytest.approx(0.606))
    assert found.reason == (
        "100 rows/s arrive. The parallelism in force needs 91 % of the time for them. That is more than 85 %: at most "
        "so many tasks of slow from 2 to 3, which should make it 61 %."
    )


def test_times_of_vertices_add_up() -> None:
    """No vertex is near its limit by itself: in Flink nothing would be changed."""
    found = decide(snapshot(*(vertex(name, busy_ms=300.0) for name in "abc")), POLICY)
    assert found.upper == {"a": 3, "b": 3, "c": 3}


def test_queries_run_beside_each_other() -> None:
    many = [vertex(name, busy_ms=300.0) for name in "abc"]
    found = decide(snapshot(*many, queries=(("a", "b"), ("c",))), POLICY)
    assert found.action is Action.NONE and found.utilization == pytest.approx(0.606)


def test_a_backlog_asks_for_what_works_it_off_in_time() -> None:
    seen = snapshot(vertex(busy_ms=600.0), load=replace(LOAD, backlog_rows=30_000.0))
    found = decide(seen, POLICY)
    # 30,000 rows in five minutes are another 100 per second, in twice as many batches.
    assert found.rows_per_second == pytest.approx(200)
    assert found.upper == {"slow": 5} and found.expected == pytest.approx((2400 / 5 + 120) / 1000)
    assert "30,000 wait, to be worked off in 300 s: 200 rows/s" in found.reason


def test_a_growing_backlog_says_how_many_rows_arrive() -> None:
    found = decide(snapshot(BUSY, load=replace(LOAD, growth_per_second=50.0)), POLICY)
    assert found.upper == {"slow": 4} and found.reason.startswith("150 rows/s arrive.")


def test_what_one_task_has_to_do_alone_is_not_shared() -> None:
    """Of 500 ms the longest task has 350 more: no number of tasks makes that less."""
    found = decide(snapshot(vertex(busy_ms=500.0, skew=1.7)), POLICY)
    assert found.upper == {"slow": 3} and found.expected == pytest.approx(0.6893, rel=1e-3)


def test_where_more_tasks_save_no_time_none_are_asked_for() -> None:
    alone = snapshot(vertex(parallelism=60, upper=60, busy_ms=20.0, skew=50.0))
    found = decide(alone, POLICY)
    assert found.action is Action.NONE
    assert "More tasks would save no time" in found.reason


def test_planning_and_committing_are_not_shared_either() -> None:
    """80 % of batches of a second in which no task works: where batches may take ten, that becomes 8 %."""
    slow = replace(LOAD, batch_ms_per_second=1000.0, fixed_share=0.8)
    found = decide(snapshot(vertex(busy_ms=200.0), load=slow), POLICY)
    assert found.utilization == pytest.approx(0.28)
    assert decide(snapshot(vertex(busy_ms=200.0), load=slow), Policy(batch_ms=1_000)).utilization == 1.0


def recommended(seconds: dict[int, int]) -> Memory:
    """From how many seconds ago on: how many tasks of the vertex, every ten seconds."""
    found: dict[int, int] = {}
    for ago_s, tasks in seconds.items():
        found |= dict.fromkeys(range(ago_s, 0, -10), tasks)
    return Memory(
        tuple(Recommendation(NOW_MS - ago_s * 1000, {"slow": tasks}) for ago_s, tasks in found.items())
    )


def test_time_in_which_nothing_could_be_said_is_not_watched() -> None:
    """A low load ten minutes ago and now says nothing of the time between."""
    alone = Memory((Recommendation(NOW_MS - 610_000, {"slow": 1}),))
    found = decide(snapshot(LAZY, memory=alone), POLICY)
    assert found.upper == {} and "has been seen for 0 s" in found.reason
    # The time after a change is no such hole.
    after_change = Memory(
        tuple(each for each in recommended({610: 1}).recommended if each.at_ms < NOW_MS - 100_000)
    )
    assert decide(snapshot(LAZY, memory=after_change), POLICY).upper == {"slow": 1}


def test_more_state_partitions_that_were_asked_for_are_left_alone() -> None:
    """The upper bound is above the max parallelism until the state is redistributed."""
    asked = vertex(parallelism=4, upper=6, most=4, busy_ms=20.0)
    found = decide(snapshot(asked, memory=recommended({610: 1})), POLICY)
    assert (found.action, found.upper) == (Action.NONE, {})
    busy = decide(snapshot(replace(asked, busy_ms=950.0)), POLICY)
    assert busy.upper == {} and "lacks slots" not in busy.reason


@pytest.mark.parametrize(
    ("before", "upper"),
    [
        ({}, {}),
        ({590: 1}, {}),
        ({610: 1}, {"slow": 1}),
        ({610: 8, 300: 1}, {}),
        ({610: 1, 300: 3}, {"slow": 3}),
        ({610: 1, 300: 8}, {}),
        ({610: 1, 300: 20}, {}),
    ],
    ids=[
        "never looked before",
        "not for long enough",
        "long enough",
        "more, when the window began",
        "the most in the window",
        "as many as there are",
        "even more",
    ],
)
def test_fewer_tasks_have_to_be_enough_for_a_while(before: dict[int, int], upper: dict[str, int]) -> None:
    assert decide(snapshot(LAZY, memory=recommended(before)), POLICY).upper == upper


def test_the_words_for_fewer_tasks() -> None:
    assert (
        "Fewer tasks would do, but that has been seen for 0 s of the 600 s"
        in decide(snapshot(LAZY), POLICY).reason
    )
    kept = decide(snapshot(LAZY, memory=recommended({610: 1, 300: 9})), POLICY)
    assert "A higher parallelism was recommended within the last 600 s." in kept.reason


def test_what_was_recommended_is_kept_for_the_window_only() -> None:
    found = decide(snapshot(LAZY, memory=recommended({1500: 8})), POLICY).memory.recommended
    assert [(NOW_MS - each.at_ms) // 1000 for each in found] == list(range(600, -1, -10))


def test_recommend_only_is_said() -> None:
    found = decide(snapshot(BUSY), Policy(recommend_only=True))
    assert found.action is Action.RECOMMEND and found.upper == {"slow": 3}
    assert found.reason.endswith("It is only recommended.")


def test_limits_hold_at_once_and_for_each_vertex() -> None:
    policy = Policy(parallelism=Range(2, 4), vertices={"store": Range(1, 1)})
    found = decide(snapshot(vertex("slow", 6), vertex("store", 2), vertex("source", 1)), policy)
    assert found.upper == {"slow": 4, "store": 1, "source": 2}
    assert found.reason == (
        "The limits of the policy ask for it: at most so many tasks of slow from 6 to 4, store from 2 to 1, source "
        "from 1 to 2."
    )


def test_a_lower_bound_and_state_partitions_are_above_the_policy() -> None:
    few = vertex("few", 3, lower=3, most=4, busy_ms=100.0)
    found = decide(snapshot(few), Policy(parallelism=Range(5, 9)))
    assert found.upper == {"few": 4}
    assert decide(snapshot(few), Policy(parallelism=Range(1, 2))).action is Action.NONE


def test_the_schedule_has_limits_of_its_own() -> None:
    whole_day = Period(0, 24 * 60, min=6)
    assert decide(snapshot(), Policy(schedule=(whole_day,))).upper == {"slow": 6}
    # The last one counts.
    assert decide(snapshot(), Policy(schedule=(whole_day, Period(0, 24 * 60, min=7)))).upper == {"slow": 7}
    paused = decide(snapshot(BUSY), Policy(schedule=(Period(0, 24 * 60, pause=True),)))
    assert (paused.action, paused.reason) == (Action.NONE, "The schedule pauses the autoscaler now.")


def test_a_job_that_lacks_slots_is_not_given_higher_bounds() -> None:
    found = decide(snapshot(vertex(upper=4, busy_ms=900.0)), POLICY)
    assert found.action is Action.NONE
    assert "The job lacks slots, not bounds: slow has 2 of 4 tasks." in found.reason


def test_all_that_is_allowed_is_not_enough() -> None:
    found = decide(snapshot(BUSY), Policy(parallelism=Range(max=2)))
    assert "All vertices are at the limits of the policy" in found.reason


def test_slots_of_a_group_are_used_by_all_its_vertices() -> None:
    """One that is held for a stage would be idle in the others."""
    found = decide(snapshot(BUSY, vertex("store", busy_ms=10.0)), POLICY)
    assert found.upper == {"slow": 3, "store": 3}
    apart = decide(snapshot(BUSY, vertex("store", busy_ms=10.0, group="sinks")), POLICY)
    assert apart.upper == {"slow": 3}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "RESTARTING", "scheduler_state": "Restarting"}, "The job is RESTARTING (Restarting)"),
        ({"scheduler_state": "Rescaling"}, "The job is RUNNING (Rescaling)"),
        ({"since_ms": NOW_MS - 20_000}, "has run for 20 s since its last change, start or takeover"),
        ({"load": None}, "Nothing was measured yet"),
        ({"load": replace(LOAD, rows_per_second=float("nan"))}, "not a number that can be"),
        ({"load": replace(LOAD, backlog_rows=float("inf"))}, "not a number that can be"),
        ({"load": replace(LOAD, batch_ms=-1.0)}, "not a number that can be"),
        ({"vertices": (vertex(busy_ms=float("nan")),)}, "not a number that can be"),
        ({"quiet_ms": 31_000}, "No batch was committed for 31 s"),
        (
            {"load": replace(LOAD, rows_per_second=0.0, backlog_rows=5.0)},
            "Rows wait at the sources, but none",
        ),
        ({"vertices": (vertex(busy_ms=0.0),)}, "Spark reported no task times"),
    ],
)
def test_nothing_is_decided_by_figures_that_say_nothing(changes: dict[str, object], words: str) -> None:
    found = decide(snapshot(**changes), POLICY)
    assert (found.action, found.upper) == (Action.NONE, {})
    assert words in found.reason


def test_a_job_with_nothing_to_do_needs_no_more_than_the_least() -> None:
    idle = replace(LOAD, rows_per_second=0.0, batch_ms_per_second=0.0)
    seen = snapshot(LAZY, load=idle, is_idle=True, quiet_ms=500_000, memory=recommended({610: 1}))
    assert decide(seen, POLICY).upper == {"slow": 1}


def test_an_unknown_backlog_is_said() -> None:
    found = decide(snapshot(load=replace(LOAD, backlog_rows=None, growth_per_second=None)), POLICY)
    assert found.reason.startswith("100 rows/s are processed, the backlog is not known.")


def test_above_the_operator_s_ceiling_nothing_is_asked_for() -> None:
    busy = replace(BUSY, busy_ms=2_000.0, operator=FloorCeiling(ceiling=4))
    found = decide(snapshot(busy), POLICY)
    assert found.upper == {"slow": 4}
    assert "The operator's ceiling holds slow at 4: without it, 6 would be recommended." in found.reason
    there = replace(busy, parallelism=4, upper=4, busy_ms=1_000.0)
    found = decide(snapshot(there), POLICY)
    assert (found.action, found.upper) == (Action.NONE, {})
    assert (
        "holds slow at 4: without it, 6 would be recommended. All vertices are at the limits" in found.reason
    )


@pytest.mark.parametrize(
    ("upper", "operator"),
    [
        (1, FloorCeiling(floor=2)),
        (1, FloorCeiling(floor=2, ceiling=2)),
        (2, FloorCeiling(ceiling=2)),
        (8, FloorCeiling(ceiling=2)),
        (8, FloorCeiling(floor=2, ceiling=2)),
    ],
)
def test_what_the_operator_has_corrected_is_not_declared_again(upper: int, operator: FloorCeiling) -> None:
    """Whatever is declared, two tasks are what counts, and what the load asks for."""
    at_two = vertex(parallelism=2, upper=upper, busy_ms=700.0, operator=operator)
    assert at_two.effective.upper == 2
    assert decide(snapshot(at_two), replace(POLICY, scale_down_window_ms=0)).upper == {}


def test_below_the_operator_s_floor_nothing_is_taken_away() -> None:
    lazy = replace(LAZY, operator=FloorCeiling(floor=3))
    now = replace(POLICY, scale_down_window_ms=0)
    found = decide(snapshot(lazy), now)
    assert found.upper == {"slow": 3}
    assert "The operator's floor holds slow at 3: without it, 1 would be recommended." in found.reason
    assert decide(snapshot(replace(lazy, parallelism=3, upper=3)), now).upper == {}


def test_the_operator_goes_before_the_policy_and_the_lower_bound() -> None:
    own = replace(POLICY, parallelism=Range(1, 2))
    assert decide(snapshot(replace(BUSY, operator=FloorCeiling(floor=5))), own).upper == {}
    low = vertex(parallelism=3, lower=6, upper=8, busy_ms=5_000.0, operator=FloorCeiling(ceiling=3))
    found = decide(snapshot(low), POLICY)
    assert (found.upper, found.action) == ({}, Action.NONE), "its lower bound forbids an upper bound of 3"

"""What more tasks have brought, slots that the cluster does not have, and changes that other jobs cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.autoscaler.decide import decide
from app.autoscaler.loop import Loop, Refusal
from app.autoscaler.policy import Policy, Range
from app.autoscaler.reading import _steady_ms
from app.autoscaler.seen import Action, Memory, StepUp
from tests.unit.autoscaler.jobs import LOAD, NOW_MS, snapshot, vertex
from tests.unit.autoscaler.model_job import ModelJob, drive

POLICY = Policy()
HOUR_MS = 3_600_000
BEHIND = replace(
    LOAD,
    backlog_rows=50_000.0,
    growth_per_second=50.0,
    batch_ms_per_second=1_000.0,
    rows_per_busy_second=100.0,
)
"""100 rows in each second, which is all spent in batches."""


STEP = StepUp({"slow": 2}, {"slow": 4}, 100.0, 1.0, NOW_MS - 150_000)


def one_part(**changes: Any) -> ModelJob:
    """A job whose source has one part, so one task has all of the rows: 50 of 200 in each second."""
    return ModelJob(lambda _: 200, **{"parts": 1, "limit_rows": 500, "slots": 16, **changes})


def test_a_step_that_brought_nothing_is_taken_back_and_not_repeated() -> None:
    job = one_part(upper=2, parallelism=2)
    drive(job, Loop(job, "job", POLICY), HOUR_MS - 60_000)
    assert [upper for _, upper, _ in job.declared][1:] == [2], "one step up, and back"
    reason = job.declared[1][2]
    assert "were expected" in reason and "and no more for 60 min" in reason


def test_after_a_while_one_step_is_tried_again() -> None:
    job = one_part(upper=2, parallelism=2)
    drive(job, Loop(job, "job", POLICY), 3 * HOUR_MS)
    levels = [upper for _, upper, _ in job.declared]
    assert levels[1::2] == [2] * (len(levels) // 2) and 4 <= len(levels) <= 6


def test_a_source_with_parts_for_all_keeps_what_it_got() -> None:
    job = one_part(parts=1_000)
    drive(job, Loop(job, "job", POLICY), HOUR_MS)
    assert 5 <= job.upper <= 8
    assert not any("brought" in reason for *_, reason in job.declared)


def test_no_more_tasks_than_the_cluster_has_slots() -> None:
    job = one_part(parts=1_000, slots=3)
    loop = Loop(job, "job", POLICY)
    drive(job, loop, HOUR_MS)
    assert max(upper for _, upper, _ in job.declared) == 3
    decision = loop.turn().decision
    assert decision is not None and "The cluster has 3 slots" in decision.reason


def test_no_more_tasks_are_asked_for_where_some_have_no_rows() -> None:
    job = one_part(upper=2, parallelism=2, tells_tasks=True)
    loop = Loop(job, "job", POLICY)
    drive(job, loop, HOUR_MS)
    assert job.declared == []
    decision = loop.turn().decision
    assert decision is not None and "slow ran as 1 of its 2 tasks" in decision.reason


def test_slots_are_counted_over_groups() -> None:
    vertices = (vertex("a", 2, group="one", busy_ms=480.0), vertex("b", 2, group="other", busy_ms=480.0))
    found = decide(snapshot(*vertices, load=BEHIND, slots=7), POLICY)
    assert sum((found.upper or {}).values()) == 7


def judged(
    rows_per_second: float, *, expected_gain: float = 1.0, parallelism: int = 4, upper: int = 4
) -> Any:
    """A job that had worked off 100 rows in a second of batches with 2 tasks."""
    step = replace(STEP, expected_gain=expected_gain)
    seen = snapshot(
        vertex(parallelism=parallelism, upper=upper, busy_ms=950.0),
        load=replace(BEHIND, rows_per_second=rows_per_second, rows_per_busy_second=rows_per_second),
        memory=Memory(step=step),
    )
    return decide(seen, POLICY)


def test_a_step_is_judged_by_what_was_expected_of_it() -> None:
    assert judged(105).upper == {"slow": 2}
    assert judged(115).upper != {"slow": 2}
    assert judged(103, expected_gain=0.2).upper != {"slow": 2}, "too small a step to tell"
    assert judged(105).memory.held is not None and judged(115).memory.held is None


def test_a_step_is_not_judged_before_it_is_in_force() -> None:
    found = judged(100, parallelism=2)
    assert found.memory.held is None and found.memory.step is not None
    assert found.upper != {"slow": 2}
    # 3 of 4 tasks: half as many more than before, where all were to bring twice as much.
    assert (
        judged(104, parallelism=3).memory.held is not None and judged(106, parallelism=3).memory.held is None
    )


def test_a_step_that_others_have_changed_says_nothing() -> None:
    found = judged(100, parallelism=3, upper=3)
    assert found.memory.held is None and found.memory.step != STEP


def test_nothing_is_held_in_another_attempt() -> None:
    memory = judged(100).memory
    seen = snapshot(vertex(upper=2, busy_ms=950.0), load=BEHIND, memory=memory)
    assert decide(seen, POLICY).action is Action.NONE
    assert "were tried, and brought nothing" in decide(seen, POLICY).reason
    again = decide(replace(seen, attempt=seen.attempt + 1), POLICY)
    assert again.action is Action.SCALE and again.memory.held is None


def record(end_ms: int | None, cause: str, state: str | None = "COMPLETED") -> dict[str, Any]:
    return {"endTimestampInMillis": end_ms, "triggerCause": cause, "terminalState": state}


SLOTS, BOUNDS = "NEW_RESOURCE_AVAILABLE", "UPDATE_REQUIREMENT"


@pytest.mark.parametrize(
    ("records", "since_ms", "expected"),
    [
        ([], 50_000, 50_000),
        ([record(50_000, BOUNDS)], 50_000, 50_000),
        # Slots that came, after bounds of its own.
        ([record(50_000, SLOTS), record(40_000, SLOTS), record(9_000, BOUNDS)], 50_100, 9_000),
        # All that is known of it was for slots.
        ([record(50_000, SLOTS)], 50_000, 0),
        # A start or a takeover came after that.
        ([record(50_000, SLOTS), record(9_000, BOUNDS)], 70_000, 70_000),
        # What came to nothing, or goes on, has changed nothing.
        ([record(None, BOUNDS, None), record(60_000, BOUNDS, "IGNORED"), record(50_000, SLOTS)], 50_000, 0),
    ],
)
def test_slots_that_come_and_go_are_no_change_of_the_job(
    records: list[dict[str, Any]], since_ms: int, expected: int
) -> None:
    assert _steady_ms(records, since_ms) == expected


def test_a_neighbour_that_takes_and_gives_slots_does_not_stop_decisions() -> None:
    job = ModelJob(lambda _: 400, upper=2, parallelism=2, slots=32)
    loop = Loop(job, "job", POLICY)
    for _ in range(60):
        drive(job, loop, 20_000)
        job.since_ms = job.now_ms
        job.records.insert(0, record(job.now_ms, SLOTS))
    assert job.upper >= 8


def test_the_job_is_steady_if_only_its_slots_have_changed() -> None:
    seen = snapshot(since_ms=NOW_MS - 5_000, steady_ms=NOW_MS - 600_000)
    assert "has run for" not in decide(seen, POLICY).reason
    assert "has run for 5 s" in decide(replace(seen, steady_ms=None), POLICY).reason


@pytest.mark.parametrize(
    "changes", [{"since_ms": NOW_MS - 100_000}, {"load": replace(BEHIND, length_ms=30_000)}]
)
def test_a_step_is_not_judged_by_the_minute_in_which_its_tasks_warm_up(changes: dict[str, Any]) -> None:
    """Nor is there another one until then. Slots may come long after the bounds were declared."""
    step = STEP
    seen = snapshot(vertex(parallelism=4, busy_ms=950.0), load=BEHIND, memory=Memory(step=step))
    assert decide(seen, POLICY).upper == {"slow": 2}
    found = decide(replace(seen, steady_ms=NOW_MS - 600_000, **changes), POLICY)
    assert (found.action, found.memory.step) == (Action.NONE, step)
    assert "is not known yet" in found.reason


def test_of_several_queries_it_is_not_known_which_has_gained() -> None:
    step = STEP
    vertices = (vertex("slow", 4, busy_ms=950.0), vertex("fast", 1, busy_ms=10.0))
    seen = snapshot(*vertices, queries=(("slow",), ("fast",)), load=BEHIND, memory=Memory(step=step))
    assert decide(seen, POLICY).memory.held is None


def test_bounds_that_a_user_has_raised_since_stay() -> None:
    memory = judged(100).memory
    seen = snapshot(vertex(parallelism=8, busy_ms=700.0), memory=replace(memory, recommended=()))
    assert decide(seen, replace(POLICY, scale_down_window_ms=0)).action is Action.NONE


def test_what_is_only_recommended_is_not_judged() -> None:
    policy = replace(POLICY, recommend_only=True)
    found = decide(snapshot(vertex(busy_ms=950.0), load=BEHIND), policy)
    assert (found.action, found.memory.step) == (Action.RECOMMEND, None)


def test_a_step_back_stays_within_the_policy() -> None:
    step = STEP
    seen = snapshot(vertex(parallelism=4, busy_ms=950.0), load=BEHIND, memory=Memory(step=step))
    assert decide(seen, replace(POLICY, parallelism=Range(min=3))).upper == {"slow": 3}


def test_a_step_back_that_the_server_refused_is_declared_again() -> None:
    job = one_part(upper=2, parallelism=2)
    loop = Loop(job, "job", POLICY)
    while not job.declared:
        drive(job, loop, 10_000)
    put = job.put

    def refuses(*given: Any, **more: Any) -> None:
        job.put = put  # type: ignore[method-assign]
        raise Refusal(503, "Too much to do.")

    job.put = refuses  # type: ignore[method-assign]
    drive(job, loop, 600_000)
    assert [upper for _, upper, _ in job.declared][1:] == [2]

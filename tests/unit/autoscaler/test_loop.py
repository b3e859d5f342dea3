"""The loop around a job in virtual time: a day's curve, constant loads, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from app.autoscaler.loop import Loop, Refusal
from app.autoscaler.policy import Policy, Range
from app.autoscaler.seen import Action
from tests.unit.autoscaler.model_job import START_MS, ModelJob, drive

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
POLICY = Policy(interval_ms=30_000, parallelism=Range(2, 20))
DAYLONG = replace(POLICY, interval_ms=MINUTE_MS)


def day(at_ms: int) -> float:
    """100 rows per second at night, 500 in the afternoon: two to ten tasks' worth of work."""
    return 300 - 200 * math.cos(2 * math.pi * at_ms / (24 * HOUR_MS))


def test_a_day_is_followed_without_flapping() -> None:
    job = ModelJob(day, lower=2, upper=8, parallelism=8)
    drive(job, Loop(job, "job", DAYLONG), 24 * HOUR_MS)
    levels = [upper for _, upper, _ in job.declared]
    # Up with the morning and down with the evening, once over each level.
    turns = [one < two for one, two in pairwise(levels)]
    changes_of_direction = sum(one != two for one, two in pairwise(turns))
    assert changes_of_direction <= 2
    assert len(levels) <= 24 and min(levels) >= 2 and max(levels) <= 20
    # A backlog of ten seconds at most, and fewer slots than the afternoon needs all day.
    assert max(job.backlogs) < 10 * 500
    assert job.slot_ms < 0.75 * 24 * HOUR_MS * max(levels)


def test_tasks_that_cost_by_themselves_are_taken_away_in_the_evening() -> None:
    """Without rows they are busy for more than half of the time: batches follow each other without a pause."""
    job = ModelJob(day, own_ms=400, lower=1, upper=8, parallelism=8)
    loop = Loop(job, "job", DAYLONG)
    drive(job, loop, 12 * HOUR_MS)
    assert job.upper >= 10 / 0.85
    drive(job, loop, 12 * HOUR_MS)
    assert job.upper <= 5 and len(job.declared) <= 30
    assert max(job.backlogs) < 10 * 500


@pytest.mark.parametrize(("rows_per_second", "seed"), [(10, 1), (60, 2), (130, 3), (333, 4), (700, 5)])
def test_a_constant_load_is_settled_and_stays_so(rows_per_second: int, seed: int) -> None:
    job = ModelJob(lambda _: rows_per_second, upper=6, parallelism=6, seed=seed)
    loop = Loop(job, "job", replace(POLICY, parallelism=Range(max=30)))
    drive(job, loop, 2 * HOUR_MS)
    settled = job.upper
    assert len(job.declared) <= 4
    drive(job, loop, 4 * HOUR_MS)
    assert [upper for at_ms, upper, _ in job.declared if at_ms > START_MS + 2 * HOUR_MS] == []
    # As many as the work needs, and at most 2.5 times as many.
    needed = rows_per_second * job.row_ms / 1000
    assert needed < settled <= max(2, 2.5 * needed)


def test_a_constant_load_does_not_flap_where_tasks_cost_much_by_themselves() -> None:
    """What they cost is not told apart from what rows cost, as there is one load only: there stay too many."""
    job = ModelJob(lambda _: 130, own_ms=400, upper=8, parallelism=8)
    drive(job, Loop(job, "job", POLICY), 4 * HOUR_MS)
    assert len(job.declared) <= 2 and job.upper >= 3


def test_a_job_that_is_well_is_not_given_more_because_of_one_slow_task() -> None:
    """Rows for two tasks, of which one has nearly a third alone. Time is used up by three quarters."""
    job = ModelJob(lambda _: 90, hot=0.3, loss=0.0, upper=8, parallelism=8)
    drive(job, Loop(job, "job", replace(POLICY, parallelism=Range(max=30))), HOUR_MS)
    assert [upper for _, upper, _ in job.declared if upper > 8] == []


def test_a_rescale_that_was_taken_back_is_not_tried_again() -> None:
    job = ModelJob(
        lambda _: 400, upper=4, parallelism=2, rollback={"rescale": 7, "reason": "Too many connections."}
    )
    turn = Loop(job, "job", POLICY)
    turns = drive(job, turn, 10 * MINUTE_MS)
    assert job.declared == []
    decision = turns[-1].decision
    assert decision is not None and "taken back, and nothing is changed" in decision.reason
    assert "Too many connections." in decision.reason


@pytest.mark.parametrize(
    ("requirements", "trouble"),
    [
        ({"another": {}}, "A new version of the job came between two requests."),
        ({}, "The program has not started a query yet, so it has no vertices."),
    ],
)
def test_a_job_that_has_other_vertices_in_a_moment_is_looked_at_again(
    requirements: Any, trouble: str
) -> None:
    job = ModelJob(day)
    get = job.get
    job.get = lambda path: (requirements, None) if path.endswith("requirements") else get(path)  # type: ignore[method-assign]
    turn = Loop(job, "job", POLICY).turn()
    assert turn.trouble == trouble and turn.pause_ms == 60_000


def test_only_the_job_itself_may_be_missing() -> None:
    """A vertex that is not there any more belongs to the version before."""
    job = ModelJob(day)
    get = job.get

    def without_vertices(path: str) -> Any:
        if "/vertices/" in path:
            raise Refusal(404, "No such vertex.")
        return get(path)

    job.get = without_vertices  # type: ignore[method-assign]
    assert Loop(job, "job", POLICY).turn().trouble == "No such vertex."


def test_what_another_program_s_tasks_cost_is_forgotten() -> None:
    job = ModelJob(day, upper=8, parallelism=8)
    loop = Loop(job, "job", POLICY)
    drive(job, loop, HOUR_MS)
    assert len(loop.memory.profile) >= 1 and loop.memory.attempt == 1
    job.attempt = 2
    drive(job, loop, MINUTE_MS)
    assert len(loop.memory.profile) == 1 and loop.memory.attempt == 2


def test_a_sudden_load_is_caught_up_with() -> None:
    job = ModelJob(lambda at_ms: 40 if at_ms < HOUR_MS else 400, upper=2, parallelism=2)
    loop = Loop(job, "job", replace(POLICY, interval_ms=10_000))
    drive(job, loop, HOUR_MS + 12 * MINUTE_MS)
    assert job.backlogs[-1] < 10 * 400
    assert job.upper >= 9


def test_only_recommended_is_never_declared() -> None:
    job = ModelJob(day, upper=8, parallelism=8)
    turns = drive(job, Loop(job, "job", replace(POLICY, recommend_only=True)), 2 * HOUR_MS)
    assert job.declared == [] and job.version == 1
    found = {turn.decision.action for turn in turns if turn.decision is not None}
    assert found == {Action.NONE, Action.RECOMMEND}


def test_the_reason_is_written_with_the_bounds() -> None:
    job = ModelJob(lambda _: 400, upper=2, parallelism=2)
    drive(job, Loop(job, "job", POLICY), 10 * MINUTE_MS)
    assert job.declared and all(reason.startswith("autoscaler: ") for _, _, reason in job.declared)


def test_refusals_are_waited_out_for_longer_and_longer() -> None:
    job = ModelJob(day, upper=8, parallelism=8)
    loop = Loop(job, "job", POLICY)
    statuses = (503, 429, None, 412, 409, 500)
    job.refusals.extend(Refusal(status, f"No: {status}.") for status in statuses)
    turns = [loop.turn() for _ in range(len(statuses) + 1)]
    assert [turn.pause_ms for turn in turns] == [60_000, 120_000, 240_000, 300_000, 300_000, 300_000, 30_000]
    assert [turn.trouble for turn in turns] == [*(f"No: {status}." for status in statuses), None]
    assert job.declared == []


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_that_waiting_does_not_change_ends_it(status: int) -> None:
    job = ModelJob(day)
    job.refusals.append(Refusal(status, "No."))
    with pytest.raises(Refusal):
        Loop(job, "job", POLICY).turn()


def test_what_another_declared_meanwhile_is_not_written_over() -> None:
    job = ModelJob(lambda _: 400, upper=2, parallelism=2)
    loop = Loop(job, "job", POLICY)
    put = job.put

    def after_another(path: str, body: Any, *, if_match: str | None, reason: str) -> None:
        if job.version == 1:
            job.version, job.upper = 2, 3
        put(path, body, if_match=if_match, reason=reason)

    job.put = after_another  # type: ignore[method-assign]
    turns = drive(job, loop, 5 * MINUTE_MS)
    refused = [turn for turn in turns if turn.trouble]
    assert [turn.trouble for turn in refused] == ["The requirements are at version 2."]
    assert job.declared and all(upper > 3 for _, upper, _ in job.declared)


def test_an_ended_job_ends_the_loop() -> None:
    job = ModelJob(day, status="FINISHED")
    assert Loop(job, "job", POLICY).turn().ended == "FINISHED"


def test_after_a_takeover_it_measures_anew() -> None:
    """Another server begins its figures at 0, and says so by the time since when the job runs."""
    job = ModelJob(day, upper=8, parallelism=8)
    loop = Loop(job, "job", POLICY)
    drive(job, loop, 10 * MINUTE_MS)
    job.since_ms = job.now_ms
    turn = loop.turn()
    assert turn.decision is not None and "start or takeover" in turn.decision.reason


def test_under_a_ceiling_and_above_a_floor_nothing_is_declared_in_vain() -> None:
    job = ModelJob(day, lower=1, upper=8, parallelism=8, floor=5, ceiling=8)
    turns = drive(job, Loop(job, "job", DAYLONG), 24 * HOUR_MS)
    levels = [upper for _, upper, _ in job.declared]
    assert levels and (min(levels), max(levels)) == (5, 8)
    reasons = [turn.decision.reason for turn in turns if turn.decision is not None]
    for word in ("ceiling", "floor"):
        assert any(f"The operator's {word} holds slow at" in reason for reason in reasons)

"""When a running job rescales: cooldown C, stabilisation S, max trigger delay D, and a change at instant c.

The numbers are those of production Flink (FLIP-461 and FLIP-472): all three count from c, or C from the entry into
Executing, and do not add up. A committed micro-batch is our completed checkpoint.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.model.plan import Slot
from app.model.slot_share import SlotShare
from app.scheduler.adaptive import transition_manager
from app.scheduler.adaptive.draft import MAX_SPANS, OMITTED
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptStartFailed,
    SlotsChanged,
    SlotShareUpdated,
    StartScheduling,
    TimerFired,
)
from app.scheduler.adaptive.state import Executing, Manager
from app.scheduler.adaptive.transition_manager import ManagerOutcome, Outlook, Timing
from tests.unit.scheduler.driving import Job, chain, mixed, slots

COOLDOWN = "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"
STABILIZATION = "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout"
MAX_DELAY = "jobmanager.adaptive-scheduler.rescale-trigger.max-delay"
MAX_FAILURES = "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures"


def job_with(cooldown_s: int, stabilization_s: int, max_delay_s: int, **more: Any) -> Job:
    """Runs at 2 of 4, and changes by a restart only."""
    options: dict[str, object] = {
        COOLDOWN: f"{cooldown_s} s",
        STABILIZATION: f"{stabilization_s} s",
        MAX_DELAY: f"{max_delay_s} s",
    }
    return Job(chain(in_place=False), upper=4, options={**options, **more}).run(held=2)


def seconds_to_restart(job: Job, limit_s: int = 10_000, batch_every_s: int | None = None) -> int | None:
    """How long until the job restarts, to the second; batches are committed at multiples of the interval."""
    for second in range(limit_s):
        if job.kind == "Restarting":
            return second
        job.wait(1_000)
        if batch_every_s and (second + 1) % batch_every_s == 0 and job.kind == "Executing":
            job.commit()
    return None


# (C, S, D, change at, desired) -> seconds from the change to the restart when no batch is ever committed
WITHOUT_BATCHES = [
    (0, 60, 90, 0, False, 90),
    (0, 60, 90, 0, True, 90),
    (0, 60, 10, 0, False, 60),
    (0, 60, 10, 0, True, 10),
    (30, 60, 10, 5, False, 60),
    (30, 60, 10, 5, True, 25),
    (30, 10, 3, 5, False, 25),
    (30, 10, 3, 5, True, 25),
    (60, 10, 20, 5, False, 55),
    (60, 10, 80, 5, False, 80),
    (30, 60, 3, 100, False, 60),
    (30, 60, 3, 100, True, 3),
    (30, 60, 0, 100, True, 0),
    (0, 0, 0, 0, False, 0),
]


@pytest.mark.parametrize(("cooldown", "stable", "delay", "change", "desired", "expected"), WITHOUT_BATCHES)
def test_without_a_batch_the_longest_of_the_three_decides(
    cooldown: int, stable: int, delay: int, change: int, desired: bool, expected: int
) -> None:
    job = job_with(cooldown, stable, delay).wait(change * 1_000)
    job.hold(4 if desired else 3)
    assert seconds_to_restart(job) == expected
    left = max(0, cooldown - change)
    assert expected == (max(left, delay) if desired else max(left, stable, delay))
    assert job.state.num_rescales == 1


@pytest.mark.parametrize(
    ("cooldown", "stable", "delay", "change", "desired", "expected"),
    [
        (
            0,
            60,
            600,
            0,
            False,
            70,
        ),  # at c + S the next batch decides: they come every 10 s, from the change on
        (0, 60, 600, 0, True, 10),
        (30, 60, 600, 5, True, 30),
        (30, 60, 600, 5, False, 70),
        (60, 10, 600, 5, False, 60),
        (30, 60, 600, 100, True, 10),
    ],
)
def test_a_committed_batch_brings_the_restart_forward(
    cooldown: int, stable: int, delay: int, change: int, desired: bool, expected: int
) -> None:
    """To the first batch after c + max(remaining cooldown, S), or after the remaining cooldown if all are there.

    A batch at exactly c + S counts only if the timer of that instant was dealt with before, as it is here: the
    stabilisation ends at 60 s, and the batch of 60 s restarts the job.
    """
    job = job_with(cooldown, stable, delay).wait(change * 1_000)
    job.hold(4 if desired else 3)
    found = seconds_to_restart(job, batch_every_s=10)
    earliest = max(0, cooldown - change) if desired else max(0, cooldown - change, stable)
    first_batch = -(-max(earliest, 1) // 10) * 10
    assert found == first_batch
    assert expected in (first_batch, first_batch + 10)


def test_with_a_cap_all_slots_that_it_allows_are_the_desired_ones() -> None:
    job = job_with(0, 60, 10).do(SlotShareUpdated(SlotShare(2, cap=3)))
    job.hold(3)
    assert seconds_to_restart(job) == 10, "the stabilisation would be a wait for a slot that may not be used"


def test_rule_1_cooldown_starts_when_executing_is_entered_also_after_the_first_start_and_a_failover() -> None:
    job = job_with(30, 60, 3)
    assert job.timer_in_ms("cooldown") == 30_000
    job.wait(100_000)
    assert job.stage == "Idling"
    job.do(AttemptFailed(1, "boom", stopped=True)).wait(1_500)
    job.wait(10_000).starts()
    assert (job.kind, job.timer_in_ms("cooldown")) == ("Executing", 30_000)


def test_rule_2_a_change_is_noted_if_it_sufficed_at_that_moment_and_only_the_first_one() -> None:
    job = job_with(30, 60, 3).wait(2_000)
    job.hold(2).do(SlotsChanged((*slots(1), Slot("x", "x"))))
    assert _manager(job).change_ms is None, "an exchange of slots changes nothing"
    job.hold(3)
    noted = _manager(job).change_ms
    assert noted == job.now_ms
    job.wait(1_000).hold(4).wait(1_000).hold(2)
    assert _manager(job).change_ms == noted, "and it stays noted when the slots vanish"


def test_rule_3_more_slots_do_not_extend_the_stabilisation_and_fewer_do_not_reset_it() -> None:
    job = job_with(0, 60, 600).hold(3)
    job.wait(20_000).hold(2).wait(20_000).hold(3).wait(19_999)
    assert job.stage == "Stabilizing"
    assert job.wait(1).stage == "Stabilized"


def test_rule_5_desired_in_stabilizing_waits_for_a_batch_or_for_the_evaluation_at_change_plus_d() -> None:
    job = job_with(0, 60, 40).hold(3)
    job.wait(10_000).hold(4)
    assert job.kind == "Executing"
    job.wait(29_999)
    assert job.kind == "Executing"
    job.wait(1)
    assert job.kind == "Restarting", "the evaluation of the first change is the one that is pending"


def test_rule_5_an_evaluation_that_found_nothing_is_followed_by_one_at_the_next_change_plus_d() -> None:
    job = job_with(0, 600, 40).hold(3).wait(50_000)
    assert job.kind == "Executing"
    job.hold(4).wait(39_999)
    assert job.kind == "Executing"
    assert job.wait(1).kind == "Restarting"


def test_rule_7_after_falling_back_to_idling_nothing_is_due_until_the_next_change() -> None:
    job = job_with(0, 60, 90).hold(3).wait(30_000).hold(2)
    job.wait(10**7)
    assert job.stage == "Idling"
    assert [timer.name for timer in job.state.timers] == []
    assert job.state.num_rescales == 0
    job.hold(3)
    assert job.stage == "Stabilizing"


def test_rule_8_without_a_cooldown_the_look_on_entry_meets_idling() -> None:
    assert job_with(0, 60, 3).stage == "Idling"


# -- what was found by review


def test_a_batch_that_is_reported_before_the_timer_of_its_instant_loses_nothing() -> None:
    """The mailbox may hold the batch before the timer: the cooldown is over then, whoever says so first."""
    job = job_with(30, 0, 0).wait(1_000).hold(4)
    assert job.stage == "Cooldown"
    job.now_ms += 29_000
    job.commit()
    assert job.kind == "Restarting"


def test_a_batch_after_the_cooldown_moves_the_manager_on_and_its_timer_is_held() -> None:
    job = job_with(30, 60, 90).wait(1_000).hold(3)
    job.now_ms += 29_000
    job.commit()
    assert job.stage == "Stabilizing"
    assert job.timer_in_ms("stabilization") == 31_000


def test_a_clock_that_jumps_forward_takes_every_stage_in_one_step() -> None:
    job = job_with(30, 60, 90).wait(1_000).hold(3)
    timer = next(one for one in job.state.timers if one.name == "cooldown")
    job.now_ms += 3_600_000
    job.do(TimerFired(timer.name, timer.version))
    assert job.kind == "Restarting"
    assert job.state.num_rescales == 1


def test_a_clock_that_is_set_back_only_delays() -> None:
    """A change is noted at an instant that is in the future afterwards; nothing is lost, and nothing comes early."""
    job = job_with(0, 60, 90).wait(100_000).hold(3)
    began = job.now_ms
    job.now_ms -= 50_000
    job.hold(2).hold(3)
    assert job.stage == "Stabilizing"
    assert seconds_to_restart(job) == 50 + 90
    assert job.now_ms == began + 90_000


DAMPED_IN_PLACE = {
    "slotwise.in-place.resource-stabilization-timeout": "10 s",
    "slotwise.in-place.max-delay": "2 s",
    COOLDOWN: "30 s",
    STABILIZATION: "5 s",
    MAX_DELAY: "1 s",
}


def test_a_change_that_begins_in_place_and_becomes_one_by_restart_still_waits_for_the_cooldown_of_restarts() -> (
    None
):
    job = Job(mixed(), upper=2, options=DAMPED_IN_PLACE).run(held=4)
    assert job.parallelism == [2, 2, 2]
    job.wait(1_000).put_each(source=(1, 2), agg=(1, 2), sink=(1, 3)).do(SlotsChanged(slots(5)))
    job.put_each(source=(1, 2), agg=(1, 2), sink=(1, 4))
    assert job.stage == "Stabilizing", "the sink changes in place, without a cooldown"
    job.wait(1_000).put_each(source=(1, 1), agg=(1, 1), sink=(1, 4))
    assert (job.kind, job.stage) == ("Executing", "Cooldown")
    job.commit().wait(27_999)
    assert job.kind == "Executing"
    job.wait(2_000).commit()
    assert job.kind == "Restarting"


def test_a_change_in_place_does_not_wait_for_the_cooldown_of_restarts() -> None:
    job = Job(upper=4).run(held=2).hold(4)
    assert job.kind == "Rescaling"


@pytest.mark.parametrize(("restart_s", "in_place_s"), [(10, 40), (40, 10)])
def test_without_a_change_the_cooldown_ends_with_the_longer_of_the_two(
    restart_s: int, in_place_s: int
) -> None:
    cooldowns = {COOLDOWN: f"{restart_s} s", "slotwise.in-place.cooldown": f"{in_place_s} s"}
    job = Job(upper=4, options=cooldowns).run(held=2)
    assert job.wait(39_999).stage == "Cooldown"
    assert job.wait(1).stage == "Idling"


def test_slots_that_flap_do_not_make_a_record_or_its_message_grow_without_end() -> None:
    job = Job(chain(in_place=False), upper=4, options={COOLDOWN: "1 d"}).run(held=4)
    for turn in range(300):
        job.wait(1_000).hold(2 if turn % 2 else 3)
    record = job.state.timeline.open
    assert record is not None and len(record.message or "") < 200
    assert len(job.records) < 5


def test_starts_that_fail_for_days_do_not_make_a_record_grow_without_end() -> None:
    creation = "jobmanager.adaptive-scheduler.retry-execution-graph-creation.restart-strategy."
    job = Job(options={creation + "type": "fixed-delay", creation + "fixed-delay.attempts": "100000"})
    job.do(StartScheduling()).hold(2)
    for _ in range(200):
        job.do(AttemptStartFailed(job.state.attempt, "no java")).wait(1_000)
        assert job.kind == "CreatingExecutionGraph"
    spans = job.open.spans
    assert len(spans) <= MAX_SPANS + 1
    assert [one.state for one in spans].count(OMITTED) == 1
    assert spans[0].state == "Created" and spans[-1].state == "WaitingForResources"


# -- the manager by itself


def _manager(job: Job) -> Manager:
    assert isinstance(job.state.phase, Executing)
    return job.state.phase.manager


@pytest.mark.parametrize("stage", ["Cooldown", "Idling", "Stabilizing", "Stabilized"])
@pytest.mark.parametrize("sufficient", [True, False])
@pytest.mark.parametrize("at_ms", [0, 1, 29_999, 30_000, 60_000, 90_000, 10**9])
def test_a_timer_that_fired_is_never_due_again_at_once(stage: str, sufficient: bool, at_ms: int) -> None:
    """Else the shell would fire it for ever."""
    outlook = Outlook(sufficient, False, Timing(30_000, 60_000, 90_000), 30_000)
    change = None if stage in ("Cooldown", "Idling") else 0
    before = Manager(stage, 0, change, change, 90_000 if stage == "Stabilizing" else None)  # type: ignore[arg-type]
    due = transition_manager.next_due_ms(before, outlook)
    if due is None:
        assert stage == "Idling"
        return
    now_ms = max(due[1], at_ms)
    after, outcome = transition_manager.on_time(before, outlook, now_ms)
    if outcome is ManagerOutcome.NOTHING:
        again = transition_manager.next_due_ms(after, outlook)
        assert again is None or again[1] > now_ms

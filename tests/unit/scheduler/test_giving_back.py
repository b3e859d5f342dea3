"""A job is to give slots back for others: in place and at once, and what no plan uses goes."""

from __future__ import annotations

from app.scheduler.adaptive.effects import ReleaseSlots, SendPlan, StartAttempt, StopAttempt
from app.scheduler.adaptive.events import SlotsChanged, StartScheduling
from tests.unit.scheduler.driving import Job, chain, restarting_job, slots


def released(job: Job) -> list[str]:
    return [slot for effect in job.effects if isinstance(effect, ReleaseSlots) for slot in effect.slot_ids]


def in_use(job: Job) -> int:
    assert job.state.plan is not None
    return job.state.plan.slot_count


def test_parallelism_goes_down_first_and_the_slots_go_when_it_has() -> None:
    job = Job(chain(), upper=4).run(held=4)
    job.do(SlotsChanged(slots(4), allowed=2))
    (sent,) = [effect for effect in job.effects if isinstance(effect, SendPlan)]
    assert sent.plan.slot_count == 2 and released(job) == [], "tasks run in them still"
    job.applied()
    assert (len(released(job)), len(job.state.slots), in_use(job)) == (2, 2, 2)
    record = job.records[-1]
    assert record.message == "2 slot(s) are given back, for other jobs."
    assert record.terminal_state is not None and record.terminal_state.value == "COMPLETED"


def test_what_is_not_used_goes_at_once() -> None:
    job = Job(chain(), upper=2).run(held=2)
    job.hold(4)
    job.do(SlotsChanged(slots(4), allowed=2))
    assert job.kind == "Executing"
    assert sorted(released(job)) == [slot.id for slot in slots(4)[2:]]


def test_no_cooldown_holds_it_back_and_what_needs_a_restart_restarts() -> None:
    job = restarting_job(cooldown="1 h", stabilization="1 h", max_delay="1 h").hold(4)
    job.do(SlotsChanged(slots(4), allowed=1))
    assert job.kind == "Restarting"


def test_a_plan_on_its_way_that_uses_too_many_is_replaced() -> None:
    job = Job(chain(), upper=4).run(held=2)
    job.hold(4).wait(200)
    assert job.kind == "Rescaling"
    job.do(SlotsChanged(slots(4), allowed=3))
    (sent,) = [effect for effect in job.effects if isinstance(effect, SendPlan)]
    assert sent.plan.slot_count == 3
    job.applied()
    assert (in_use(job), len(job.state.slots)) == (3, 3)


def test_it_takes_them_up_again_when_it_may() -> None:
    job = Job(chain(), upper=4).run(held=4)
    job.do(SlotsChanged(slots(4), allowed=2)).applied()
    job.do(SlotsChanged(slots(4))).wait(200).applied()
    assert in_use(job) == 4


def test_an_attempt_that_is_being_started_gives_back_when_it_runs() -> None:
    job = Job(chain(), upper=4).do(StartScheduling()).do(SlotsChanged(slots(4)))
    assert job.kind == "CreatingExecutionGraph"
    job.do(SlotsChanged(slots(4), allowed=2))
    assert (job.kind, released(job)) == ("CreatingExecutionGraph", [])
    job.starts()
    assert job.kind == "Rescaling"
    job.applied()
    assert (in_use(job), len(job.state.slots)) == (2, 2)


def test_bounds_that_need_more_than_it_may_have_change_nothing() -> None:
    job = Job(chain(), lower=3, upper=4).run(held=4)
    job.do(SlotsChanged(slots(4), allowed=2))
    assert (job.kind, in_use(job), released(job)) == ("Executing", 4, [])


def test_a_job_that_waits_starts_with_what_it_may_have() -> None:
    job = Job(chain(), lower=1, upper=4)
    job.do(StartScheduling()).do(SlotsChanged(slots(4), allowed=2))
    assert len(job.state.slots) == 2, "nothing runs in the others"
    (started,) = [effect for effect in job.history if isinstance(effect, StartAttempt)]
    assert started.plan.slot_count == 2


def test_nothing_is_given_back_that_an_attempt_which_is_being_killed_may_use() -> None:
    job = Job(chain(), upper=4).do(StartScheduling()).hold(4)
    assert job.kind == "CreatingExecutionGraph"
    job.do(SlotsChanged(slots(3)))
    assert job.has_effect(StopAttempt) and job.state.driver.alive, "a planned slot is gone"
    job.do(SlotsChanged(slots(3), allowed=1))
    assert released(job) == [] and len(job.state.slots) == 3
    job.stops()
    assert len(job.state.slots) == 1

"""What a job can give while it runs: how far its parallelism goes down before something has to restart."""

from __future__ import annotations

import pytest

from app.model.slot_share import SlotShare
from app.scheduler.adaptive.effects import DeclareResources
from app.scheduler.adaptive.events import SlotsChanged, SlotShareUpdated, StartScheduling
from app.scheduler.adaptive.slot_declaration import Releasable, releasable_of
from tests.unit.batch.driving import BatchJob
from tests.unit.batch.driving import chain as batch_chain
from tests.unit.scheduler.driving import Job, chain, mixed, slots
from tests.unit.scheduler.phases import in_phase


def test_one_that_changes_in_place_can_come_down_to_its_lower_bounds() -> None:
    assert releasable_of(Job(chain(), lower=2, upper=8).run(held=8).state) == Releasable(True, True, 2)


def test_one_with_a_vertex_that_restarts_keeps_what_that_vertex_needs() -> None:
    job = Job(chain(in_place=False), upper=8).run(held=6)
    assert releasable_of(job.state).in_place_floor == 6
    job = Job(chain(in_place=False), upper=8)
    job.put_each(source=(1, 8), agg=(1, 2), sink=(1, 8)).run(held=6)
    assert releasable_of(job.state).in_place_floor == 2, "at 2 agg is as parallel as with 6"


def test_slots_of_several_groups_count_together() -> None:
    job = Job(mixed(), upper=4)
    job.put_each(source=(1, 4), agg=(1, 2), sink=(1, 4)).run(held=8)
    state = job.state
    floor = releasable_of(state).in_place_floor
    for count in range(2, 9):
        job.state = state
        job.do(SlotsChanged(slots(8), allowed=count))
        restarts = job.kind == "Restarting"
        assert restarts == (count < floor), (count, floor)


def test_a_plan_on_its_way_counts_and_one_that_is_killed_has_none() -> None:
    job = Job(chain(), upper=4).run(held=2)
    job.hold(4).wait(200)
    assert job.kind == "Rescaling"
    assert releasable_of(job.state) == Releasable(True, True, 1)
    assert releasable_of(in_phase("Restarting").state).in_place_floor == 0
    waiting = Job(chain(), lower=2, upper=4).do(StartScheduling())
    assert releasable_of(waiting.state) == Releasable(running=False)


def test_slots_of_a_plan_on_its_way_are_kept_if_the_next_change_needs_a_restart() -> None:
    job = Job(chain(in_place=False)).run(held=4)
    job.put_each(source=(1, 4), agg=(1, 2), sink=(1, 2)).wait(100)
    assert job.kind == "Rescaling" and releasable_of(job.state).in_place_floor == 2
    job.put_each(source=(1, 4), agg=(1, 1), sink=(1, 2))
    assert job.kind == "Rescaling" and releasable_of(job.state).in_place_floor == 4, "2 are those in force"


def test_a_batch_job_gives_nothing() -> None:
    job = BatchJob(batch_chain()).run()
    assert releasable_of(job.state) == Releasable(running=True, can_give=False)


@pytest.mark.parametrize(("lower", "held"), [(1, 1), (2, 5), (3, 9)])
def test_below_the_floor_it_restarts_and_from_it_on_it_does_not(lower: int, held: int) -> None:
    for in_place in (True, False):
        for limit in range(lower, 10):
            job = Job(chain(in_place=in_place), upper=9)
            job.put_each(source=(lower, 9), agg=(lower, limit), sink=(lower, 9)).run(held=max(held, lower))
            state, floor = job.state, releasable_of(job.state).in_place_floor
            for count in range(lower, held):
                job.state = state
                job.do(SlotsChanged(slots(held), allowed=count))
                assert (job.kind == "Restarting") == (count < floor), (in_place, limit, count, floor)


# -- the share in the core


def test_another_share_is_noted_and_the_cluster_is_told() -> None:
    job = Job(chain(), upper=4).run(held=4)
    share = SlotShare(2, weight=3, cap=2, requested_by="ann")
    job.do(SlotShareUpdated(share))
    assert job.state.share == share
    assert job.effect(DeclareResources) == DeclareResources(4, 1)
    job.do(SlotShareUpdated(share))
    assert job.effects == (), "it knows"


def test_it_begins_with_that_of_its_options() -> None:
    options: dict[str, object] = {
        "slotwise.slots.weight": 3,
        "slotwise.slots.priority": -1,
        "slotwise.slots.cap": 2,
    }
    job = Job(chain(), upper=4, options=options)
    assert (job.state.share.weight, job.state.share.priority, job.state.share.cap) == (3, -1, 2)
    job.do(StartScheduling()).hold(2)
    assert job.kind == "CreatingExecutionGraph", "nothing more than the cap is waited for"
    more = Job(chain(in_place=False), upper=4).do(StartScheduling()).hold(2)
    assert more.kind == "WaitingForResources"


def test_what_is_given_back_beyond_the_cap_is_not_for_others() -> None:
    job = Job(chain(), upper=4).run(held=4)
    job.do(SlotShareUpdated(SlotShare(2, cap=2)))
    job.do(SlotsChanged(slots(4), allowed=2, reason="Its cap is 2 slot(s).")).applied()
    assert job.records[-1].message == "2 slot(s) are given back. Its cap is 2 slot(s)."


def test_why_is_told_with_what_comes_and_what_goes() -> None:
    job = Job(chain(), upper=4).run(held=4)
    job.do(SlotsChanged(slots(4), allowed=2, reason="Its share is 2.")).applied()
    assert job.records[-1].message == "2 slot(s) are given back, for other jobs. Its share is 2."
    job.do(SlotsChanged(slots(3), reason="Its share is 3.")).wait(200).applied()
    assert job.records[-1].message == "Its share is 3."


def test_when_slots_changed_last_is_kept() -> None:
    job = Job(chain(), upper=4).run(held=4)
    since_ms = job.state.supply.changed_ms
    job.wait(5_000).hold(4)
    assert job.state.supply.changed_ms == since_ms
    job.do(SlotsChanged(slots(4), allowed=2))
    assert job.state.supply.changed_ms == since_ms, "they are its own still"
    job.wait(10).applied()
    assert job.state.supply.changed_ms == job.now_ms

"""A rescale that a changed cap has caused says by whom and why, on the way down and on the way up."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.rescale import RescaleRecord, TriggerCause
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.events import SlotsChanged, SlotShareUpdated
from app.store.codec import dump_state, load_state
from tests.unit.scheduler.driving import Job, chain, slots
from tests.unit.scheduler.test_rollback import NOW

OLGA = {"requested_by": "olga", "reason": "the evening peak"}


def gives_back(job: Job, count: int) -> Job:
    """What no plan uses any more."""
    return job.do(SlotsChanged(slots(count), count))


def set_cap(job: Job, cap: int | None, **more: Any) -> Job:
    fields = {**OLGA, **more}
    return job.do(SlotShareUpdated(SlotShare(job.state.share.version + 1, cap=cap, **fields)))


def allow(job: Job, held: int, allowed: int | None = None, reason: str | None = None) -> Job:
    """The slots that the cluster gives, and the rescale that follows."""
    known = len(job.records)
    job.do(SlotsChanged(slots(held), allowed, reason)).wait(60_000)
    job.applied() if job.kind == "Rescaling" else job.stops(driver_alive=True).starts().commit()
    assert len(job.records) == known + 1 and job.nothing_open
    return job


def told(record: RescaleRecord) -> tuple[TriggerCause, str | None, str | None]:
    return record.cause, record.requested_by, record.request_reason


BY_OLGA = (TriggerCause.NEW_RESOURCE_AVAILABLE, "olga", "the evening peak")
BY_NOBODY = (TriggerCause.NEW_RESOURCE_AVAILABLE, None, None)


def capped_at_2(*, in_place: bool = True) -> Job:
    job = set_cap(Job(chain(in_place=in_place), upper=8, options=NOW).run(held=4), 2)
    return gives_back(allow(job, 4, 2, "Its cap is 2 slot(s)."), 2)


@pytest.mark.parametrize("in_place", [True, False])
def test_down_and_up(in_place: bool) -> None:
    job = capped_at_2(in_place=in_place)
    assert job.parallelism == [2, 2, 2]
    assert told(job.records[-1]) == BY_OLGA and "Its cap is 2 slot(s)." in str(job.records[-1].message)
    allow(set_cap(job, 6, requested_by="paul", reason="over"), 6)
    assert job.parallelism == [6, 6, 6]
    assert told(job.records[-1]) == (TriggerCause.NEW_RESOURCE_AVAILABLE, "paul", "over")
    assert "Its cap was 2 slot(s) before." in str(job.records[-1].message)


def test_up_without_any_cap_and_in_steps() -> None:
    job = set_cap(capped_at_2(), None)
    for held in (3, 5):
        assert told(allow(job, held).records[-1]) == BY_OLGA
    job.state = load_state(dump_state(job.state), job.state.graph, job.state.options)
    assert told(allow(job, 8).records[-1]) == BY_OLGA
    assert told(allow(job.hold(7).applied(), 8).records[-1]) == BY_NOBODY, "a slot that was lost comes back"


def test_slots_below_the_former_cap_are_not_its_doing() -> None:
    job = set_cap(Job(upper=8, options=NOW).run(held=2), 4)
    set_cap(job, 6, requested_by="paul")
    assert told(allow(job, 3).records[-1]) == BY_NOBODY
    assert told(allow(job, 5).records[-1])[1] == "paul"


def test_another_weight_does_not_hide_who_raised_the_cap() -> None:
    job = set_cap(capped_at_2(), 6)
    job.do(SlotShareUpdated(SlotShare(9, weight=3, cap=6, requested_by="quinn")))
    assert told(allow(job, 6).records[-1]) == BY_OLGA


def test_a_cap_that_is_lowered_again_before_more_slots_came() -> None:
    job = set_cap(set_cap(capped_at_2(), 6), 3, requested_by="paul")
    assert told(allow(job, 3).records[-1])[1] == "paul", "it is more than the cap of 2 all the same"
    assert job.parallelism == [3, 3, 3]
    assert told(allow(set_cap(job, 2), 3, 2).records[-1]) == BY_OLGA
    assert gives_back(job, 2).state.supply.cap_raise is None


def test_slots_that_are_given_to_other_jobs_are_not_the_caps_doing() -> None:
    job = set_cap(Job(upper=8).run(held=4), 6)
    assert told(allow(job, 4, 3, "Shares are evened out.").records[-1]) == BY_NOBODY

"""A rescale that begins before the first batch of the one before: each has a record, and an end, of its own."""

from __future__ import annotations

import pytest

from app.model.rescale import RescaleRecord
from app.scheduler.adaptive.events import BatchCompleted, SlotsChanged, StopRequested
from tests.unit.scheduler.driving import Job, chain, slots
from tests.unit.scheduler.test_rollback import NOW

NO_BATCH = "Its plan was in force, and no batch had been committed at it, when another change began."


def story(record: RescaleRecord) -> tuple[str, str | None, list[int | None], list[int | None]]:
    before = [one.pre for one in record.vertices]
    return record.cause.value, record.reason, before, [one.post for one in record.vertices]


def started(*, in_place: bool = True, upper: int = 2, held: int = 2) -> Job:
    """Runs, and its first batch is under way."""
    return Job(chain(in_place=in_place), upper=upper, options=NOW).start_up(held)


@pytest.mark.parametrize("in_place", [True, False])
def test_other_bounds_during_the_first_batch_leave_the_start_complete(in_place: bool) -> None:
    job = started(in_place=in_place).put(1, 4).hold(4)
    assert job.records[0].message == NO_BATCH
    (job if in_place else job.stops(driver_alive=True).starts()).applied()
    assert [story(one) for one in job.records] == [
        ("INITIAL_SCHEDULE", "SUCCEEDED", [None] * 3, [2] * 3),
        ("UPDATE_REQUIREMENT", "SUCCEEDED", [2] * 3, [4] * 3),
    ]


@pytest.mark.parametrize("in_place", [True, False])
def test_slots_that_come_during_the_first_batch_have_a_record_of_their_own(in_place: bool) -> None:
    job = started(in_place=in_place, upper=4).hold(4)
    (job if in_place else job.stops(driver_alive=True).starts()).applied()
    assert [story(one) for one in job.records] == [
        ("INITIAL_SCHEDULE", "SUCCEEDED", [None] * 3, [2] * 3),
        ("NEW_RESOURCE_AVAILABLE", "SUCCEEDED", [2] * 3, [4] * 3),
    ]


def test_so_have_slots_that_are_to_be_given_back() -> None:
    job = started(upper=4, held=4)
    job.do(SlotsChanged(slots(4), allowed=2, reason="Another job waits.")).applied()
    assert [story(one) for one in job.records] == [
        ("INITIAL_SCHEDULE", "SUCCEEDED", [None] * 3, [4] * 3),
        ("NEW_RESOURCE_AVAILABLE", "SUCCEEDED", [4] * 3, [2] * 3),
    ]
    start, given = job.records
    assert start.message == NO_BATCH and "are given back" in str(given.message)


def test_a_batch_at_an_older_plan_is_not_the_first_one() -> None:
    job = started(in_place=False).put(1, 4).hold(4).stops(driver_alive=True).starts()
    job.do(BatchCompleted(job.state.attempt, "query", 7, job.state.plan_version - 1))
    assert job.open.rung is not None
    assert job.commit().records[-1].reason == "SUCCEEDED" and job.nothing_open


def test_bounds_that_change_nothing_do_so_too() -> None:
    job = started().put(2, 2).commit()
    assert [one.reason for one in job.records] == ["SUCCEEDED", "NO_RESOURCES_OR_PARALLELISMS_CHANGE"]
    assert job.nothing_open


def test_bounds_that_come_while_the_driver_starts_overtake_the_start_as_in_flink() -> None:
    job = Job(upper=2, options=NOW).submit(2).put(1, 4).starts().hold(4).applied()
    assert [story(one) for one in job.records] == [
        ("INITIAL_SCHEDULE", "RESOURCE_REQUIREMENTS_UPDATED", [None] * 3, [2] * 3),
        ("UPDATE_REQUIREMENT", "SUCCEEDED", [2] * 3, [4] * 3),
    ]


def test_a_rescale_that_is_in_force_and_overtaken_is_complete() -> None:
    job = Job(chain(in_place=False), upper=2, options=NOW).run(2).put(1, 4).hold(4)
    job.stops(driver_alive=True).starts().put(1, 6)
    assert story(job.records[-1]) == ("UPDATE_REQUIREMENT", "SUCCEEDED", [2] * 3, [4] * 3)


def test_bounds_while_a_plan_is_not_in_force_yet_still_overtake_it() -> None:
    job = Job(upper=2, options=NOW).run(2).put(1, 4).hold(4).put(1, 3)
    assert story(job.records[-1]) == ("UPDATE_REQUIREMENT", "RESOURCE_REQUIREMENTS_UPDATED", [2] * 3, [4] * 3)


def test_bounds_during_a_stop_that_began_before_the_first_batch() -> None:
    job = started().do(StopRequested("t1")).put(1, 4)
    assert [story(one)[:2] for one in job.records] == [("INITIAL_SCHEDULE", "SUCCEEDED")]

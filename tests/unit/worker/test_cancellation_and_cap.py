"""A rescale is not canceled if the cap does not allow the bounds that would come back."""

from __future__ import annotations

import pytest

from app.model.rescale import RescaleRecord
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.events import SlotShareUpdated
from app.worker.refusals import StateConflict
from app.worker.requests.requirements import RescaleCancellation, decide_cancellation
from app.worker.views import RequirementsResult
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.test_deadlines_that_end import down_below_a_cap


def waiting(job: Job) -> RescaleRecord:
    (one,) = job.state.queued
    return next(record for record in job.records if record.number == one.record)


def test_bounds_that_the_cap_forbids_are_not_brought_back() -> None:
    job = down_below_a_cap()
    record = waiting(job)
    asked = RescaleCancellation(uuid=record.uuid)
    with pytest.raises(StateConflict) as refused:
        decide_cancellation(job.state, record, asked)
    assert str(refused.value).startswith(
        f"The bounds before rescale {record.number} cannot come back. The lower bounds need 5 slot(s), and the cap of "
        "the job is 3"
    )
    job.do(SlotShareUpdated(SlotShare(3, cap=5)))
    answer = decide_cancellation(job.state, record, asked).answer
    assert answer == RequirementsResult(job.state.requirements.version + 1, changed=True)

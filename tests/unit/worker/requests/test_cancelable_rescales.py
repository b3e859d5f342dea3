"""Which rescales an explanation says can be canceled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.api.render import explanation as render
from app.model.requirements import Bounds, Deadline
from app.scheduler.adaptive.bounds_declared import cancelable_of
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import CancelRequested, RequirementsUpdated
from app.worker.refusals import StateConflict
from app.worker.requests.explanation import explanation
from app.worker.requests.requirements import RescaleCancellation, decide_cancellation
from app.worker.views import JobView, Supply
from tests.unit.scheduler.driving import Job, restarting_job
from tests.unit.scheduler.test_bounds_queue import ROLLBACK, waiting, within
from tests.unit.scheduler.test_deadlines_side_by_side import put
from tests.unit.scheduler.test_queue_beside_others import in_cooldown
from tests.unit.scheduler.test_rollback import fail


def begun() -> Job:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s")
    job.put(1, 1, deadline=within(job, 10, ROLLBACK)).wait(1)
    assert [one.begun is not None for one in job.state.queued] == [True]
    return job


@pytest.mark.parametrize(
    ("made", "numbers"),
    [
        (lambda: Job(lower=1, upper=2).run(held=2), []),
        (lambda: waiting(ROLLBACK), [2]),
        # Without a deadline, as long as it waits for slots.
        (lambda: Job(lower=1, upper=2).run(held=2).put(1, 4), [2]),
        (lambda: Job(lower=1, upper=2).run(held=2).put(1, 4).hold(4).wait(100), []),
        # The record that is open is that of the failover.
        (lambda: fail(waiting(ROLLBACK)), [2]),
        (begun, []),
        # It has no record by which it could be canceled.
        (lambda: Job(lower=1, upper=2).put(1, 4, deadline=Deadline(60_000, ROLLBACK)), []),
        (lambda: waiting(ROLLBACK).do(CancelRequested()).stops(), []),
    ],
)
def test_what_can_be_canceled(made: Callable[[], Job], numbers: list[int]) -> None:
    job = made()
    view = JobView(job.state, status_of(job.state), 0, None, None, 1)
    told = explanation(view, now_ms=job.now_ms, supply=Supply(8, 0), allotment=None, last_batch_ms=None)
    assert render.explanation(told).cancelable_rescales == numbers


def test_by_the_record_that_ended_as_it_began_what_was_applied_since_can_be_canceled() -> None:
    job = restarting_job(cooldown="1 h").put_each(source=(1, 4), agg=(1, 4), sink=(1, 3))
    held = job.state.requirements
    bounds = tuple((vertex, Bounds(1, 9) if own.upper == 4 else own) for vertex, own in held)
    wanted = held.following(job.state.job_id, bounds, requested_by="ann", reason=None)
    job.do(RequirementsUpdated(wanted, within(job, 60, ROLLBACK)))
    told = job.records[-1]
    assert "wait for their deadline" in (told.message or "") and told.end_ms == told.start_ms
    job.hold(9)
    (one,) = job.state.queued
    assert one.begun is not None and one.record != told.number
    asked = RescaleCancellation(told.uuid, requested_by="bob", reason=None)
    found = decide_cancellation(job.state, told, asked).event
    assert isinstance(found, RequirementsUpdated) and found.undoes == one.begun


def test_a_change_whose_vertices_all_have_later_bounds_cannot_be_canceled() -> None:
    job = put(in_cooldown().hold(5), a=(1, 3), b=(1, 2))
    put(job, within(job, 600, ROLLBACK), a=(1, 5), b=(1, 2)).hold(7)
    assert (job.open.number, [one.version for one in cancelable_of(job.state)]) == (2, [3])
    with pytest.raises(StateConflict, match=r"^Rescale 2 .* have later bounds\. Rescale \d can be canceled"):
        decide_cancellation(job.state, job.open, RescaleCancellation(job.open.uuid))

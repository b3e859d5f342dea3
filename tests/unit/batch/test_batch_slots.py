"""The slots of a batch job that runs: what it asks for, and what it gives back."""

from __future__ import annotations

from app.scheduler.adaptive.effects import DeclareResources, ReleaseSlots
from app.scheduler.adaptive.events import AttemptFailed, SlotsChanged
from app.scheduler.explain import explain
from tests.unit.batch.driving import BatchJob, chain, slots


def test_while_it_runs_a_job_asks_for_no_more_slots_than_its_driver_can_use() -> None:
    job = BatchJob(chain(), held=2)
    assert (job.state.supply.declared, job.state.supply.minimal) == (16, 1)
    job.run()
    assert DeclareResources(2, 1) in job.effects
    assert "Its driver was started with 2 slot(s)" in " ".join(explain(job.state, job.now_ms)[0])
    job.put(joined=(1, 32))
    assert (job.state.supply.declared, job.state.supply.minimal) == (2, 1)
    # Another attempt may use whatever there is by then.
    job.do(AttemptFailed(1, "boom", stopped=True))
    while job.kind != "CreatingExecutionGraph":
        job.wait()
    assert job.state.supply.declared == 32


def test_slots_that_came_too_late_are_given_back() -> None:
    """Granted while the driver was being started: it will not use them."""
    job = BatchJob(chain(), held=2).do(SlotsChanged(slots(5))).run()
    assert len(job.state.slots) == 5
    job.wait()
    assert job.effects == (ReleaseSlots(tuple(slot.id for slot in slots(5)[2:])),)
    assert [slot.id for slot in job.state.slots] == ["host-0", "host-1"]


def test_lower_bounds_beyond_the_drivers_slots_are_named_in_the_record() -> None:
    job = BatchJob(chain(), held=2).run().put(total=(4, 16))
    record = job.closed[0]
    assert record.message is not None
    assert record.message.endswith(
        "The lower bounds need 4 slots; the driver has 2 until it is started again, so tasks take turns."
    )
    assert (job.state.supply.declared, job.state.supply.minimal) == (2, 2)


def test_l22_a_region_that_does_not_fit_says_how_many_slots_it_needs() -> None:
    job = BatchJob(chain(total=(6, 16), store=(2, 16)), held=4)
    assert job.kind == "WaitingForResources", "nothing is taken partly"
    assert (
        "The bounds want 16 slot(s) and need at least 6; the job holds 4 and uses 0."
        in explain(job.state, 0)[0]
    )
    job.wait()
    assert job.kind == "RetryingExecutionGraphCreation"
    (failure,) = job.state.recovery.failures[-1]
    assert failure.error.startswith(
        "Not enough slots: the lower bounds need 6 and the job holds 4 after waiting"
    )


def test_l22_a_region_that_fits_into_the_jobs_own_slots_never_times_out() -> None:
    """Other regions of the job have the slots for as long as they like; its tasks take turns with theirs."""
    job = BatchJob(chain(), held=1).run().finish("customers").finish("orders")
    assert list(job.orders) == ["joined"] and job.state.timers == ()

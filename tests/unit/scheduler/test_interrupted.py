"""The record of a rescale for which a batch was interrupted."""

from __future__ import annotations

from app.model.plan import Rung
from app.model.rescale import Measured, TerminalState
from app.scheduler.adaptive.events import PlanApplied
from tests.unit.scheduler.driving import Job, two_sinks

WHY = (
    "A batch of store that had run for 95 s, with 12 of 80 tasks done, was interrupted and ran again at the new "
    "parallelism."
)


def test_the_record_has_the_rung_the_rows_and_the_reason() -> None:
    job = Job(upper=4).run().hold(4).applied(measured=Measured(96_000, 5_000), interrupted=WHY)
    record = job.records[-1]
    assert (record.terminal_state, record.rung) == (TerminalState.COMPLETED, Rung.BATCH_INTERRUPTED)
    assert (record.output_gap_ms, record.reprocessed_records, record.message) == (96_000, 5_000, WHY)
    assert job.kind == "Executing" and job.parallelism == [4, 4, 4]
    (ended,) = [one for one in job.told if one.type == "rescale-ended"][-1:]
    assert (ended.fields["rung"], ended.fields["reprocessedRecords"]) == ("batch-interrupted", 5_000)


def test_an_interruption_is_no_failure() -> None:
    job = Job(two_sinks(), upper=4).run().hold(4).applied(measured=Measured(1, 2), interrupted=WHY)
    recovery = job.state.recovery
    assert recovery.failures == () and recovery.num_restarts == 0 and job.state.attempt == 1


def test_the_next_change_is_in_place_again() -> None:
    job = Job(upper=4).run().hold(4).applied(interrupted=WHY)
    job.put(1, 3).applied(measured=Measured(5, 0))
    record = job.records[-1]
    assert (record.rung, record.reprocessed_records, record.message) == (Rung.IN_PLACE, 0, None)


def test_a_restart_that_follows_is_the_dearer_rung() -> None:
    job = Job(upper=4).run().hold(4)
    told = ((job.graph.vertices[0].id, "Vertex source has 2 tasks instead of 4."),)
    job.do(PlanApplied(1, job.state.plan_version, not_followed=told, interrupted=WHY))
    assert job.kind == "Restarting" and job.open.rung is Rung.BATCH_INTERRUPTED
    job.stops(driver_alive=True)
    job.starts().applied()
    record = job.records[-1]
    assert record.rung is Rung.QUERY_RESTART
    assert record.message is not None and record.message.startswith(WHY)


def test_an_older_plan_tells_nothing() -> None:
    job = Job(upper=4).run().hold(4)
    job.do(PlanApplied(1, job.state.plan_version - 1, interrupted=WHY))
    assert job.kind == "Rescaling" and job.open.message is None and job.open.rung is Rung.IN_PLACE

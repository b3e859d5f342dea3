"""The rescale timeline (FLIP-495): one record per attempt to bring a plan into force, with all that belongs to it."""

from __future__ import annotations

import pytest

from app.model.plan import Rung
from app.model.rescale import Measured, RescaleRecord, TerminalState, TerminatedReason
from app.scheduler.adaptive.effects import StartAttempt
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptStopped,
    BatchCompleted,
    CancelRequested,
    PlanApplied,
    SlotsChanged,
    StartScheduling,
    StopRequested,
)
from app.scheduler.adaptive.record_figures import change_began_ms
from app.scheduler.step import step
from tests.unit.scheduler.driving import Job, chain, mixed, slots

COOLDOWN = "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"
NO_DAMPING: dict[str, object] = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 s",
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay": "0 s",
}


def test_a_record_that_ended_is_told_once() -> None:
    job = Job(upper=2).start_up(2)
    batch = BatchCompleted(1, "query", 1, job.state.plan_version)
    ended, _, told = step(job.state, batch, job.now_ms)
    assert [one.reason for one in told if isinstance(one, RescaleRecord)] == [TerminatedReason.SUCCEEDED]
    _, _, told = step(ended, SlotsChanged(slots(3)), job.now_ms)
    assert not any(isinstance(one, RescaleRecord) for one in told)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("SUCCEEDED", "COMPLETED"),
        ("EXCEPTION_OCCURRED", "FAILED"),
        ("RESOURCE_REQUIREMENTS_UPDATED", "IGNORED"),
        ("NO_RESOURCES_OR_PARALLELISMS_CHANGE", "IGNORED"),
        ("JOB_FINISHED", "IGNORED"),
        ("JOB_FAILED", "IGNORED"),
        ("JOB_CANCELED", "IGNORED"),
        ("JOB_FAILOVER_RESTARTING", "IGNORED"),
    ],
)
def test_each_reason_implies_one_terminal_state(reason: str, state: str) -> None:
    assert TerminatedReason(reason).terminal_state is TerminalState(state)
    assert len(TerminatedReason) == 8


def test_the_first_record_starts_when_the_job_was_created_and_is_complete_with_its_first_batch() -> None:
    job = Job()
    created = job.now_ms
    job.now_ms += 500
    job.do(StartScheduling()).wait(1_000).hold(2).wait(2_000).starts().wait(300)
    assert job.open.start_ms == created
    assert (job.open.cause.value, job.open.attempt_id, job.open.number) == ("INITIAL_SCHEDULE", 1, 1)
    job.commit()
    (record,) = job.records
    assert record.end_ms == job.now_ms
    assert [
        (span.state, span.leave_ms - span.enter_ms) for span in record.spans if span.leave_ms is not None
    ] == [
        ("Created", 500),
        ("WaitingForResources", 1_000),
        ("CreatingExecutionGraph", 2_000),
        ("Executing", 300),
    ]
    assert record.rung is Rung.NEW_DRIVER


def test_a_record_has_before_and_after_per_vertex_and_per_group() -> None:
    job = Job(mixed(), upper=2, options=NO_DAMPING).run(held=4)
    job.do(SlotsChanged(slots(5))).put_each(source=(1, 2), agg=(1, 2), sink=(2, 3)).applied()
    record = job.records[-1]
    assert record.terminal_state is TerminalState.COMPLETED
    named = {job.graph.by_id[one.vertex_id].name: one for one in record.vertices}
    assert [(one.sufficient, one.desired, one.pre, one.post) for one in named.values()] == [
        (1, 2, 2, 2),
        (1, 2, 2, 2),
        (2, 3, 2, 3),
    ]
    groups = {one.group_name: (one.minimal, one.desired, one.pre, one.post) for one in record.groups}
    assert groups == {"default": (1, 2, 2, 2), "sinks": (2, 3, 2, 3)}


def test_the_first_record_has_no_before() -> None:
    record = Job().run().records[0]
    assert {one.pre for one in record.vertices} == {None}
    assert {one.pre for one in record.groups} == {None}


def test_an_update_says_who_asked_and_why_and_a_later_change_of_slots_does_not() -> None:
    job = Job(upper=4).run(held=2).put(1, 3, requested_by="ann", reason="lunch")
    assert (job.open.requested_by, job.open.request_reason) == ("ann", "lunch")
    job.wait(60_000)
    assert job.records[-1].message == "3 slots are wanted; only 2 came."
    job.hold(3).applied()
    assert job.records[-1].cause.value == "NEW_RESOURCE_AVAILABLE"
    assert job.records[-1].requested_by is None


def test_an_update_waits_for_the_slots_that_another_control_plane_has_to_give() -> None:
    """However short the job's own wait is: who waits for the record would be told that nothing came."""
    options = {"jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 ms"}
    job = Job(upper=4, options=options).run(held=2).put(1, 3)
    job.wait(2_500)
    number = job.open.number
    job.hold(3).applied()
    record = job.records[-1]
    assert (record.number, record.cause.value, record.terminal_state.value) == (
        number,
        "UPDATE_REQUIREMENT",
        "COMPLETED",
    )
    job.put(1, 4).wait(3_000)
    assert job.records[-1].message == "4 slots are wanted; only 3 came."


def test_better_an_update_that_needs_no_other_parallelism_leaves_no_record_open() -> None:
    """Production Flink leaves it open, and a later rescale for slots is attributed to it."""
    job = Job(upper=2).run(held=2).put(2, 2)
    assert job.nothing_open
    assert job.ended()[-1] == ("UPDATE_REQUIREMENT", "NO_RESOURCES_OR_PARALLELISMS_CHANGE", 1)


def test_a_first_batch_that_takes_longer_than_the_cooldown_still_completes_its_record() -> None:
    """The manager falls back to Idling meanwhile, and a record whose plan is in force does not end with it."""
    job = Job().do(StartScheduling()).hold(2).starts()
    job.wait(600_000)
    assert job.stage == "Idling"
    assert job.records == []
    job.commit()
    assert job.ended() == [("INITIAL_SCHEDULE", "SUCCEEDED", 1)]


def test_what_came_before_the_first_batch_has_its_record_from_that_batch_on() -> None:
    """Not only from the restart on, which may be a cooldown later."""
    job = Job(chain(in_place=False), upper=4, options={COOLDOWN: "1 h"})
    job.do(StartScheduling()).hold(2).wait(60_000).starts().hold(4).wait(500).commit()
    assert job.ended() == [("INITIAL_SCHEDULE", "SUCCEEDED", 1)]
    assert (job.open.cause.value, job.open.start_ms) == ("NEW_RESOURCE_AVAILABLE", job.now_ms)


def test_the_figures_of_the_driver_are_kept() -> None:
    job = Job(upper=4).run().hold(4).applied(measured=Measured(17, 0))
    record = job.records[-1]
    assert (record.output_gap_ms, record.reprocessed_records, record.rung) == (17, 0, Rung.IN_PLACE)


def test_the_rung_is_the_most_expensive_one_that_was_climbed() -> None:
    job = Job(chain(in_place=False), upper=4, options=NO_DAMPING).run().hold(4)
    job.stops(driver_alive=True)
    assert job.open.rung is Rung.QUERY_RESTART
    job.do(AttemptFailed(2, "boom", stopped=True)).wait(2_000)
    assert job.open.rung is Rung.NEW_DRIVER


def test_a_cheaper_start_after_a_dearer_one_that_failed_does_not_make_the_record_cheaper() -> None:
    job = Job(upper=2).run().do(AttemptFailed(1, "boom", stopped=True)).wait(2_000)
    assert job.open.rung is Rung.NEW_DRIVER
    job.do(AttemptStopped(2, error="no tables", driver_alive=True)).wait(2_000)
    assert job.effect(StartAttempt).reuse_driver
    job.starts().commit()
    assert (job.records[-1].cause.value, job.records[-1].rung) == ("RECOVERABLE_FAILOVER", Rung.NEW_DRIVER)


def test_a_change_in_place_right_after_a_failover_leaves_the_rung_of_the_failover_alone() -> None:
    job = Job(upper=4).run(held=2)
    job.do(AttemptFailed(1, "boom", stopped=True)).wait(30_000).starts().hold(4)
    assert job.kind == "Rescaling"
    job.applied()
    assert [(one.cause.value, one.rung) for one in job.records[-2:]] == [
        ("RECOVERABLE_FAILOVER", Rung.NEW_DRIVER),
        ("NEW_RESOURCE_AVAILABLE", Rung.IN_PLACE),
    ]


def test_a_slot_lost_in_use_is_a_failover_that_shrinks_in_place() -> None:
    job = Job(upper=4).run(held=4).hold(3)
    assert job.kind == "Rescaling"
    assert job.open.cause.value == "RECOVERABLE_FAILOVER"
    assert job.open.message == "1 slot(s) in use were lost."
    job.applied()
    assert job.parallelism == [3, 3, 3]
    assert job.state.recovery.num_restarts == 0


def test_a_lost_slot_and_the_loss_of_its_driver_are_one_failover() -> None:
    job = Job(upper=4).run(held=4).hold(3).do(AttemptFailed(1, "the executor is gone", stopped=True))
    record = job.open
    job.wait(1_500).wait(10_000).starts().commit()
    assert job.records[-1].uuid == record.uuid
    assert job.records[-1].message == "1 slot(s) in use were lost. the executor is gone"
    assert [one.cause.value for one in job.records] == ["INITIAL_SCHEDULE", "RECOVERABLE_FAILOVER"]


@pytest.mark.parametrize(
    ("event", "then", "reason"),
    [
        (CancelRequested("ann"), "stops", "JOB_CANCELED"),
        (AttemptFailed(1, "boom", stopped=True, recoverable=False), "", "JOB_FAILED"),
        (StopRequested("t1"), "drains", "JOB_FINISHED"),
    ],
)
def test_a_job_that_ends_closes_its_record(event: object, then: str, reason: str) -> None:
    job = Job(upper=4).run().put(1, 6)
    job.do(event)  # type: ignore[arg-type]
    if then == "stops":
        job.stops()
    elif then == "drains":
        job.do(AttemptStopped(1, drained=True, location="/checkpoint"))
    assert job.kind == "Finished"
    assert job.ended()[-1] == ("UPDATE_REQUIREMENT", reason, 1)
    assert job.nothing_open


def test_ids_are_derived_and_never_repeat() -> None:
    job = Job(upper=9).run()
    for count in range(3, 9):
        job.hold(count).wait(100).applied()
    uuids = [record.uuid for record in job.records]
    assert len(set(uuids)) == len(uuids) == 7
    assert [record.attempt_id for record in job.records] == list(range(1, 8))


# -- Rescaling


def test_a_plan_that_is_not_confirmed_is_sent_again_for_as_long_as_the_batch_in_flight_takes() -> None:
    job = Job(upper=4).run().hold(4)
    version = job.state.plan_version
    job.wait(600_000)
    assert job.kind == "Rescaling", "a batch of ten minutes is not a reason to restart"
    assert job.state.phase.sent == 11
    job.do(PlanApplied(1, version))
    assert job.kind == "Executing"
    assert job.records[-1].message == "The plan was not confirmed within 60000 ms and is sent again."


def test_a_driver_that_keeps_committing_at_an_older_plan_is_restarted() -> None:
    """Else the rescale would never end, and nobody would know."""
    job = Job(upper=4).run().hold(4)
    for _ in range(12):
        job.wait(10_000)
        _commit_at(job, job.state.plan_version - 1)
    job.wait(10_000)
    assert job.kind == "Restarting"
    assert dict(job.state.phase.target) == {one.id: 4 for one in job.graph.vertices}
    job.stops(driver_alive=True)
    job.starts().commit()
    assert job.parallelism == [4, 4, 4]
    record = job.records[-1]
    assert record.terminal_state is TerminalState.COMPLETED
    assert record.message is not None and "commits batches at an older plan" in record.message


def test_one_batch_at_the_older_plan_was_in_flight_and_proves_nothing() -> None:
    job = Job(upper=4).run().hold(4)
    for _ in range(5):
        job.wait(61_000)
        _commit_at(job, job.state.plan_version - 1)
    assert job.kind == "Rescaling"


def _commit_at(job: Job, version: int) -> None:
    job.batch += 1
    job.do(BatchCompleted(job.state.attempt, "query", job.batch, version))


def test_bounds_that_change_while_a_plan_is_applied_replace_it() -> None:
    job = Job(upper=4).run().hold(4)
    first = job.state.plan_version
    job.put(1, 3)
    job.do(PlanApplied(1, first))
    assert job.kind == "Rescaling", "that was the old one"
    job.applied()
    assert job.parallelism == [3, 3, 3]
    assert job.ended()[-2:] == [
        ("NEW_RESOURCE_AVAILABLE", "RESOURCE_REQUIREMENTS_UPDATED", 2),
        ("UPDATE_REQUIREMENT", "SUCCEEDED", 1),
    ]


def test_bounds_that_go_back_to_the_plan_in_force_are_sent_too_because_the_driver_may_be_ahead() -> None:
    job = Job(upper=2).run().put(1, 1)
    sent = job.state.plan_version
    job.put(1, 2)
    assert job.kind == "Rescaling"
    assert job.state.plan_version == sent + 1
    job.applied()
    assert job.parallelism == [2, 2, 2]


def test_a_change_that_needs_a_restart_while_a_plan_is_applied_follows_afterwards() -> None:
    job = Job(mixed(), upper=2, options=NO_DAMPING).run(held=9)
    job.put_each(source=(1, 2), agg=(1, 2), sink=(1, 4))
    assert job.kind == "Rescaling"
    job.put_each(source=(1, 2), agg=(1, 5), sink=(1, 4))
    assert job.kind == "Rescaling"
    assert "may have been in force" in (job.records[-1].message or "")
    job.applied()
    assert job.kind == "Restarting"
    job.stops(driver_alive=True).starts().commit()
    assert job.parallelism == [2, 5, 4]
    assert job.nothing_open


def test_a_plan_that_was_overtaken_and_applied_all_the_same_is_what_the_next_record_begins_with() -> None:
    job = Job(mixed(), upper=2, options={COOLDOWN: "1 h"}).run(held=9)
    job.put_each(source=(1, 2), agg=(1, 2), sink=(1, 4))
    job.put_each(source=(1, 2), agg=(1, 5), sink=(1, 4))
    assert [one.pre for one in job.open.vertices] == [2, 2, 2]
    job.applied()
    assert job.kind == "Executing", "the restart waits for its cooldown"
    assert job.parallelism == [2, 2, 4]
    assert [one.pre for one in job.open.vertices] == [2, 2, 4]
    assert "came into force first" in (job.open.message or "")
    job.put_each(source=(1, 2), agg=(1, 2), sink=(1, 2))
    assert job.kind == "Rescaling"
    assert [(one.pre, one.post) for one in job.open.vertices] == [(2, 2), (2, 2), (4, 2)]


def test_bounds_that_change_while_an_attempt_starts_have_its_plan_before_them() -> None:
    job = Job(upper=2)
    job.do(StartScheduling()).hold(2).put(1, 3)
    assert job.kind == "CreatingExecutionGraph"
    assert [one.pre for one in job.open.vertices] == [None] * len(job.open.vertices)
    job.starts()
    assert [one.pre for one in job.open.vertices] == [2] * len(job.open.vertices)


def test_free_slots_that_come_at_once_are_part_of_the_rescale_that_asked_for_them() -> None:
    job = Job(chain(), upper=2).run(held=2)
    job.put_each(source=(1, 1), agg=(1, 4), sink=(1, 2))
    assert job.kind == "Executing", "two slots more are wanted"
    job.wait(5).hold(4)
    assert job.kind == "Rescaling"
    assert [one.post for one in job.open.vertices] == [1, 4, 2]


def test_slots_that_do_not_come_hold_a_rescale_in_place_up_for_a_moment_only() -> None:
    job = Job(chain(), upper=2).run(held=2)
    job.put_each(source=(1, 1), agg=(1, 4), sink=(1, 2)).wait(100)
    assert job.kind == "Rescaling"
    assert [one.post for one in job.open.vertices] == [1, 2, 2]


def test_of_several_queries_the_first_batch_brings_what_is_known_of_the_pause() -> None:
    job = Job(upper=2).start_up(2)
    job.do(BatchCompleted(1, "first", 1, job.state.plan_version, measured=Measured(168_000)))
    assert job.records[-1].output_gap_ms == 168_000


def test_since_when_a_job_has_not_run() -> None:
    """Its drivers find the batches before by that: the starts that came to nothing are part of the pause."""
    job = Job(chain(in_place=False), upper=4, options={**NO_DAMPING, COOLDOWN: "30 s"}).run()
    assert change_began_ms(job.state) == 0, "it runs"
    job.wait(5_000).hold(3)
    asked_ms = job.now_ms
    assert job.kind == "Executing" and change_began_ms(job.state) == asked_ms
    job.wait(25_000)
    assert job.kind == "Restarting"
    stopped_ms = job.now_ms
    job.wait(2_000).stops(driver_alive=True)
    for _ in range(3):
        assert job.kind == "CreatingExecutionGraph" and change_began_ms(job.state) == stopped_ms
        failed = AttemptFailed(job.state.attempt, "no luck", stopped=True, outside=True)
        job.do(failed).wait(100_000)
    job.starts().commit()
    assert change_began_ms(job.state) == 0


def test_an_attempt_that_died_before_its_first_batch_is_part_of_the_next_pause_only() -> None:
    job = Job().run()
    job.do(AttemptFailed(1, "killed", stopped=True, outside=True)).wait(10_000).starts()
    job.wait(7_000).do(AttemptFailed(2, "killed", stopped=True, outside=True))
    assert change_began_ms(job.state) == job.now_ms, "the driver knows when the last batch was"


def test_what_was_tried_in_place_first_is_part_of_the_pause() -> None:
    job = Job(upper=4, options=NO_DAMPING).run().wait(5_000).hold(4)
    sent_ms, apply_ms = job.now_ms, job.state.options.apply_timeout_ms
    for batch_id in (1, 2):
        job.wait(apply_ms)
        job.do(BatchCompleted(1, "query", batch_id, job.state.plan_version - 1))
        job.do(BatchCompleted(1, "query", batch_id, job.state.plan_version - 1))
    assert job.kind == "Restarting"
    assert change_began_ms(job.stops(driver_alive=True).state) == sent_ms

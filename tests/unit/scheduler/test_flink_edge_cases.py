"""The edge cases of production Flink's adaptive scheduler: `CASES` numbers them, and each has a test of its number.

`test_lNN_...` is a test of case NN: here, when a job rescales; or in the modules of `HOMES`. What is not the
scheduler's concern has its tests where `ELSEWHERE` says. Where Slotwise does better on purpose the name or docstring of
the test says so.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from app.model.options import JobOptions
from app.model.requirements import Bounds, validate_bounds
from app.model.rescale import TerminalState
from app.model.status import JobStatus
from app.scheduler.adaptive.effects import (
    DeclareResources,
    ReleaseSlots,
    SendPlan,
    StartAttempt,
    StopAttempt,
    StopMode,
)
from app.scheduler.adaptive.events import (
    AttemptFailed,
    RequirementsUpdated,
    SlotsChanged,
    StartScheduling,
    TimerFired,
)
from tests.unit.scheduler import test_flink_edge_cases_of_failures, test_restart_strategy, test_slots
from tests.unit.scheduler.driving import (
    Job,
    bounds,
    chain,
    restarting_job,
    slots,
)

CASES = {
    1: "a stale timer: armed, the state left and entered again",
    2: "a change in cooldown whose resources are gone before it ends",
    3: "stabilisation counts from the first change",
    4: "a cooldown longer than the stabilisation",
    5: "desired resources and a completed checkpoint in Stabilizing",
    6: "sufficient resources in Stabilized without a checkpoint",
    7: "failed checkpoints during the cooldown",
    8: "a lower bound above the capacity of a running job",
    9: "an upper bound lowered, and the surplus slots",
    10: "identical, concurrent and incomplete updates, and -1",
    11: "an update of a job of another scheduler",
    12: "an update while the execution graph is created",
    13: "a planned slot lost before the reservation",
    14: "what a rescale and a failure count, and what they cost",
    15: "restarting for a target that is attainable, or not any more",
    16: "failures, cancel and suspend in each state",
    17: "a stop with savepoint that fails",
    18: "the distribution of slots",
    19: "attempt ids, and a failover during a rescale",
    20: "the bounded history",
    21: "pipelined regions",
    22: "bulk slot requests",
    23: "parallelism of batch vertices",
    24: "the exponential backoff",
    25: "a JobManager that restarts",
}
HOMES = (test_flink_edge_cases_of_failures, test_restart_strategy, test_slots)
ELSEWHERE = {
    10: (
        "tests/contract/test_requirements.py",
        "tests/unit/worker/test_control_plane.py",
    ),  # over HTTP, many at once
    20: (
        "tests/unit/store/test_store_queries.py",
        "tests/contract/test_flink_face.py",
    ),  # retention, statistics, 404
}
BATCH = (21, 22, 23)
"""Cases of batch jobs, which have a scheduler of their own."""
FAILED_CHECKPOINTS = (7,)
"""A case of checkpoints that fail while the job runs on: a micro-batch that fails ends its query."""


def test_each_case_that_concerns_streaming_has_a_test_of_its_number() -> None:
    assert sorted(CASES) == list(range(1, 26))
    names = [name for module in (sys.modules[__name__], *HOMES) for name in vars(module)]
    tested = {int(name[6:8]) for name in names if re.match(r"test_l\d\d_", name)}
    assert tested == set(CASES) - {*BATCH, *FAILED_CHECKPOINTS}
    root = Path(__file__).parents[3]
    assert all((root / path).exists() for paths in ELSEWHERE.values() for path in paths)


NO_RETRY = {"jobmanager.adaptive-scheduler.retry-execution-graph-creation.restart-strategy.type": "none"}


def test_l01_a_timer_of_a_phase_that_was_left_and_entered_again_does_nothing() -> None:
    job = Job().do(StartScheduling())
    stale = next(timer for timer in job.state.timers if timer.name == "wait-timeout")
    job.wait(1_000).hold(2).wait(1_000).hold(0).stops().wait(2_000)
    assert job.kind == "WaitingForResources"
    job.now_ms = stale.at_ms
    before = job.state
    job.do(TimerFired(stale.name, stale.version))
    assert job.state is before
    assert job.effects == ()


def test_l02_a_change_in_cooldown_whose_slots_vanish_ends_idling_with_one_ignored_record() -> None:
    job = restarting_job().wait(5_000)
    job.hold(4)
    assert job.stage == "Cooldown"
    job.wait(5_000).hold(2)
    job.wait(20_001)
    while job.stage != "Idling":
        job.wait(1_000)
    assert job.kind == "Executing"
    assert job.state.recovery.num_restarts == 0
    assert job.ended()[1:] == [("NEW_RESOURCE_AVAILABLE", "NO_RESOURCES_OR_PARALLELISMS_CHANGE", 2)]
    assert job.nothing_open


def test_l03_stabilisation_counts_from_the_first_change() -> None:
    job = restarting_job(cooldown="0 s", stabilization="60 s", max_delay="10 min")
    began = job.now_ms
    job.hold(3)
    assert job.stage == "Stabilizing"
    job.wait(30_000).do(SlotsChanged((*slots(2), *slots(1, manager="other"))))
    job.wait(29_999).hold(3)
    assert job.stage == "Stabilizing"
    job.wait(1)
    assert job.now_ms - began == 60_000
    assert job.stage == "Stabilized"


def test_l04_with_a_cooldown_longer_than_stabilisation_a_noted_change_is_stable_at_once_after_it() -> None:
    job = restarting_job(cooldown="60 s", stabilization="10 s", max_delay="10 min")
    job.wait(5_000).hold(3)
    job.wait(54_999)
    assert job.stage == "Cooldown"
    job.wait(1)
    assert job.stage == "Stabilized"


def test_l05_in_stabilizing_a_batch_restarts_at_once_when_the_desired_slots_are_there() -> None:
    job = restarting_job(cooldown="0 s", max_delay="10 min").hold(4)
    assert (job.stage, job.kind) == ("Stabilizing", "Executing")
    job.commit()
    assert job.kind == "Restarting"


def test_l05_in_stabilizing_a_batch_is_ignored_while_slots_only_suffice() -> None:
    job = restarting_job(cooldown="0 s", max_delay="10 min").hold(3).commit()
    assert (job.stage, job.kind) == ("Stabilizing", "Executing")


def test_l06_stabilized_without_a_batch_restarts_at_max_delay_exactly_once() -> None:
    job = restarting_job(cooldown="0 s", stabilization="60 s", max_delay="90 s")
    job.hold(3)
    job.wait(89_999)
    assert (job.kind, job.stage) == ("Executing", "Stabilized")
    job.wait(1)
    assert job.kind == "Restarting"
    assert job.state.num_rescales == 1
    assert sum(isinstance(one, StopAttempt) for one in job.history) == 1


def test_l08_better_a_lower_bound_above_the_slots_keeps_running_and_comes_back_after_a_failover() -> None:
    job = Job(options=NO_RETRY).run()
    job.put(4, 6)
    assert job.kind == "Executing"
    assert job.parallelism == [2, 2, 2]
    assert job.state.requirements.version == 2
    job.do(AttemptFailed(1, "boom", stopped=True)).wait(1_500)
    assert job.kind == "CreatingExecutionGraph"
    assert job.starts().commit().parallelism == [2, 2, 2]


def test_l08_lower_bounds_that_held_are_waited_for_after_a_failover_until_the_timeout() -> None:
    job = Job(lower=4, upper=6, options=NO_RETRY).run(held=4)
    job.do(AttemptFailed(1, "boom", stopped=True)).hold(2).wait(1_500)
    assert job.kind == "WaitingForResources"
    job.wait(300_000)
    assert job.status is JobStatus.FAILED
    cause = job.state.phase.cause
    assert "need 4" in cause and "holds 2" in cause
    assert job.records[-1].terminal_state is TerminalState.FAILED


def test_l08_better_a_wait_that_timed_out_is_tried_again_while_the_creation_retry_allows_it() -> None:
    job = Job().do(StartScheduling()).wait(300_000)
    assert job.kind == "RetryingExecutionGraphCreation"
    assert job.status is JobStatus.CREATED
    job.wait(2_000)
    assert job.kind == "WaitingForResources"
    assert job.hold(2).kind == "CreatingExecutionGraph"


def test_l08_a_negative_wait_timeout_waits_for_ever() -> None:
    job = Job(options={"jobmanager.adaptive-scheduler.submission.resource-wait-timeout": "-1"})
    job.do(StartScheduling()).wait(10**9)
    assert job.kind == "WaitingForResources"


def test_l09_better_a_surplus_slot_is_returned_at_the_idle_timeout_exactly_and_none_of_the_requirement() -> (
    None
):
    job = Job(upper=4).run(held=4).put(1, 3)
    assert job.effect(DeclareResources) == DeclareResources(3, 1)
    assert not job.has_effect(ReleaseSlots)
    job.wait(10_000)
    assert len(job.state.slots) == 4, "the plan still uses the slot"
    job.applied()
    assert job.parallelism == [3, 3, 3]
    job.wait(49_999)
    assert len(job.state.slots) == 4
    job.wait(1)
    assert job.effect(ReleaseSlots).slot_ids == ("tm-3",)
    job.wait(10**7)
    assert len(job.state.slots) == 3


def test_l10_an_identical_update_changes_nothing_and_records_nothing() -> None:
    job = Job().run()
    before = job.state
    job.do(RequirementsUpdated(bounds(job.graph, 1, 2, version=9, requested_by="somebody")))
    assert job.state is before
    assert job.effects == ()


def test_l10_an_update_must_name_every_vertex_and_all_errors_are_told_at_once() -> None:
    graph = chain()
    source, agg, _ = graph.vertices
    _, errors = validate_bounds(graph, {source.id: (3, 2), agg.id: (1, 129), "f" * 32: (1, 1)})
    assert len(errors) == 4
    assert "higher than its upper bound" in errors[0]
    assert "exceeds its maximum parallelism 128" in errors[1]
    assert "not found" in errors[2]
    assert "incomplete" in errors[3] and "sink" in errors[3]


def test_l10_better_minus_one_is_resolved_and_never_kept() -> None:
    graph = chain()
    resolved, errors = validate_bounds(graph, {one.id: (-1, -1) for one in graph.vertices})
    assert errors == []
    assert set(resolved.values()) == {Bounds(1, 128)}


def test_l10_better_concurrent_updates_are_taken_one_after_the_other_and_none_is_refused() -> None:
    """Production Flink answers the second one with 409 while the first one is in flight."""
    job = Job(upper=4).run(held=4).put(1, 3).put(1, 2).put(2, 4)
    assert job.state.requirements.version == 4
    assert job.ended()[-2:] == [("UPDATE_REQUIREMENT", "RESOURCE_REQUIREMENTS_UPDATED", 1)] * 2
    assert job.applied().parallelism == [4, 4, 4]


def test_l11_a_scheduler_other_than_adaptive_is_refused_when_the_job_is_submitted() -> None:
    """So there is no job whose bounds could be persisted and never applied."""
    _, errors = JobOptions.parse({"jobmanager.scheduler": "Default"})
    assert errors == ["Option jobmanager.scheduler: one of Adaptive is expected, found 'Default'."]


def test_l12_an_update_while_the_driver_is_started_is_picked_up_when_it_runs() -> None:
    job = Job(upper=4).do(StartScheduling()).hold(4)
    job.put(1, 2)
    assert job.kind == "CreatingExecutionGraph"
    assert job.effect(DeclareResources).desired == 2
    job.starts()
    assert job.kind == "Rescaling"
    assert [value for _, value in job.effect(SendPlan).plan.parallelism] == [2, 2, 2]
    job.applied()
    assert job.ended() == [
        ("INITIAL_SCHEDULE", "RESOURCE_REQUIREMENTS_UPDATED", 1),
        ("UPDATE_REQUIREMENT", "SUCCEEDED", 1),
    ]


def test_l13_a_planned_slot_lost_before_the_start_goes_back_to_waiting_with_the_record_open() -> None:
    """After a backoff, and with the slots that stayed, which is not as in Flink."""
    job = Job().do(StartScheduling()).wait(4_000).hold(2)
    record = job.open.uuid
    job.wait(2_000).hold(1)
    assert job.effect(StopAttempt).mode is StopMode.KILL
    assert job.open.uuid == record
    job.hold(2)
    assert job.state.attempt == 1, "the attempt that was given up may still live"
    assert job.stops().kind == "RetryingExecutionGraphCreation"
    assert 900 <= job.timer_in_ms("backoff") <= 1_100
    job.wait(1_100)
    assert (job.kind, job.open.uuid) == ("CreatingExecutionGraph", record)
    started = job.effect(StartAttempt)
    assert (started.attempt, started.plan.slot_ids) == (2, {"tm-0"})

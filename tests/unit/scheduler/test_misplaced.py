"""A driver that runs on another cluster than jobs do now is moved; no restart strategy is asked."""

from __future__ import annotations

from app.scheduler.adaptive.effects import StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptMisplaced,
    AttemptStopped,
    SlotsChanged,
    StartScheduling,
)
from app.worker.job.orders import implied_effects, orders_for
from tests.unit.batch.driving import running as running_batch
from tests.unit.scheduler.driving import Job, slots

WHY = "The driver was started on another cluster."


def test_it_stops_at_a_boundary_and_starts_at_the_same_parallelism() -> None:
    job = Job(options={"restart-strategy.type": "none"}).run()
    before = job.parallelism
    job.do(AttemptMisplaced(1, WHY))
    assert (job.kind, job.effect(StopAttempt).mode, job.open.message) == (
        "Restarting",
        StopMode.BOUNDARY,
        WHY,
    )
    job.do(AttemptMisplaced(1, WHY))
    assert job.effects == ()
    job.do(SlotsChanged(slots(2, manager="worker"))).stops()
    assert job.kind == "CreatingExecutionGraph" and job.effect(StartAttempt).attempt == 2
    assert not job.effect(StartAttempt).reuse_driver
    job.starts().commit()
    assert job.parallelism == before
    assert job.ended()[-1] == ("RECOVERABLE_FAILOVER", "SUCCEEDED", 2)


def test_it_waits_for_slots_if_there_are_none_yet() -> None:
    job = Job().run().do(AttemptMisplaced(1, WHY)).do(SlotsChanged(())).stops()
    assert job.kind == "WaitingForResources"
    job.do(SlotsChanged(slots(2, manager="worker")))
    assert job.kind == "CreatingExecutionGraph"


def test_one_that_does_not_stop_in_time_is_killed() -> None:
    job = Job().run().do(AttemptMisplaced(1, WHY))
    job.wait(job.state.options.stop_timeout_ms)
    assert job.effect(StopAttempt).mode is StopMode.KILL
    # Also by who takes it up.
    assert implied_effects(job.state) == (StopAttempt(1, StopMode.KILL),)
    assert orders_for(job.state, 1).stop == "kill"


def test_a_batch_job_goes_on_with_the_regions_that_are_finished() -> None:
    job = running_batch()
    job.finish("customers").do(AttemptMisplaced(1, WHY))
    (effect,) = [one for one in job.effects if isinstance(one, StopAttempt)]
    assert (job.kind, effect.mode) == ("Restarting", StopMode.KILL)
    job.do(AttemptStopped(1))
    assert job.kind == "CreatingExecutionGraph"
    job.run(customers=1, orders=1)
    assert list(job.orders) == ["orders"]


def test_a_start_that_failed_is_counted_also_if_it_was_on_another_cluster() -> None:
    job = Job().do(StartScheduling()).hold(2).do(AttemptFailed(1, "no java", stopped=False))
    assert job.do(AttemptMisplaced(1, WHY)).kind == "CreatingExecutionGraph", "it is being killed already"
    job.stops()
    assert (job.kind, job.state.recovery.creation.attempts) == ("RetryingExecutionGraphCreation", 1)

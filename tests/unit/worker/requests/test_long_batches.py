"""What is said of a batch that takes long, and of what waits for its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.load.reported import Load
from app.model.jobgraph import JobGraph
from app.model.measured import KeptReason, LongBatch
from app.model.protocol import Report
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.effects import StopAttempt
from app.scheduler.adaptive.events import AttemptFailed, StopRequested
from app.worker.requests.long_batches import long_batch_sentences, long_batches
from app.worker.views import JobView
from tests.unit.scheduler.driving import T0_MS, Job, chain, restarting_job, two_sinks

BATCH = "The job has been in batch 17 for 2 min, with 40 of 96 tasks done"
NAMED = "Batch 17 of sink"


def seen(job: Job, *, since_s: float = 130, sink: str = "sink", **fields: Any) -> JobView:
    """A view of ``job``, whose driver tells now of a batch that has run for ``since_s``."""
    vertex = next(each for each in job.graph.vertices if each.name == sink)
    told: dict[str, Any] = {"plan_version": 1, "tasks_done": 40, "tasks_known": 96, **fields}
    batch = LongBatch(vertex.id, "q", "run", 17, round(since_s * 1000), **told)
    load = Load()
    report = Report(1, T0_MS, "executors", long_batches=(batch,))
    load.note(report, job.state.attempt, job.graph, job.now_ms)
    state = job.state
    return JobView(state, status_of(state), T0_MS, None, None, 1, load=load)


def said(job: Job, *, later_s: float = 0, **fields: Any) -> list[str]:
    return long_batch_sentences(seen(job, **fields), job.now_ms + round(later_s * 1000))


def rescaling(graph: JobGraph | None = None, **options: object) -> Job:
    """From 2 to 4."""
    job = Job(graph, upper=4, options={f"slotwise.{name}": each for name, each in options.items()}).run()
    return job.hold(4)


def test_how_long_it_runs_and_how_far_it_is() -> None:
    job = Job().run()
    assert said(job) == [f"{BATCH}."]
    assert said(job, tasks_known=0, tasks_done=0) == ["The job has been in batch 17 for 2 min."]
    assert said(job, since_s=40, rows=12_000) == [
        "The job has been in batch 17, of 12,000 rows, for 40 s, with 40 of 96 tasks done."
    ]
    assert said(Job(two_sinks()).run(), since_s=9, sink="sink-raw") == [
        "The query of sink-raw has been in batch 17 for 9.0 s, with 40 of 96 tasks done."
    ]


def test_a_silent_driver_is_told_while_the_time_goes_on() -> None:
    job = Job().run()
    assert said(job, later_s=15, since_s=40) == [
        "The job has been in batch 17 for 55 s, with 40 of 96 tasks done."
    ]
    # Whether it was interrupted since then is not known either.
    assert len(said(rescaling(), later_s=50, waited_ms=10_000)) == 2
    assert said(job, later_s=50, since_s=40) == [
        "The job has been in batch 17 for 90 s, with 40 of 96 tasks done.",
        "The driver was last heard of 50 s ago: how far its batches are since then is not known.",
    ]


def test_nothing_is_said_of_another_attempt_or_of_one_that_is_dead() -> None:
    job = Job().run()
    view = seen(job)
    view.load.attempt += 1
    assert long_batches(view, job.now_ms) == []
    dead = job.do(AttemptFailed(1, "boom", stopped=True))
    assert dead.state.plan is None and said(dead) == []


def test_a_rescale_waits_before_the_driver_has_said_so() -> None:
    job = rescaling()
    assert said(job) == [f"{BATCH}; the rescale to 4 waits for its end."]
    (batch,) = long_batches(seen(job), job.now_ms)
    assert (batch.waiting, batch.rescale, batch.interruption_ms) == ("RESCALE", job.open, None)


def test_nothing_waits_for_a_batch_that_was_begun_at_the_plan() -> None:
    job = rescaling()
    assert said(job, plan_version=2) == [f"{BATCH}."]
    # A part of the plan, on a cluster.
    assert said(job, plan_version=2, waited_ms=1)[0] == f"{BATCH}; the rescale to 4 waits for its end."


def test_nor_for_that_of_a_query_that_the_rescale_does_not_change() -> None:
    graph = two_sinks()
    job = Job(graph, upper=2).run()
    numbers = {"source": (1, 2), "agg": (1, 2), "sink": (1, 2), "sink-raw": (1, 1)}
    job.put_each(**numbers)
    assert job.kind == "Rescaling"
    assert "the rescale to 1 waits" in said(job, sink="sink-raw")[0]
    assert "waits" not in said(job)[0]


def test_vertices_that_get_different_numbers_are_named() -> None:
    job = Job(upper=4).run(held=4)
    job.put_each(source=(1, 4), agg=(1, 3), sink=(1, 2))
    (sentence,) = said(job)
    assert sentence == f"{BATCH}; the rescale of agg 4 to 3, sink 4 to 2 waits for its end."


@pytest.mark.parametrize(
    ("later_s", "tasks", "sentence"),
    [
        (
            2,
            (40, 96),
            "is interrupted in 8.0 s, unless half of its tasks are done by then (slotwise.rescale.max-wait).",
        ),
        (11, (40, 96), "is being interrupted."),
        (11, (48, 96), "is not interrupted: half of its tasks are done."),
        (11, (0, 0), "is not interrupted: it has no task yet."),
    ],
)
def test_from_when_on_it_is_interrupted(later_s: float, tasks: tuple[int, int], sentence: str) -> None:
    job, (done, known) = rescaling(), tasks
    fields = {"waited_ms": 20_000, "tasks_done": done, "tasks_known": known}
    assert said(job, later_s=later_s, **fields)[1] == f"{NAMED} {sentence}"
    (batch,) = long_batches(seen(job, **fields), job.now_ms)
    assert batch.interruption_ms == job.now_ms + 10_000


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        ("sink", "its sink is not known to take a batch once (slotwise.batch.interruptible)"),
        ("once", "it was interrupted once"),
        ("executors", "executors are still to come for the rescale"),
        ("restarted", "it is the first one since its query was restarted"),
    ],
)
def test_why_it_is_not_interrupted(kept: KeptReason, why: str) -> None:
    job = rescaling()
    fields = {"waited_ms": 10_000, "kept": kept}
    assert said(job, **fields)[1] == f"{NAMED} is not interrupted: {why}."
    (batch,) = long_batches(seen(job, **fields), job.now_ms)
    assert batch.interruption_ms is None and batch.seen.waited_since_ms == job.now_ms - 10_000
    # Where nothing waits for it, it does not matter.
    assert said(Job().run(), kept=kept) == [f"{BATCH}."]


@pytest.mark.parametrize("option", [{"rescale.max-wait": "0"}, {"batch.interruptible": "false"}])
def test_options_of_the_job_say_so_too(option: dict[str, str]) -> None:
    """The driver of such a job says what it says of a sink."""
    assert said(rescaling(**option), waited_ms=90_000, kept="sink")[1] == (
        f"{NAMED} is not interrupted: slotwise.rescale.max-wait or slotwise.batch.interruptible says so."
    )


def test_a_stop_and_a_restart_wait_too() -> None:
    assert said(Job().run().do(StopRequested("t1"))) == [f"{BATCH}; the stop waits for its end."]
    job = restarting_job().hold(4)
    while job.kind != "Restarting":
        job.wait(1_000)
    assert said(job) == [f"{BATCH}; a restart waits for its end."]
    (batch,) = long_batches(seen(job), job.now_ms)
    assert batch.rescale == job.open
    while not job.has_effect(StopAttempt) or job.effect(StopAttempt).mode != "kill":
        job.wait(1_000)
    assert said(job) == [f"{BATCH}."], "it was waited for too long"
    failed = Job().run().do(AttemptFailed(1, "boom", stopped=False))
    assert said(failed) == [f"{BATCH}."], "it is killed"


def test_a_query_that_the_job_has_no_more_is_passed_over() -> None:
    job = Job(two_sinks()).run()
    view = seen(job, sink="sink-raw")
    without = replace(view, state=Job(chain()).run().state)
    assert long_batches(without, job.now_ms) == []

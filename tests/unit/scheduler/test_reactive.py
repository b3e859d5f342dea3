"""Reactive mode (FLIP-159): the upper bounds are the max parallelism, and the job follows the slots that there are."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.graph import parse_document
from app.model.grapherrors import GraphErrors
from app.model.options import FOREVER_MS, JobOptions
from app.scheduler.adaptive.effects import DeclareResources
from app.scheduler.adaptive.events import AttemptFailed, StartScheduling
from app.scheduler.explain import explain
from app.worker.requests.requirements import initial_requirements
from tests.unit.scheduler.driving import JOB, Job

REACTIVE: dict[str, object] = {"scheduler-mode": "reactive"}
WAIT = "jobmanager.adaptive-scheduler.submission.resource-wait-timeout"
STABLE = "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout"


def document(**config: str) -> dict[str, Any]:
    return {
        "name": "reacts",
        "type": "STREAMING",
        "config": config,
        "vertices": [
            {"name": "in", "source": {"format": "rate"}, "lowerBound": 2, "parallelism": 2},
            {"name": "n", "inputs": ["in"], "sql": "SELECT count(*) AS n FROM in", "maxParallelism": 6},
            {"name": "out", "inputs": ["n"], "sink": {"format": "noop", "outputMode": "complete"}},
        ],
    }


def reacting() -> Job:
    return Job(upper=128, options=REACTIVE).do(StartScheduling())


@pytest.mark.parametrize("name", ["reactive", "REACTIVE", " Reactive "])
def test_the_timing_is_that_of_production_flink(name: str) -> None:
    options, errors = JobOptions.parse({"scheduler-mode": name})
    assert errors == [] and options.is_reactive
    assert (options.submission_wait_ms, options.submission_stabilization_ms) == (FOREVER_MS, 0)
    assert (options.executing_cooldown_ms, options.executing_stabilization_ms) == (30_000, 60_000)


def test_timing_that_is_given_counts() -> None:
    options, errors = JobOptions.parse({**REACTIVE, WAIT: "1 min", STABLE: "2 s"})
    assert errors == []
    assert (options.submission_wait_ms, options.submission_stabilization_ms) == (60_000, 2_000)


def test_there_are_two_modes() -> None:
    assert not JobOptions.parse({"scheduler-mode": "none"})[0].is_reactive
    _, errors = JobOptions.parse({"scheduler-mode": "proactive"})
    assert errors == ["Option scheduler-mode: one of none, reactive is expected, found 'proactive'."]


def test_the_upper_bounds_are_the_max_parallelism_and_the_lower_ones_those_of_the_graph() -> None:
    graph = parse_document(document(**{"scheduler-mode": "reactive"}))
    found = initial_requirements(JOB, graph, None, reactive=True)
    assert [(own.lower, own.upper) for _, own in found] == [(2, 128), (1, 6), (1, 128)]


def test_a_batch_job_has_no_such_mode() -> None:
    batch = {**document(**{"scheduler-mode": "reactive"}), "type": "BATCH"}
    with pytest.raises(GraphErrors, match="scheduler-mode is for STREAMING jobs"):
        parse_document(batch)


def test_it_waits_for_ever_and_starts_with_what_comes() -> None:
    job = reacting().wait(30 * 86_400_000)
    assert job.kind == "WaitingForResources" and not job.records
    job.hold(3)
    assert job.kind == "CreatingExecutionGraph"
    assert job.starts().commit().parallelism == [3, 3, 3]


def test_it_follows_the_slots_up_and_down() -> None:
    job = reacting().hold(2).starts().commit()
    assert next(one for one in job.history if isinstance(one, DeclareResources)).desired == 128
    for count in (5, 9, 1, 4):
        job.hold(count).wait(200)
        if job.kind == "Rescaling":
            job.applied()
        assert job.parallelism == [count] * 3
    sentences, violations = explain(job.state, job.now_ms)
    assert sentences[0].startswith("The job runs in reactive mode") and not violations


def test_slots_that_make_it_crash_are_left_alone_until_slots_are_lost() -> None:
    job = reacting().hold(2).starts().commit().hold(4).wait(200)
    assert job.kind == "Rescaling"
    job.do(AttemptFailed(1, "boom", stopped=True)).starts().commit()
    assert job.parallelism == [2, 2, 2]
    assert job.hold(8).wait(60_000).parallelism == [2, 2, 2]
    assert job.hold(1).applied().hold(3).wait(200).applied().parallelism == [3, 3, 3]

"""How long an attempt may take to start, and how long slots for it are waited for."""

from __future__ import annotations

import pytest

from app.model.options import OPTIONS
from app.model.value import evolve
from app.scheduler.adaptive.effects import StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.events import StartScheduling
from tests.unit.scheduler.driving import Job

OPTION = "slotwise.driver.start-timeout"


@pytest.mark.parametrize(
    ("cluster_ms", "words"),
    [
        (0, f"The driver did not start within 60000 ms ({OPTION}); it is killed."),
        (
            30_000,
            f"The driver did not start within 90000 ms ({OPTION} and 30000 ms for the cluster to bring executors); it "
            "is killed.",
        ),
    ],
)
def test_what_the_cluster_takes_to_bring_executors_is_not_the_drivers(cluster_ms: int, words: str) -> None:
    job = Job(options={OPTION: "1 min"})
    job.state = evolve(job.state, options=evolve(job.state.options, cluster_start_ms=cluster_ms))
    job.do(StartScheduling()).hold(2)
    assert job.kind == "CreatingExecutionGraph"
    assert job.timer_in_ms("start-timeout") == 60_000 + cluster_ms
    job.wait(60_000 + cluster_ms)
    assert job.effect(StopAttempt).mode is StopMode.KILL
    assert job.state.recovery.failures[-1][0].error == words


def test_it_is_no_option_of_a_job() -> None:
    assert OPTION in OPTIONS and not any("cluster" in name for name in OPTIONS)


def test_a_wait_for_more_slots_that_is_over_starts_the_job_with_those_that_suffice() -> None:
    submission = "jobmanager.adaptive-scheduler.submission"
    options: dict[str, object] = {
        f"{submission}.resource-wait-timeout": "5 s",
        f"{submission}.resource-stabilization-timeout": "1 h",
    }
    job = Job(upper=4, options=options).do(StartScheduling()).hold(2).wait(4_999)
    assert job.kind == "WaitingForResources"
    assert [count for _, count in job.wait(1).effect(StartAttempt).plan.parallelism] == [2, 2, 2]

"""Whether something of a query that failed may still run, as Spark's tracker says, which lags behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.load import SparkFigures


class Optional:
    def __init__(self, value: Any) -> None:
        self._value = value

    def isEmpty(self) -> bool:
        return self._value is None

    def get(self) -> Any:
        return self._value


class Status(str):
    def toString(self) -> str:
        return str(self)


@dataclass
class Tracker:
    """Spark's, with the status and the active tasks of the job of one query."""

    status: str
    tasks: dict[int, int | None] = field(default_factory=dict)

    def getJobIdsForGroup(self, run_id: str) -> list[int]:
        return [7] if run_id == "run" else []

    def getJobInfo(self, _job_id: int) -> Optional:
        return Optional(
            SimpleNamespace(status=lambda: Status(self.status), stageIds=lambda: list(self.tasks))
        )

    def getStageInfo(self, stage_id: int) -> Optional:
        active = self.tasks[stage_id]
        return Optional(None if active is None else SimpleNamespace(numActiveTasks=lambda: active))


@pytest.mark.parametrize(
    ("status", "tasks", "runs"),
    [
        ("RUNNING", {}, True),
        ("RUNNING", {3: 0}, True),
        ("FAILED", {3: 0, 4: 1}, True),
        ("FAILED", {3: 0, 4: None}, False),
        ("SUCCEEDED", {3: 0}, False),
    ],
)
def test_a_job_that_has_not_ended_may_have_tasks_that_nobody_has_told_of(
    status: str, tasks: dict[int, int | None], runs: bool
) -> None:
    tracker = Tracker(status, tasks)
    scala = SimpleNamespace(statusTracker=lambda: tracker, statusStore=lambda: None)
    context: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala))
    figures = SparkFigures(context)
    assert figures.has_active_tasks("run") is runs
    assert not figures.has_active_tasks("another run")

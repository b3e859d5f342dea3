"""A BATCH job on a cluster waits for no executors for ever, and gives up one that is held."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.base_attempt import ExecutorNews
from app.driver.batch import attempt
from app.driver.batch.attempt import BatchAttempt
from app.driver.failures import DriverError
from tests.unit.driver.test_executors import Scheduler, running_with_two, scheduler, until  # noqa: F401


class TooLong(BaseException):
    """The test would never end."""


class Region:
    """A run that makes no progress."""

    def __init__(self) -> None:
        self.order = SimpleNamespace(run=1)
        self.looks = 0

    def task_news(self) -> None:
        self.looks += 1
        if self.looks > 3:
            raise TooLong


class Waiting(BatchAttempt):
    """An attempt without Spark, in which one region runs."""

    def __init__(self, executors: Any) -> None:
        self.spec: Any = SimpleNamespace(spark_conf={}, results_dir="", plan_version=1, ended_results=())
        self._inbox = queue.SimpleQueue()
        self._graph: Any = None
        self._results_dir = ""
        self._executors = executors
        self._news: Any = ExecutorNews(None, lambda **fields: None)
        self._runs: dict[int, Any] = {1: Region()}

    def _begin(self) -> Any:
        return None, None

    def _connect(self, session: Any) -> Any:
        self._client: Any = SimpleNamespace(report=lambda **_fields: None)
        return self._client


def test_it_is_looked_whether_there_are_any_while_a_region_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Schemas", "Storages", "source_bytes"):
        monkeypatch.setattr(attempt, name, lambda *_args: None)
    keeper = SimpleNamespace(remove_ended=lambda _ended: None)
    monkeypatch.setattr(attempt, "Keeper", lambda *_args: keeper)
    monkeypatch.setattr(attempt, "_PROGRESS_S", 0.001)

    def check() -> None:
        raise DriverError("The job has had no executor for 60 s.", recoverable=True, by_cluster=True)

    with pytest.raises(DriverError, match="no executor"):
        Waiting(SimpleNamespace(check=check))._until_end()
    with pytest.raises(TooLong):
        Waiting(None)._until_end()


def test_one_that_is_not_warm_and_not_wanted_is_killed_while_tasks_run(
    scheduler: Scheduler,  # noqa: F811 - the fixture
) -> None:
    executors = running_with_two(scheduler)
    executors.request(3)
    scheduler.hosts[2] = "a"
    until(lambda: 2 in scheduler.warming)
    executors.request(2)
    until(lambda: scheduler.asked[-1] == 2 and executors._requests.heard == 2)
    executors.retire()
    assert (scheduler.killed, executors.active) == (["2"], [0, 1])

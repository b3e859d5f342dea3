"""What a driver tells of its executors, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import base_attempt
from app.driver.base_attempt import ExecutorNews


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [100.0]
    monkeypatch.setattr(base_attempt.time, "monotonic", lambda: moment[0])
    return moment


def test_a_change_is_told_once_and_looked_for_now_and_then(now: list[float]) -> None:
    reports: list[dict[str, Any]] = []
    executors: Any = SimpleNamespace(ready=1, wanted=2)
    news = ExecutorNews(executors, lambda **fields: reports.append(fields))
    assert news.figures() == {"executors": 1, "executors_wanted": 2}
    for _ in range(100):
        now[0] += 0.1
        news.turn()
    assert reports == [], "it was told with the report that the figures were for"
    now[0] += 60
    news.turn()
    executors.ready = 2
    news.turn()
    now[0] += 1.9
    news.turn()
    assert reports == [] and news.known["executors"] == 1
    now[0] += 0.2
    news.turn()
    assert reports == [{"type": "executors", "executors": 2, "executors_wanted": 2}]
    now[0] += 60
    news.turn()
    assert len(reports) == 1
    executors.wanted = 4
    now[0] += 60
    news.turn()
    assert reports[1:] == [{"type": "executors", "executors": 2, "executors_wanted": 4}]


def test_why_one_gets_no_tasks_is_told_when_that_changes(now: list[float]) -> None:
    reports: list[dict[str, Any]] = []
    executors: Any = SimpleNamespace(ready=1, wanted=2)
    sight: Any = SimpleNamespace(why="")
    news = ExecutorNews(executors, lambda **fields: reports.append(fields), sight)
    assert "executors_why" not in news.figures()
    sight.why = "Executor 2 does not see /jobs."
    for _ in range(2):
        now[0] += 60
        news.turn()
    figures = {"type": "executors", "executors": 1, "executors_wanted": 2}
    assert reports == [{**figures, "executors_why": sight.why}]
    sight.why = ""
    now[0] += 60
    news.turn()
    assert reports[1:] == [figures]


def test_a_driver_that_is_its_own_executor_tells_nothing(now: list[float]) -> None:
    reports: list[dict[str, Any]] = []
    news = ExecutorNews(None, lambda **fields: reports.append(fields))
    now[0] += 60
    news.turn()
    assert (news.figures(), news.known, reports) == ({}, {}, [])

"""When a driver tells of its executors, of queries without data and of batches that take long."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import load, started_query
from app.driver.checkpoints import Past
from app.driver.failures import Failure
from app.driver.gap_meter import GapMeter
from app.driver.load import LoadNews, SparkFigures
from app.driver.started_query import StartedQuery
from app.model.measured import ExecutorLoad, LongBatch

LOAD = ExecutorLoad("driver", "here", 1, 2, 3, 4, 5, 6, 7, 8)
BATCH = LongBatch("sink", "id", "run", 17, 9_000, 1)


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.s = 100.0
        for module in (load, started_query):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.s))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_load_is_told_every_five_seconds_with_a_batch_or_without(clock: Clock) -> None:
    told: list[dict[str, Any]] = []
    figures: Any = SimpleNamespace(executors=lambda: (LOAD,))
    news = LoadNews(
        figures, lambda **fields: told.append(fields), idle=lambda: ("sink",), long_batches=lambda: (BATCH,)
    )
    known = {"executor_loads": (LOAD,), "idle_queries": ("sink",), "long_batches": (BATCH,)}
    assert news.figures() == known, "the first batch has it"
    news.turn({})
    clock.s += 4.9
    assert news.figures() == {} and not told
    clock.s += 0.1
    news.turn({"executors": 2, "executors_wanted": 3})
    assert told == [{"type": "executors", **known, "executors": 2, "executors_wanted": 3}]
    assert news.figures() == {}
    clock.s += 5
    assert news.figures() and len(told) == 1


def test_queries_without_data_are_told_where_nothing_is_measured(clock: Clock) -> None:
    def unreadable() -> tuple[LongBatch, ...]:
        raise ValueError("no such figure")

    news = LoadNews(None, lambda **_fields: None, idle=lambda: ("sink",), long_batches=unreadable)
    assert news.figures() == {"executor_loads": (), "idle_queries": ("sink",), "long_batches": ()}


class Asked(StartedQuery):
    """A query of which is known what Spark says of its state."""

    def __init__(self, *, active: bool = True, batch: int | None = None, triggered: bool) -> None:
        self.gateway = SimpleNamespace(running_batch=batch, failure=None)  # type: ignore[assignment]
        self._spark_query = SimpleNamespace(  # type: ignore[assignment]
            isActive=active, status={"isTriggerActive": triggered}, exception=lambda: None
        )
        self._valves = SimpleNamespace(apply_pending=lambda: True)  # type: ignore[assignment]
        self._plans = SimpleNamespace(current=SimpleNamespace(number=1, whole=False))  # type: ignore[assignment]
        self._interruption = None
        self._idle_at, self.reached, self.query_id = float("-inf"), 0, "id"
        self._last_batch = self._idle_noted = -1
        self.gaps = GapMeter(Past((), None))
        self.checkpoint_dir = Path()


def test_a_query_is_idle_that_waits_for_data_and_not_one_that_hangs_in_its_source(clock: Clock) -> None:
    assert Asked(triggered=False).is_idle, "until its next trigger there is nothing to do"
    ended = Asked(triggered=False, active=False)
    assert ended.is_idle, "it has read all that there was"
    ended.gateway.failure = Failure("boom", "stack")
    assert not ended.is_idle, "it waits for what becomes of it"
    assert not Asked(triggered=True, batch=3).is_idle
    looking = Asked(triggered=True)
    assert not looking.is_idle
    looking.idle(1)
    assert looking.is_idle, "it looks again, and found nothing a moment ago"
    clock.s += 5
    assert not looking.is_idle


def test_a_spark_without_the_figures_costs_the_job_nothing_but_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_context: object) -> Any:
        raise AttributeError("no such class")

    monkeypatch.setattr(load, "_made", refuses)
    figures = SparkFigures(None)  # type: ignore[arg-type]
    assert figures.stages("run", 1) == [] and figures.operators(object(), ()) == []
    assert figures.executors() == ()

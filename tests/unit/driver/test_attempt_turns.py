"""The loop of a streaming attempt: what is looked at by time is looked at whatever comes in."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import attempt, failover
from app.driver.attempt import Attempt
from app.driver.base_attempt import Ending, Terminate
from app.driver.failover import END_S, LocalFailover
from app.driver.failures import Failure
from app.driver.progress import Committed


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.s = 100.0
        for module in (attempt, failover):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.s))


class Looped(Attempt):
    """An attempt without Spark: queries that the test makes up."""

    def __init__(self, *queries: Any) -> None:
        self._inbox = queue.SimpleQueue()
        self._fenced = False
        self._executors = self._stop = None
        self._load: Any = SimpleNamespace(turn=lambda _known: None)
        self._news: Any = SimpleNamespace(known={})
        self._queries = list(queries)
        self._by_run = {}
        self._tick_at = 0.0
        self.failed: list[Failure] = []
        self._failover = LocalFailover(
            report=lambda **_fields: None, begun_version=lambda: 1, restart=lambda running: running
        )

    def _fail(self, failure: Failure, *, repartition_failed: bool = False) -> Ending:
        self.failed.append(failure)
        return Ending.FAILED

    @property
    def _runs(self) -> Any:
        return self._queries

    def _unasked(self, *_: object) -> Any:
        raise AssertionError

    _start = _can_be_followed = _location = _on_other = _on_well_ended = _unasked


def test_a_batch_of_whose_vertices_nothing_can_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_known: object) -> None:
        raise ValueError("no such figure")

    running = SimpleNamespace(
        query=SimpleNamespace(key="sink"),
        query_id="id",
        with_intake=lambda happening: happening,
        committed=lambda *_: (
            SimpleNamespace(started_ms=1, output_rows=2, state_is_even=True),
            SimpleNamespace(version=1, whole=True),
        ),
        batches=SimpleNamespace(vertices=unreadable, stays_unfollowed={}),
        backlog=None,
        was_reprocessed=lambda _batch_id: False,
    )
    looped = Looped(running)
    looped._by_run, looped._past_first_batch, looped._tick_at = {"run": running}, {"sink"}, float("inf")
    looped._load.figures = dict
    told: list[dict[str, Any]] = []
    for name, made in (
        ("_report", lambda **fields: told.append(fields)),
        ("_report_applied", lambda: None),
        ("_gap_so_far", lambda _now_ms: None),
        ("_note_well", lambda _running: None),
    ):
        monkeypatch.setattr(looped, name, made)
    looped._inbox.put(Committed("run", "id", 3, 5, 9))
    assert looped._turn() is None
    assert [(each["type"], each["batch_id"], each["vertices"]) for each in told] == [("batch", 3, ())]


def query_that_hangs(overdue: Failure | None) -> Any:
    return SimpleNamespace(overdue=lambda: overdue, is_active=True, is_over=False, waits_for_data=False)


def test_a_batch_that_hangs_is_seen_however_much_the_other_queries_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    running = query_that_hangs(None)
    looped = Looped(running)
    for _ in range(20):
        looped._inbox.put(Committed("of another query", "id", 1, 5, 9))
    assert looped._turn() is None
    running.overdue = lambda: Failure("It hangs.", "")
    assert looped._turn() is None, "it was looked a moment ago"
    clock.s += attempt._TICK_S
    assert looped._turn() is Ending.FAILED
    assert not looped._inbox.empty() and looped.failed[0].sentence == "It hangs."


def test_a_query_that_waits_for_data_is_seen_at_each_look_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of Spark's says so: its own events of it come each ten seconds."""
    Clock(monkeypatch)
    running, seen = query_that_hangs(None), list[int]()
    running.idle, running.is_done = seen.append, False
    looped = Looped(running, query_that_hangs(None))
    for name in ("_report_applied", "_note_well"):
        monkeypatch.setattr(looped, name, lambda *_: None)
    assert looped._tick() is None and not seen
    running.waits_for_data = True
    assert looped._tick() is None and looped._tick() is None and len(seen) == 2


def test_a_stop_does_not_wait_for_ever_for_a_query_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    held = SimpleNamespace(
        query=SimpleNamespace(key="ab"),
        stop_at_boundary=lambda: None,
        overdue=lambda: None,
        is_active=False,
        waits_for_data=False,
        is_gone=lambda: False,
        close=lambda: None,
    )
    looped = Looped(held)
    looped._failover.hold(held, Failure("boom", "stack"))  # type: ignore[arg-type]
    looped._inbox.put(Terminate())
    assert looped._turn() is None
    clock.s += END_S
    assert looped._tick() is None
    clock.s += 0.1
    assert looped._tick() is Ending.FAILED
    assert "did not end within 20 s" in looped.failed[0].sentence


def test_a_failure_outside_of_the_queries_says_how_many_batches_are_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the same error of a program would be taken for one without progress, whatever was committed in between."""
    told: list[Failure] = []

    def fail(_self: object, failure: Failure, *, repartition_failed: bool) -> Ending:
        told.append(failure)
        return Ending.FAILED

    monkeypatch.setattr(attempt.BaseAttempt, "_fail", fail)
    looped = Looped(SimpleNamespace(committed_batches=13), SimpleNamespace(committed_batches=2))
    Attempt._fail(looped, Failure("The program ended.", "", user_error="SystemExit at job.py, line 3"))
    Attempt._fail(looped, Failure("A query failed.", "", query_id="id", batch_id=4))
    assert [each.batch_id for each in told] == [15, 4]

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
from app.driver.interruption import Interruption
from app.driver.progress import Committed
from app.model.measured import LongBatch


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
        self._steps: Any = SimpleNamespace(is_waiting=False)
        self._load: Any = SimpleNamespace(turn=lambda _known: None)
        self._news: Any = SimpleNamespace(known={})
        self._queries = list(queries)
        self._by_run = {}
        self._tick_at = 0.0
        self.restarted: list[Any] = []
        self._restart = self.restarted.append
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
    return SimpleNamespace(
        overdue=lambda: overdue,
        is_active=True,
        is_over=False,
        waits_for_data=False,
        is_interrupted=False,
        interrupt_if_due=lambda: None,
        query=SimpleNamespace(key="ab"),
    )


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
        is_interrupted=False,
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


def interrupted_query() -> Any:
    """A query that has ended because its batch was interrupted, and tasks of which still run."""
    return SimpleNamespace(
        query=SimpleNamespace(key="ab", sink=SimpleNamespace(name="store")),
        query_id="id",
        committed_batches=4,
        overdue=lambda: None,
        is_active=False,
        waits_for_data=False,
        is_interrupted=True,
        interrupted_s=0.5,
        is_silent=True,
        is_gone=lambda: False,
        failure=lambda: None,
        interrupt_if_due=lambda: None,
        stop_at_boundary=lambda: None,
        try_stop=lambda: True,
    )


def test_an_interrupted_query_starts_again_once_nothing_of_it_writes_and_all_is_told() -> None:
    cut = interrupted_query()
    looped = Looped(cut)
    assert looped._tick() is None and not looped.restarted, "a task of it still runs"
    cut.is_gone, cut.is_silent = lambda: True, False
    assert looped._tick() is None and not looped.restarted, "it may have committed its batch in that moment"
    cut.is_silent = True
    assert looped._tick() is None and looped.restarted == [cut] and not looped.failed


def test_what_a_batch_had_begun_that_does_not_end_is_a_failure() -> None:
    cut = interrupted_query()
    cut.interrupted_s = END_S + 0.1
    looped = Looped(cut)
    assert looped._tick() is Ending.FAILED
    text = "What an interrupted batch of store had begun did not end within 20 s."
    assert looped.failed[0].sentence == text and not looped.restarted


def test_an_interrupted_query_that_cannot_be_started_again_is_a_failure_of_its_own() -> None:
    def refused(_running: object) -> Any:
        raise ValueError("no such table")

    cut = interrupted_query()
    cut.is_gone = lambda: True
    looped = Looped(cut)
    looped._restart = refused
    assert looped._tick() is Ending.FAILED
    (failed,) = looped.failed
    assert "no such table" in failed.sentence and (failed.query_id, failed.batch_id) == ("id", 4)


def test_a_stop_goes_before_an_interruption_and_waits_for_what_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = interrupted_query()
    looped = Looped(cut)
    looped._inbox.put(Terminate())
    assert looped._turn() is None and looped._tick() is None, "a task of it still runs"
    cut.is_gone = lambda: True
    assert looped._tick() is Ending.FAILED and looped.failed[0].sentence == attempt.TOLD_TO_END.sentence
    assert not looped.restarted


def test_no_batch_is_interrupted_while_executors_are_to_come_or_the_job_is_stopped() -> None:
    asked, running = list[int](), query_that_hangs(None)
    running.interrupt_if_due = lambda: asked.append(1)
    looped = Looped(running)
    looped._steps.is_waiting = True
    assert looped._tick() is None and not asked
    looped._steps.is_waiting = False
    assert looped._tick() is None and asked == [1]
    looped._failover._unproven["ab"] = (running, 1)
    assert looped._tick() is None and asked == [1], "after its failure it has to commit a batch first"
    running.try_stop, running.stop_at_boundary = lambda: False, lambda: None
    looped._begin_stop(Terminate())
    assert looped._tick() is None and asked == [1]


def applied(looped: Looped, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `plan-applied` says of plan 7, in an attempt that has applied another one before."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(looped, "_report", lambda **fields: told.append(fields))
    looped._plans = SimpleNamespace(current=SimpleNamespace(version=7, number=2))  # type: ignore[assignment]
    looped._reported_version = 3
    looped._news.figures = dict
    looped._report_applied()
    (report,) = told
    return report


def test_the_rows_of_a_batch_that_ran_again_are_told_with_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(again: Interruption | None) -> Any:
        return SimpleNamespace(
            applied_version=7,
            gaps=SimpleNamespace(take=lambda: 900),
            reprocessed_records=12,
            take_again=lambda: again,
            batches=SimpleNamespace(not_followed=lambda _number: {}),
        )

    report = applied(Looped(query(None), query(None)), monkeypatch)
    assert (report["reprocessed_records"], report["interrupted"]) == (0, "")
    cut = Interruption("store", 4, 95.2, 12, 80, rows=5_000)
    report = applied(Looped(query(None), query(cut)), monkeypatch)
    assert (report["reprocessed_records"], report["output_gap_ms"]) == (5_000, 900)
    assert report["interrupted"] == (
        "A batch of store that had run for 95 s, with 12 of 80 tasks done, was interrupted and ran again at the new "
        "parallelism."
    )


def test_what_keeps_a_long_batch_from_an_interruption_is_told_with_it() -> None:
    def query(batch: LongBatch | None) -> Any:
        return SimpleNamespace(
            query=SimpleNamespace(key="sink"), batch_watcher=SimpleNamespace(now=lambda: batch)
        )

    long = query(LongBatch("sink", "id", "run", 17, 9_000, 1))
    looped = Looped(long, query(None))
    assert [each.kept for each in looped._long_batches()] == [""]
    looped._failover._unproven["sink"] = (long, 1)
    assert [each.kept for each in looped._long_batches()] == ["restarted"]
    looped._steps.is_waiting = True
    assert [each.kept for each in looped._long_batches()] == ["executors"]

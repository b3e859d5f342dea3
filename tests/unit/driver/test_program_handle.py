"""The handle that a program has of a query, while the query is stopped for the job and started again without it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from pyspark.errors import StreamingQueryException

from app.driver.program.handle import Handle, Queries

AT_MOST_S = 20.0


@dataclass
class Report:
    """The progress of a batch, as Java has it."""

    batch_id: int
    rows: int = 8

    def json(self) -> str:
        # What PySpark asks for in any case.
        needed = {"name": None, "timestamp": "", "batchDuration": 1, "stateOperators": [], "sources": []}
        sink = {"description": "noop", "numOutputRows": -1}
        own = {"id": str(UUID(int=1)), "runId": str(UUID(int=2)), "batchId": self.batch_id, "sink": sink}
        return json.dumps({**needed, **own, "numInputRows": self.rows})


class Run:
    """A run as the handle sees it: what Java's query would say."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.reported: list[Report] = []
        self.stopped = False

    def isActive(self) -> bool:
        return not self.ended.is_set()

    def exception(self) -> Any:
        return self

    def status(self) -> Any:
        return self

    def json(self) -> str:
        return f'{{"message": "{"Getting offsets" if self.isActive() else "Stopped"}"}}'

    def isDefined(self) -> bool:
        return False

    def recentProgress(self) -> list[Report]:
        return self.reported

    def lastProgress(self) -> Report | None:
        return self.reported[-1] if self.reported else None

    def awaitTermination(self, *_: Any) -> bool:
        assert self.ended.wait(AT_MOST_S)
        return True

    def stop(self) -> None:
        self.stopped = True
        self.ended.set()


class Job:
    """The calls of a handle. A stop ends ``run``, and holds back the program until ``after`` is in its place."""

    was_stopped = False

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.held_back = threading.Event()
        self.run = Run()
        self.queries = Queries(self)  # type: ignore[arg-type]
        self.begin_query()

    def begin_query(self) -> None:
        session = SimpleNamespace(
            streams=SimpleNamespace(_jsqm=None), conf={"spark.sql.streaming.numRecentProgressUpdates": "4"}
        )
        self.handle = Handle(self, session, lambda run: run)  # type: ignore[arg-type]
        self.handle.begin(self.run)  # type: ignore[arg-type]

    def waited(self, wait: Callable[[], Any]) -> Any:
        result = wait()
        self.hang_if_stopping()
        return result

    @property
    def is_stopping(self) -> bool:
        return not self.goes_on.is_set()

    def hang_if_stopping(self) -> None:
        if not self.goes_on.is_set():
            self.held_back.set()
        assert self.goes_on.wait(AT_MOST_S)

    def restarts(self, error: StreamingQueryException) -> bool:
        return False

    def stop(self) -> None:
        self.goes_on.clear()
        self.run.ended.set()

    def go_on(self) -> Run:
        after = Run()
        self.handle.begin(after)  # type: ignore[arg-type]
        self.goes_on.set()
        return after


def calling(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    return thread, results


def test_whoever_waits_goes_on_waiting_for_the_next_run() -> None:
    job = Job()
    thread, results = calling(job.handle.awaitTermination)
    job.stop()
    assert job.held_back.wait(AT_MOST_S)
    after = job.go_on()
    assert not results
    after.ended.set()
    thread.join(AT_MOST_S)
    assert results == [True]


def sees_a_query_that_runs(handle: Handle) -> bool:
    return handle.isActive and handle.exception() is None and handle.status["message"] != "Stopped"


def test_a_look_at_it_meanwhile_sees_a_query_that_runs_and_does_not_wait() -> None:
    """A listener that looks while the next run starts would hold up that start for ever."""
    job = Job()
    job.stop()
    assert sees_a_query_that_runs(job.handle)
    assert not job.held_back.is_set()
    job.go_on()
    assert sees_a_query_that_runs(job.handle)


def test_a_stop_by_the_program_that_comes_meanwhile_stops_the_next_run() -> None:
    job = Job()
    job.stop()
    thread, results = calling(job.handle.stop)
    assert job.held_back.wait(AT_MOST_S)
    after = job.go_on()
    thread.join(AT_MOST_S)
    assert (results, after.stopped) == ([None], True)


def progress_of(job: Job) -> tuple[list[int], int | None]:
    """The batches of what it has reported lately, and that of the last one."""
    last = job.handle.lastProgress
    return [each["batchId"] for each in job.handle.recentProgress], last and last["batchId"]


def test_the_progress_of_all_runs_is_that_of_one_query() -> None:
    """Also of a run that the program does not get: its rows are rows of the query."""
    job = Job()
    assert progress_of(job) == ([], None)
    job.run.reported += [Report(0), Report(1)]
    assert progress_of(job) == ([0, 1], 1)
    job.stop()
    between = Run()
    job.handle.begin_unseen(between)  # type: ignore[arg-type]
    assert progress_of(job) == ([0, 1], 1)
    between.reported.append(Report(2))
    assert progress_of(job) == ([0, 1, 2], 2)
    after = job.go_on()
    assert progress_of(job) == ([0, 1, 2], 2)
    after.reported += [Report(3)]
    assert progress_of(job) == ([0, 1, 2, 3], 3)
    assert sum(each["numInputRows"] for each in job.handle.recentProgress) == 32
    after.reported += [Report(4), Report(5)]
    assert progress_of(job) == ([2, 3, 4, 5], 5), "as many as Spark keeps of one query"


def test_a_query_that_ends_by_itself_has_ended() -> None:
    job = Job()
    job.run.ended.set()
    assert job.handle.awaitTermination() is True
    assert not job.handle.isActive


def test_of_queries_that_have_ended_one_is_known() -> None:
    """A program may start any number, one after the other: a wait for any of them sees that one has ended."""
    job = Job()
    running = job.handle
    for _ in range(5):
        job.run = Run()
        job.begin_query()
        job.run.ended.set()
    manager: Any = SimpleNamespace(_jsqm=None)
    assert len(job.queries._all) == 3 and job.queries.active(manager) == [running]
    assert job.queries.await_any(manager, 0) is True

"""The query handle of a program: one handle for all runs of the query.

A failed run that is restarted alone does not fail for the program: its query stays active, and calls that wait
for it keep waiting. So does a query that is stopped between two batches in order to start all queries again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamWriter

if TYPE_CHECKING:
    from app.driver.program.takeover import Takeover

_POLL_S = 0.1
_PROGRESS_KEPT = "spark.sql.streaming.numRecentProgressUpdates"
# What Spark says of a query that is starting.
_STARTING = {"message": "Initializing sources", "isDataAvailable": False, "isTriggerActive": False}

_await_any: Any = StreamingQueryManager.awaitAnyTermination
_reset: Any = StreamingQueryManager.resetTerminated


class Handle(StreamingQuery):
    """What a program has of its query. What ends because the job is stopped does not end for the program."""

    def __init__(
        self, calls: Takeover, session: SparkSession, start: Callable[[DataStreamWriter], Any]
    ) -> None:
        """``start`` is Spark's own: it starts a writer, and gives the query of Java."""
        super().__init__(None)
        self.manager = session.streams._jsqm
        self._calls = calls
        self._conf = session.conf
        self._start = start
        self._changed = threading.Condition()
        # What earlier runs have reported, and the latest run.
        self._reports: tuple[list[StreamingQueryProgress], StreamingQuery | None] = [], None

    def begin(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a run, which is the query from now on."""
        run = self.begin_unseen(writer)
        with self._changed:
            self._jsq = run._jsq
            self._changed.notify_all()
        self._calls.queries.add(self)
        return run

    def begin_unseen(self, writer: DataStreamWriter) -> StreamingQuery:
        """A run of which the program gets the progress alone."""
        run = StreamingQuery(self._start(writer))
        self._reports = self.recentProgress, run
        return run

    # What only asks does not wait: a listener that asks while a query starts would hold up that start.

    @property
    def isActive(self) -> bool:
        if self._jsq is None:
            # Spark has refused to start it.
            return False
        run = self._run()
        return run.isActive or self._calls.is_stopping or self._is_replaced(run)

    @property
    def status(self) -> dict[str, Any]:
        run = self._run()
        status = run.status
        if not run.isActive and (self._calls.is_stopping or self._is_replaced(run)):
            return {**_STARTING}
        return status

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        before, run = self._reports
        kept = int(self._conf.get(_PROGRESS_KEPT))  # type: ignore[arg-type]
        return (before + (run.recentProgress if run else []))[-kept:]

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        before, run = self._reports
        last = run.lastProgress if run else None
        return last or (before[-1] if before else None)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        until = time.monotonic() + timeout if isinstance(timeout, int | float) else None
        left: Any = timeout
        while True:
            run = self._run()
            try:
                result: bool | None = self._calls.waited(partial(run.awaitTermination, left))
                if result is False or not self._is_replaced(run):
                    return result
            except StreamingQueryException:
                if self._calls.was_stopped:
                    return None if timeout is None else True
                if not self._is_replaced(run):
                    raise
            if not self._await_next(run, until):
                return False
            left = None if until is None else max(0.001, until - time.monotonic())

    def processAllAvailable(self) -> None:
        while True:
            run = self._run()
            try:
                self._calls.waited(run.processAllAvailable)
                if not self._is_replaced(run):
                    return
            except StreamingQueryException:
                if self._calls.was_stopped:
                    return
                if not self._is_replaced(run):
                    raise
            self._await_next(run)

    def exception(self) -> StreamingQueryException | None:
        run = self._run()
        error = run.exception()
        if error is None or self._calls.is_stopping or self._calls.was_stopped or self._is_replaced(run):
            return None
        return error

    def stop(self) -> None:
        self._calls.hang_if_stopping()
        while True:
            run = self._run()
            run.stop()
            self._calls.hang_if_stopping()
            if not self._is_replaced(run):
                return
            # It would be started again behind the back of the program.
            self._await_next(run)

    def _run(self) -> StreamingQuery:
        return StreamingQuery(self._jsq)

    def _is_replaced(self, run: StreamingQuery) -> bool:
        """Whether another run is or will be in the place of ``run``, which has ended."""
        if self._jsq is not run._jsq:
            return True
        error = None if self._calls.was_stopped else run.exception()
        return error is not None and self._calls.restarts(error)

    def _await_next(self, run: StreamingQuery, until: float | None = None) -> bool:
        """Wait until another run is in the place of ``run``; False if that is not so at ``until``."""
        left_s = None if until is None else until - time.monotonic()
        with self._changed:
            return self._changed.wait_for(lambda: self._jsq is not run._jsq, left_s)


class Queries:
    """The queries that a program has started, as `StreamingQueryManager` tells of them."""

    def __init__(self, calls: Takeover) -> None:
        self._calls = calls
        self._all: list[Handle] = []

    def add(self, handle: Handle) -> None:
        """``handle`` runs. Of those that have ended one is kept, which tells that some have, as Spark keeps it."""
        others = [each for each in self._all if each is not handle and each.manager == handle.manager]
        ended = [each for each in others if not each.isActive]
        kept = next((each for each in ended if each.exception() is not None), ended[0] if ended else None)
        forgotten = [each for each in ended if each is not kept]
        self._all = [each for each in self._all if each not in forgotten]
        if handle not in self._all:
            self._all.append(handle)

    def running(self) -> list[StreamingQuery]:
        """The running queries of all sessions."""
        return [each for each in self._all if each.isActive]

    def active(self, manager: StreamingQueryManager) -> list[StreamingQuery]:
        return [each for each in self._of(manager) if each.isActive]

    def get(self, manager: StreamingQueryManager, query_id: str) -> StreamingQuery | None:
        return next((each for each in self._of(manager) if each.id == query_id and each.isActive), None)

    def await_any(self, manager: StreamingQueryManager, timeout: int | None) -> bool | None:
        """Spark's own would end with each run that fails."""
        if timeout is not None and timeout < 0:
            return _await_any(manager, timeout)  # type: ignore[no-any-return] # it raises
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            for each in self._of(manager):
                if not each.isActive:
                    each.awaitTermination()
                    return None if timeout is None else True
            if until is not None and time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)

    def reset_terminated(self, manager: StreamingQueryManager) -> None:
        ended = [each for each in self._of(manager) if not each.isActive]
        self._all = [each for each in self._all if each not in ended]
        _reset(manager)

    def _of(self, manager: StreamingQueryManager) -> list[Handle]:
        return [each for each in self._all if each.manager == manager._jsqm]

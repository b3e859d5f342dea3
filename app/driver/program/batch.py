"""One attempt of a BATCH program: the program runs in the main thread of the process, from its start to its end.

The driver lets it run as many tasks at once as the plan says, and changes that while it runs. What the program asks of
Spark is Spark's to do.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from app.driver.base_attempt import Ending, Terminate
from app.driver.batch.tasks import GroupTasks
from app.driver.failures import DriverError, Failure, Fenced
from app.driver.program.handle import Handle
from app.driver.program.main_thread import InMainThread, ProgramEnded
from app.driver.program.slots import GROUP, ExecutorSlots, HeldSlots
from app.driver.scala import scala_context
from app.driver.session import is_stopped
from app.driver.valves.spark import writer_facts
from app.model.ownsettings import SHUFFLE_PARTITIONS
from app.model.protocol import Orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger(__name__)

_TICK_S = 0.1
_PROGRESS_S = 1.0
_DEFAULT_SHUFFLE_PARTITIONS: Final = 200
"""Spark's own: an unchanged program gets what it was written for, and adaptive execution joins what is small."""
_PARALLELISM: Final = "spark.default.parallelism"


class ProgramTasks(GroupTasks):
    """The tasks of all Spark jobs of a program, whatever group it gives them."""

    def _jobs(self) -> Iterable[int]:
        held = set(self._tracker.getJobIdsForGroup(GROUP))
        found = {*self._tracker.getJobIdsForGroup(None), *self._tracker.getActiveJobIds()}
        return sorted(found - held)


class BatchProgramAttempt(InMainThread):
    """Runs a program that has no streaming query of its own."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        (self._vertex,) = self._graph.vertices
        self._version = self.spec.plan_version
        self._told_version = 0
        self._slots: HeldSlots | ExecutorSlots | None = None
        self._progress_at = 0.0

    # -- the thread of the attempt

    def _until_end(self) -> Ending:
        functions = self._prepare()
        found = self._await_session("a session")
        if isinstance(found, ProgramEnded):
            return self._on_ended(found.failure)
        self._session = found
        self._equip(self._session, functions)
        self._connect(self._session)
        self._tasks = ProgramTasks(self._session.sparkContext._jsc.statusTracker(), "")
        if self._executors is not None:
            self._slots = ExecutorSlots(self._executors)
        else:
            self._slots = HeldSlots(self._session, self.spec.slots)
        self._slots.set(self.spec.parallelism[self._vertex.id])
        # The program has no task yet, so this takes no time.
        while not self._slots.is_settled:
            time.sleep(_TICK_S / 10)
        self._report(type="running", plan_version=self._version, **self._news.figures())
        self._taken_up.set()
        while (ending := self._turn()) is None:
            pass
        return ending

    def _turn(self) -> Ending | None:
        message: Any = None
        with contextlib.suppress(queue.Empty):
            message = self._inbox.get(timeout=_TICK_S)
        match message:
            case Fenced():
                raise message
            case Terminate():
                return self._last_word(type="stopped")
            case ProgramEnded(failure):
                self._report_progress()
                return self._on_ended(failure)
            case Orders():
                if message.stop == "kill":
                    return Ending.DONE
                if message.stop != "none":
                    return self._last_word(type="stopped")
                self._follow(message)
        self._tick()
        return None

    def _follow(self, orders: Orders) -> None:
        if orders.plan_version > self._version:
            self._version = orders.plan_version
            assert self._slots is not None
            self._slots.set(orders.parallelism[self._vertex.id])

    def _tick(self) -> None:
        # Spark asks nobody before it commits: whoever has no right to this job any more ends the process.
        self._may_commit()
        assert self._slots is not None
        self._slots.tend()
        if self._version > self._told_version and self._slots.is_settled:
            self._told_version = self._version
            self._report(type="plan-applied", plan_version=self._version, **self._news.figures())
        if time.monotonic() - self._progress_at >= _PROGRESS_S:
            self._progress_at = time.monotonic()
            self._report_progress()

    def _report_progress(self) -> None:
        """It is for people, so nothing fails if Spark cannot tell."""
        try:
            self._news.turn()
            news = self._tasks.news()
        except Exception as error:
            log.debug("the tasks of the program cannot be counted: %s", error)
            return
        if news is not None:
            done, total = news
            run = self.spec.attempt
            self._report(type="region-progress", region=0, run=run, tasks_done=done, tasks_total=total)

    def _on_ended(self, failure: Failure | None) -> Ending:
        if failure is not None:
            if self._slots is not None and is_stopped(self._session):
                failure = replace(failure, recoverable=True)
            return self._fail(failure)
        if self._slots is not None and (running := self._session.streams._jsqm.active()):
            name = running[0].name() or "one"
            return self._fail(
                Failure.final(
                    f"The program ended while its streaming query {name} was running: wait for it "
                    "(query.awaitTermination())."
                )
            )
        return self._last_word(type="finished")

    # -- the threads of the program (`takeover.Host`)

    def open_session(self, conf: Mapping[str, str]) -> SparkSession:
        """The session of the program, opened with ``conf``: the job's settings and its own."""
        most = max(self._vertex.parallelism, *self.spec.parallelism.values())
        chosen = {
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.optimizer.excludedRules": "",
            SHUFFLE_PARTITIONS: str(max(_DEFAULT_SHUFFLE_PARTITIONS, 2 * most)),
            **conf,
        }
        if self.spec.executors:
            # An executor that is given up hands over what later stages need of it.
            chosen.setdefault("spark.storage.decommission.enabled", "true")
        session = self._session_with(chosen)
        # What further sessions of the program begin with; and it is read whenever an RDD is made.
        live = scala_context(session.sparkContext).conf()
        for key, value in chosen.items():
            if session.conf.isModifiable(key):
                live.set(key, value)
        live.setIfMissing(_PARALLELISM, str(most))
        self._until_taken_up(session)
        return session

    def start(
        self, writer: DataStreamWriter, table: str | None, where: str, handle: Handle
    ) -> StreamingQuery:
        """Start a streaming query, if it ends by itself.

        Raises:
            DriverError: it does not.
        """
        if not writer_facts(writer, table).ends_by_itself:
            raise DriverError(
                f"{where}: a BATCH program starts a streaming query that runs for ever: give it "
                "trigger(availableNow=True), or submit the program as STREAMING (without --batch)."
            )
        handle.begin(writer)
        return handle

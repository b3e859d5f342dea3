"""One attempt of a BATCH program: the program runs in the main thread of the process, from its start to its end.

The driver lets it run as many tasks at once as the plan says, and changes that while it runs: on one host, and on a
cluster. What the program asks of Spark is Spark's to do.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from app.driver.base_attempt import TOLD_TO_END, Ending, Terminate
from app.driver.batch.tasks import GroupTasks
from app.driver.executors import Executors
from app.driver.failures import DriverError, Failure, Fenced
from app.driver.host_slots import HostSlots
from app.driver.program.main_thread import InMainThread, ProgramEnded, SessionOpened
from app.driver.program.takeover import Start
from app.driver.scala import scala_context
from app.driver.session import is_stopped
from app.model.ownsettings import SHUFFLE_PARTITIONS
from app.model.protocol import Orders

log = logging.getLogger(__name__)

_TICK_S = 0.1
_PROGRESS_S = 1.0
_DEFAULT_SHUFFLE_PARTITIONS: Final = 200
"""Spark's own: an unchanged program gets what it was written for, and adaptive execution joins what is small."""
_PARALLELISM: Final = "spark.default.parallelism"
_ONCE: Final = "A BATCH program that ends by itself runs once, unless its job sets restart-strategy.type."


class ProgramTasks(GroupTasks):
    """The tasks of all Spark jobs of a program, whatever group it gives them."""

    def _jobs(self) -> Iterable[int]:
        return sorted({*self._tracker.getJobIdsForGroup(None), *self._tracker.getActiveJobIds()})


class BatchProgramAttempt(InMainThread):
    """Runs a program that has no streaming query of its own."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        (self._vertex,) = self._graph.vertices
        self._version = self.spec.plan_version
        self._told_version = 0
        self._slots: HostSlots | ExecutorSlots | None = None
        self._progress_at = 0.0

    # -- the thread of the attempt

    def _until_end(self) -> Ending:
        self._prepare()
        found = self._await_session()
        if isinstance(found, ProgramEnded):
            return self._on_ended(found.failure)
        self._session = found
        self._equip(self._session)
        self._connect(self._session)
        self._tasks = ProgramTasks(self._session.sparkContext._jsc.statusTracker(), "")
        if self._executors is not None:
            self._slots = ExecutorSlots(self._executors)
        else:
            self._slots = self._host_slots
        assert self._slots is not None
        self._slots.set(self.spec.parallelism[self._vertex.id])
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
                return self._fail(TOLD_TO_END)
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
        # Spark checks no ownership before a commit: the owner check ends the process if the job has another owner.
        self._may_commit()
        assert self._slots is not None
        if isinstance(self._slots, ExecutorSlots):
            self._slots.tend()
        if self._version > self._told_version and self._slots.is_settled:
            self._told_version = self._version
            self._report(type="plan-applied", plan_version=self._version, **self._news.figures())
        if time.monotonic() - self._progress_at >= _PROGRESS_S:
            self._progress_at = time.monotonic()
            self._report_progress()

    def _report_progress(self) -> None:
        try:
            self._news.turn()
        except Exception as error:
            log.debug("the executors cannot be counted: %s", error)
        self._report_tasks(0, self.spec.attempt, self._tasks.news)

    def _on_ended(self, failure: Failure | None) -> Ending:
        if failure is not None:
            if self._slots is None and failure.user_error is not None:
                # It has run: whether it does so again is for its restart strategy, and not for that of starts.
                self._start_client(None, self._inbox.put, self._on_fenced)
                self._report(type="running", plan_version=self._version)
            elif self._slots is not None and is_stopped(self._session):
                return self._fail(replace(failure, recoverable=True))
            return self._fail(self._final_if_own(failure, _ONCE))
        if self._takeover is not None and (running := self._takeover.queries.running()):
            name = running[0].name or "one"
            return self._fail(
                Failure.final(
                    f"The program ended while its streaming query {name} was running: wait for it "
                    "(query.awaitTermination())."
                )
            )
        return self._last_word(type="finished")

    def _await_session(self) -> SparkSession | ProgramEnded:
        """Let the program begin, and wait for its session; it may end without.

        Raises:
            DriverError: the process is to end before.
        """
        self._may_run.set()
        while True:
            match self._inbox.get():
                case SessionOpened(session):
                    return session
                case ProgramEnded() as ended:
                    return ended
                case Terminate():
                    raise DriverError.of(TOLD_TO_END)

    # -- the threads of the program (`takeover.Host`)

    def open_session(self, conf: Mapping[str, str]) -> SparkSession:
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
        session = super().open_session(chosen)
        # It is read whenever an RDD is made.
        scala_context(session.sparkContext).conf().setIfMissing(_PARALLELISM, str(most))
        return session

    def start(self, asked: Start) -> StreamingQuery:
        """Start a streaming query, if it ends by itself.

        Raises:
            DriverError: it does not.
        """
        if not asked.facts.ends_by_itself:
            raise DriverError(
                f"{asked.where}: a BATCH program starts a streaming query that runs for ever: give it "
                "trigger(availableNow=True), or submit the program as STREAMING (without --batch)."
            )
        asked.handle.begin(asked.writer)
        return asked.handle


class ExecutorSlots:
    """The slots of a program on a cluster: executors of one core each. More are asked for and let in as they come. One
    that is given up is decommissioned: it gets no more tasks, ends those that it has, hands its shuffle files to the
    others, and goes. For the attempt's own thread."""

    def __init__(self, executors: Executors) -> None:
        self._executors = executors
        self._more = False

    def set(self, slots: int) -> None:
        """Let the program have ``slots`` executors, as soon as they come, or others have ended their tasks."""
        self._more = slots > self._executors.wanted
        self._executors.request(slots)
        self._executors.let_in_all()
        self.tend()

    def tend(self) -> None:
        """
        Raises:
            DriverError: there have been no executors for too long.
        """
        self._executors.check()
        self._executors.retire()

    @property
    def is_settled(self) -> bool:
        """Whether the program has the executors that it should have and no more, or does not wait for others."""
        executors = self._executors
        if self._more:
            return executors.ready >= executors.wanted or executors.have_had_time
        return executors.count <= executors.wanted

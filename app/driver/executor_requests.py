"""What the manager of a cluster is told of a job's executors: how many there should be, and which are given up.

The manager may be away when it is told, or hang; what runs goes on meanwhile. A Spark master that has been away does
not know the number any more: it then replaces no executor that is lost, until it is told again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from pyspark import SparkContext

from app.driver.failures import describe
from app.driver.scala import executor_ids, scala_context, scala_option, scala_seq

log = logging.getLogger(__name__)

RETRY_S = 2.0
"""How long after the manager could not be told it is tried again."""

REPEAT_S = 10.0
"""The interval in which the number is sent again while executors are missing."""


class ExecutorRequests:
    """Requests of one SparkContext. A thread sends only the newest number; only `kill` waits."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._changed = threading.Condition()
        self._count = 0
        self._is_to_say = self._closed = False
        self._heard = False
        self._said_at = self._kill_at = 0.0
        # Given up, and still there: Spark gives them no tasks any more, and tells nobody a second time. Also those from
        # before: an attempt may get the context of another one.
        backend = self._backend
        self._unkilled = {each for each in executor_ids(context) if not backend.isExecutorActive(each)}
        self._is_away = False
        threading.Thread(target=self._work, name="executor-requests", daemon=True).start()

    @property
    def count(self) -> int:
        """How many were asked for last."""
        return self._count

    @property
    def heard(self) -> int | None:
        """How many there should be, as the manager knows; None if it has not heard the newest number."""
        with self._changed:
            return self._count if self._heard else None

    def ask(self, count: int) -> None:
        """There should be ``count`` executors."""
        with self._changed:
            self._count = count
            self._say()

    def repeat(self) -> None:
        """There are fewer than that: tell it again, if it was not told just now."""
        with self._changed:
            if time.monotonic() - self._said_at >= REPEAT_S:
                self._say()

    def _say(self) -> None:
        self._is_to_say, self._heard = True, False
        self._said_at = time.monotonic()
        self._changed.notify()

    def kill(self, numbers: Iterable[int]) -> None:
        """Give these up. How many there should be stays as it is, and they are no failures."""
        ids = [str(number) for number in numbers]
        if not ids:
            return
        try:
            self._backend.killExecutors(scala_seq(self._context._jvm, ids), False, False, True)
        except Exception as error:
            self._note_away(error)
        # A master that has just come back says yes also for those that it does not know yet.
        with self._changed:
            self._unkilled.update(ids)
            self._kill_at = time.monotonic() + RETRY_S
            self._changed.notify()

    def decommission(self, numbers: Iterable[int]) -> None:
        """Give these up once they have ended their tasks, and handed to others what later stages need of them."""
        if not (numbers := list(numbers)):
            return
        jvm: Any = self._context._jvm
        none = scala_option(jvm, None)
        why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("the job gives up this slot", none)
        for number in numbers:
            self._backend.decommissionExecutor(str(number), why, False, False)

    def close(self) -> None:
        """Send nothing more to the manager."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def _backend(self) -> Any:
        return scala_context(self._context).schedulerBackend()

    def _work(self) -> None:
        while (orders := self._next()) is not None:
            count, ids = orders
            heard = gone = False
            try:
                heard = count is None or self._tell(count)
                gone = not ids or self._kill_again(ids)
                self._is_away = self._is_away and not heard
            except Exception as error:
                self._note_away(error)
            with self._changed:
                if count is not None and not self._is_to_say:
                    # Unless it has become another number meanwhile.
                    self._heard, self._is_to_say = heard, not heard
                if gone:
                    self._unkilled.difference_update(ids)
                else:
                    self._kill_at = time.monotonic() + RETRY_S
                if not heard:
                    self._changed.wait_for(lambda: self._closed, RETRY_S)

    def _next(self) -> tuple[int | None, list[str]] | None:
        """What is to be said now: a number, and who is to be gone. Waits until there is something; None at the end."""
        with self._changed:
            while not (self._closed or self._is_to_say):
                left_s = self._kill_at - time.monotonic()
                if self._unkilled and left_s <= 0:
                    break
                self._changed.wait(left_s if self._unkilled else None)
            if self._closed:
                return None
            count = self._count if self._is_to_say else None
            self._is_to_say = False
            due = time.monotonic() >= self._kill_at
            return count, sorted(self._unkilled) if due else []

    def _tell(self, count: int) -> bool:
        jvm: Any = self._context._jvm
        nowhere = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        return bool(scala_context(self._context).requestTotalExecutors(count, 0, nowhere))

    def _kill_again(self, ids: list[str]) -> bool:
        """Whether they are gone; if not, the request is sent again."""
        left = set(ids).intersection(executor_ids(self._context))
        if left:
            jvm: Any = self._context._jvm
            told = self._backend.doKillExecutors(scala_seq(jvm, sorted(left)))
            forever = getattr(getattr(jvm.scala.concurrent.duration, "Duration$"), "MODULE$").Inf()
            jvm.scala.concurrent.Await.result(told, forever)
        return not left

    def _note_away(self, error: Exception) -> None:
        if not self._is_away and not self._closed:
            self._is_away = True
            log.warning(
                "the manager of the cluster could not be told of executors, and will be: %s",
                describe(error).sentence,
            )

"""The executors of a job on a cluster. Each has one core, so it is a slot; they come and go while the job runs.

More of them are asked for before parallelism rises, and they are given up after it has fallen, between two batches:
then no task and no shuffle file is on them.

Spark has no setting for how many executors of one core an application gets at first and may change afterwards, other
than that of its dynamic allocation. So that is on for the first number, and then stopped: the slots that a job holds
decide from there on.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from app.driver.failures import DriverError
from app.model.kubenames import JOB_LABEL, MASTER_PREFIX

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

FIRST_S = 60.0
"""For how long an attempt waits for its first executor."""

ALL_S = 30.0
"""For how long it waits for the others, before it goes on with those that have come."""

_NONE_S = 60.0
_CHECK_EVERY_S = 2.0

_POLL_S = 0.05


def first_number_conf(count: int) -> dict[str, str]:
    """The settings of a context that gets ``count`` executors of one core, and keeps them."""
    return {
        "spark.executor.cores": "1",
        "spark.dynamicAllocation.enabled": "true",
        # Executors are given up between batches, when nothing of them is needed. One of its mechanisms has to be on.
        "spark.dynamicAllocation.shuffleTracking.enabled": "false",
        "spark.dynamicAllocation.initialExecutors": str(count),
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "1d",
    }


def stop_dynamic_allocation(context: SparkContext) -> None:
    """From now on only `Executors` changes their number."""
    manager = _scala_context(context).executorAllocationManager()
    if manager.isDefined():
        manager.get().stop()


class Executors:
    """Those of one SparkContext. ``wanted`` is how many there should be. For the attempt's own thread, `trim` apart."""

    def __init__(self, context: SparkContext, wanted: int) -> None:
        self._context = context
        self.wanted = 0
        self._shrinking = False
        self._checked_at = self._seen_at = time.monotonic()
        self.request(wanted)

    @property
    def present(self) -> int:
        """How many can be given tasks now."""
        return len(self._active())

    def request(self, count: int) -> None:
        """Ask for ``count`` executors. More of them come by and by; that they are too many is for `trim`."""
        if count == self.wanted:
            return
        self._shrinking = count < self.wanted
        self.wanted = count
        jvm: Any = self._context._jvm
        nowhere = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        _scala_context(self._context).requestTotalExecutors(count, 0, nowhere)

    def trim(self) -> int:
        """Give up the executors beyond those wanted, the newest first; how many. For a moment without tasks."""
        active = self._active()
        surplus = active[self.wanted :]
        if surplus:
            jvm: Any = self._context._jvm
            ids = jvm.java.util.ArrayList()
            for number in surplus:
                ids.add(str(number))
            # What is wanted has been said, so the target stays; they are not failures; and nothing runs on them.
            sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(ids).toSeq()
            _scala_context(self._context).schedulerBackend().killExecutors(sequence, False, False, True)
            log.warning("executors given up: %s", ", ".join(str(number) for number in surplus))
        return len(surplus)

    def trim_idle(self) -> None:
        """`trim`, if fewer are wanted than before: for a query that has nothing to do."""
        if self._shrinking:
            self._shrinking = self.trim() == 0 and self.present > self.wanted

    def check(self) -> None:
        """Look now and then whether there are any.

        Raises:
            DriverError: for a minute there have been none, so nothing runs: the master has lost the application.
        """
        now = time.monotonic()
        if now - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = now
        if self.present:
            self._seen_at = now
        elif now - self._seen_at > _NONE_S:
            raise DriverError(
                f"The job has had no executor for {_NONE_S:.0f} s.", recoverable=True, outside=True
            )

    def await_first(self) -> None:
        """Wait until the executors are there, or some of them for a while.

        Raises:
            DriverError: none has come.
        """
        began = time.monotonic()
        while (present := self.present) < self.wanted:
            waited_s = time.monotonic() - began
            if present and waited_s >= ALL_S:
                log.warning("%d of %d executors have come; the job begins with them", present, self.wanted)
                return
            if waited_s >= FIRST_S:
                raise DriverError(
                    f"None of {self.wanted} executors has come within {FIRST_S:.0f} s. {self._where_to_look()}",
                    recoverable=True,
                    outside=True,
                )
            time.sleep(_POLL_S)

    def _where_to_look(self) -> str:
        if str(self._context.master).startswith(MASTER_PREFIX):
            label = self._context.getConf().get(f"spark.kubernetes.executor.label.{JOB_LABEL}")
            return f"`kubectl describe pods -l {JOB_LABEL}={label}` says why, if there are pods; else the driver's log."
        return (
            "The page of the Spark master says whether workers have free cores and memory, and the logs of the "
            "workers why executors end."
        )

    def _active(self) -> list[int]:
        """Their numbers, oldest first, without those that are being given up."""
        backend = _scala_context(self._context).schedulerBackend()
        jvm: Any = self._context._jvm
        ids = jvm.scala.jdk.javaapi.CollectionConverters.asJava(backend.getExecutorIds())
        return sorted(int(each) for each in ids if backend.isExecutorActive(each))


def _scala_context(context: SparkContext) -> Any:
    return context._jsc.sc()

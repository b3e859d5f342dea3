"""How many tasks a BATCH program runs at once, changed while it runs: on one host, and on a cluster.

Spark's local scheduler has as many cores as it was started with. Those that the program is not to have are kept busy
by tasks that sleep, each a job of its own in a pool of its own. Spark's fair scheduler serves a pool without a running
task before any that has one, so a core that is to be given up goes to such a task as soon as one of the program's has
ended, and no task is cut short. It is all Spark's public interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from app.driver.executors import Executors
from app.driver.scala import scala_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP: Final = "slotwise-held"
"""The job group of the tasks that hold cores: none of the program's."""

# Where two pools run nothing, the first one by name is served first.
_POOL: Final = "!slotwise-held-{}"
_SLEEP: Final = "SELECT java_method('java.lang.Thread', 'sleep', 9000000000000L) FROM range(0, 1, 1, 1)"


class HeldSlots:
    """Of the ``cores`` of a session with a local master. For the attempt's own thread."""

    def __init__(self, session: SparkSession, cores: int) -> None:
        self._context = session.sparkContext
        self._cores = cores
        self._rows: Any = session.newSession().sql(_SLEEP)._jdf.javaRDD()
        self._held: dict[int, Any] = {}
        self._wanted = 0

    def set(self, slots: int) -> None:
        """Let the program run ``slots`` tasks at once, as soon as its tasks leave the others."""
        self._wanted = max(0, self._cores - slots)
        self.tend()

    def tend(self) -> None:
        """Hold as many as there should be; one that was cancelled with a program's jobs is held again."""
        for number in sorted(self._held, key=self._is_running):
            if self._held[number].isDone():
                del self._held[number]
            elif len(self._held) > self._wanted:
                # Those first that wait for their core.
                self._held.pop(number).cancel(True)
        free = (number for number in range(self._cores) if number not in self._held)
        while len(self._held) < self._wanted:
            number = next(free)
            self._held[number] = self._hold(number)

    @property
    def is_settled(self) -> bool:
        """Whether the program has the slots that it should have, and no more."""
        return len(self._held) == self._wanted and all(map(self._is_running, self._held))

    def _hold(self, number: int) -> Any:
        context = self._context
        context.setJobGroup(GROUP, "a slot that the job does not hold", interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", _POOL.format(number))
        return self._rows.countAsync()

    def _is_running(self, number: int) -> bool:
        pool = scala_context(self._context).getPoolForName(_POOL.format(number))
        return bool(pool.isDefined()) and int(pool.get().runningTasks()) > 0


class ExecutorSlots:
    """Of a cluster: the executors of a program, of one core each. More are asked for and let in as they come. One that
    is given up is decommissioned: it gets no more tasks, ends those that it has, hands its shuffle files to the others,
    and goes. For the attempt's own thread."""

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

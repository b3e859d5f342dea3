"""Whether executors see the files of the driver: what one writes that does not would be lost.

The driver writes a file, and each executor tries to open it. Not the other way round: a network file system may take a
minute to show a new file to a host that has looked at the directory before, but a name that nobody there has asked for
is asked of the server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.driver.arrivals import BELOW_JOBS_DIR
from app.driver.failures import DriverError, describe
from app.driver.scala import java_list, rdd_at, scala_context

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

LOOK_S = 30.0
"""For how long a start waits for what executors see; then it goes on without knowing."""

WHY_S = 120.0
"""For how long it is told that one did not see the files, unless another one is met that does not."""

# Says its number, and whether the file can be opened. Spark may give a task to another executor, which says nothing.
_LOOK = r"""
read -r number
case "$(tr '\0' ' ' <"/proc/$PPID/cmdline")" in
*"--executor-id $number "*) if true <"$0"; then echo "$number sees"; else echo "$number is blind"; fi ;;
esac 2>/dev/null
"""
_LOOKS = 3

_AGAIN_S = 0.5

# Keeps an executor's only core for two seconds, or until it sees the file; then it says so. Spark would give the one
# that waits behind it to another executor after three.
_KEEP_OUT = r"""
case "$(tr '\0' ' ' <"/proc/$PPID/cmdline")" in
*"--executor-id $1 "*)
    for _ in 1 2 3 4; do
        true <"$0" && echo seen && exit
        kill -0 $PPID || exit
        sleep 0.5
    done ;;
esac 2>/dev/null
"""


class ExecutorSight:
    """Of one attempt on a cluster. ``directory`` is one that all executors have to see."""

    def __init__(self, context: SparkContext, directory: Path) -> None:
        self.mark = directory / "seen-by-executors"
        self._context = context
        self._directory = directory
        self._closed = threading.Event()
        self._why = ""
        self._why_at = 0.0
        directory.mkdir(parents=True, exist_ok=True)
        self.mark.touch()

    @property
    def why(self) -> str:
        """Why an executor gets no tasks, in a sentence; empty if there is none."""
        return self._why if time.monotonic() - self._why_at < WHY_S else ""

    def close(self) -> None:
        """The attempt is over: nobody is kept out any more."""
        self._closed.set()

    def check(self, executors: Sequence[int]) -> None:
        """Look whether all ``executors`` see the files. For the start, before there is anything to do.

        It is an error also if others do: the master would put the next one where this one is, and what a query reads
        and writes is planned for all of them.

        Raises:
            DriverError: some do not.
        """
        found: list[set[int]] = []

        def look() -> None:
            try:
                found.append(self._blind(executors))
            except Exception as error:
                log.warning("it is not known what executors see: %s", describe(error).sentence)
                found.append(set())

        # On a file system that hangs, a file cannot even be opened.
        looking = threading.Thread(target=look, name="executor-sight", daemon=True)
        looking.start()
        looking.join(LOOK_S)
        if not found:
            log.warning("executors have not said within %g s whether they see %s", LOOK_S, self._directory)
        elif found[0]:
            raise DriverError(self._sentence(found[0]), recoverable=True, outside=True)

    def keep_out(self, executor: int, pool: str) -> None:
        """Keep ``executor``, which does not see the files, from all other tasks until it does.

        ``pool`` is one for tasks of this executor only, the first of all by name. There is always a task in it that
        waits behind the one that runs, and Spark gives a core that gets free to the first pool that has none.

        Raises:
            DriverError: it is gone, or the attempt is over, and it has not seen them.
        """
        self._why, self._why_at = f"{self._sentence({executor})} It is given no tasks.", time.monotonic()
        log.warning("%s", self._why)
        seen, over = threading.Event(), threading.Event()
        rounds = partial(self._keep_out, executor, pool, seen, over)
        threading.Thread(target=rounds, name=f"behind-{pool}", daemon=True).start()
        rounds()
        if not seen.is_set():
            raise DriverError(self._sentence({executor}), recoverable=True, outside=True)
        log.warning("executor %d sees %s now", executor, self._directory)
        self._why = ""

    def _keep_out(self, executor: int, pool: str, seen: threading.Event, over: threading.Event) -> None:
        """One task after another that keeps the executor's core, until it sees the files, is gone, or ``over``."""
        self._context.setLocalProperty("spark.scheduler.pool", pool)
        backend = scala_context(self._context).schedulerBackend()
        command = java_list(self._context._jvm, ["sh", "-c", _KEEP_OUT, str(self.mark), str(executor)])
        try:
            while not (over.is_set() or self._closed.is_set()) and backend.isExecutorActive(str(executor)):
                self._why_at = time.monotonic()
                try:
                    kept = rdd_at(self._context, {executor: "kept out"}, "java.lang.String").pipe(command)
                    if list(kept.collect()):
                        seen.set()
                        return
                except Exception as error:
                    # It is lost, most likely; if not, it is not to be let in for that.
                    log.warning("executor %d is kept out: %s", executor, describe(error).sentence)
                    over.wait(_AGAIN_S)
        finally:
            over.set()

    def _blind(self, executors: Sequence[int]) -> set[int]:
        """Those that do not see the mark, asked all at once."""
        blind, unknown = set[int](), set(executors)
        for _ in range(_LOOKS):
            if not unknown:
                break
            numbers = {number: str(number) for number in unknown}
            command = java_list(self._context._jvm, ["sh", "-c", _LOOK, str(self.mark)])
            for line in rdd_at(self._context, numbers, "java.lang.String").pipe(command).collect():
                number, _, found = str(line).partition(" ")
                unknown.discard(int(number))
                if found != "sees":
                    blind.add(int(number))
        if unknown:
            log.warning("whether the executors %s see %s is not known", sorted(unknown), self._directory)
        return blind

    def _sentence(self, blind: Collection[int]) -> str:
        names = ", ".join(map(str, sorted(blind)))
        hosts = ", ".join(sorted({self._host(number) for number in blind} - {""}))
        on = f" on {hosts}" if hosts else ""
        who = f"Executor {names}{on} does" if len(blind) == 1 else f"The executors {names}{on} do"
        return (
            f"{who} not see {self._directory}: the driver and all executors have to see the same directory under this "
            f"path, as the same user ({BELOW_JOBS_DIR})."
        )

    def _host(self, executor: int) -> str:
        summaries: Any = scala_context(self._context).statusStore().executorList(True)
        for position in range(summaries.size()):
            one = summaries.apply(position)
            if one.id() == str(executor):
                return str(one.hostPort()).rpartition(":")[0]
        return ""

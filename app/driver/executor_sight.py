"""Whether executors see the files of the driver: what one writes that does not would be lost. And whether they
see its Python, without which tasks fail.

The driver writes a file, and each executor tries to open it. Not the other way round: a network file system may take a
minute to show a new file to a host that has looked at the directory before, but a name that nobody there has asked for
is asked of the server.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from app.driver.arrivals import BELOW_JOBS_DIR
from app.driver.failures import DriverError, describe
from app.driver.scala import executor_hosts, scala_context, scala_seq, shell_at

log = logging.getLogger(__name__)

LOOK_S = 30.0
"""For how long a start waits for what executors see; then it goes on without knowing."""

WHY_S = 120.0
"""For how long it is told that one did not see the files, unless another one is met that does not."""

# Says its number, and whether the files can be opened. Spark may give a task to another executor, which says nothing.
_LOOK = r"""
read -r number
case "$(tr '\0' ' ' <"/proc/$PPID/cmdline")" in
*"--executor-id $number "*) if true <"$0" && true <"$1"; then echo "$number sees"; else echo "$number is blind"; fi ;;
esac 2>/dev/null
"""
_LOOKS = 3


class ExecutorSight:
    """Checks what the executors of one attempt can open: ``directory``, and the Python of this process, on which their
    tasks run. An executor that cannot open them is called blind."""

    def __init__(self, context: SparkContext, directory: Path) -> None:
        self.mark = directory / "seen-by-executors"
        self.python = Path(sys.executable)
        self._context = context
        self._directory = directory
        self._lock = threading.Lock()
        self.kept: set[int] = set()
        """Executors that are kept from all tasks, for they are blind."""
        self._why = ""
        self._why_at = 0.0
        directory.mkdir(parents=True, exist_ok=True)
        self.mark.touch()

    @property
    def files(self) -> tuple[Path, Path]:
        """What each executor has to be able to open."""
        return self.mark, self.python

    @property
    def why(self) -> str:
        """Why an executor gets no tasks, in a sentence; empty if there is none."""
        return self._why if time.monotonic() - self._why_at < WHY_S else ""

    def ask(self, executor: int) -> Callable[[], bool | None]:
        """Let ``executor`` look, in the thread's pool; what is returned waits for it, and tells whether it is blind. It
        then counts as kept from all tasks, until it `sees` or is `gone`. None: another one has got the task."""
        asked = self._look([executor]).collectAsync()

        def is_blind() -> bool | None:
            try:
                said = str(next(iter(asked.get()), ""))
            except Exception as error:
                # It is lost, most likely.
                log.warning("what executor %d sees is not known: %s", executor, describe(error).sentence)
                return None
            if said != f"{executor} is blind":
                return False if said else None
            with self._lock:
                self.kept.add(executor)
            self._why, self._why_at = f"{self._sentence({executor})} It is given no tasks.", time.monotonic()
            log.warning("%s", self._why)
            return True

        return is_blind

    def sees(self, executor: int) -> None:
        """``executor`` was blind and can open the files now: it gets tasks."""
        log.warning("executor %d sees %s now", executor, self._directory)
        with self._lock:
            self.kept.discard(executor)
        self._why = ""

    def gone(self, executor: int) -> DriverError:
        """``executor`` was blind until its end. Returns the error to raise."""
        with self._lock:
            self.kept.discard(executor)
        return self._failure({executor})

    def close(self) -> None:
        """The attempt is over. Those that are kept from tasks go: the next one is to meet none that keeps silent."""
        with self._lock:
            kept = [str(executor) for executor in self.kept]
        # The JVM may have ended, or the manager of the cluster be away.
        with contextlib.suppress(Exception):
            ids = scala_seq(self._context._jvm, kept)
            scala_context(self._context).schedulerBackend().killExecutors(ids, False, False, True)

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
            raise self._failure(found[0])

    def _blind(self, executors: Sequence[int]) -> set[int]:
        """The executors that cannot open the files; all are asked at once."""
        blind, unknown = set[int](), set(executors)
        for _ in range(_LOOKS):
            if not unknown:
                break
            for line in self._look(unknown).collect():
                number, _, found = str(line).partition(" ")
                unknown.discard(int(number))
                if found != "sees":
                    blind.add(int(number))
        if unknown:
            log.warning("whether the executors %s see %s is not known", sorted(unknown), self._directory)
        return blind

    def _look(self, executors: Collection[int]) -> Any:
        return shell_at(self._context, executors, _LOOK, *self.files)

    def _failure(self, blind: Collection[int]) -> DriverError:
        return DriverError(self._sentence(blind), recoverable=True, by_cluster=True)

    def _sentence(self, blind: Collection[int]) -> str:
        names = ", ".join(map(str, sorted(blind)))
        known = executor_hosts(self._context)
        hosts = ", ".join(sorted({known.get(number, "") for number in blind} - {""}))
        on = f" on {hosts}" if hosts else ""
        who = f"Executor {names}{on} does" if len(blind) == 1 else f"The executors {names}{on} do"
        return (
            f"{who} not see {self._directory} ({BELOW_JOBS_DIR}) or the Python {self.python}: the driver and all "
            "executors have to see the same ones under these paths, as the same user."
        )

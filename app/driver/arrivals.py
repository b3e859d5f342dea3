"""What tasks have written, without Hadoop's checksum files, and whether all of it is where the driver looks.

Tasks on other hosts write to the same path as the driver reads. Where that is not the same file system, what they wrote
would be missing without anybody noticing. So what they write is counted by them, and the driver looks for as much.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark.sql import DataFrame, Observation, SparkSession, functions

from app.driver.failures import DriverError
from app.durablefiles import APPEARS_S

T = TypeVar("T")

RAW_FILES: Final = {
    # Hadoop makes a child process (chmod, 5 ms) for each file that it writes, and one for the checksum file beside it.
    # Only for this write: Hadoop's own code takes whatever serves file: everywhere else for a LocalFileSystem.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    # The sink's commit, or the manifest of a result, says which files are complete.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Options of Spark for a write into a directory of this host that no reader uses before the commit."""

BELOW_JOBS_DIR = "the server's setting jobs_dir says where it is"

_LOOK_S = 0.5
_ROWS_WAIT_S = 2.0
_COUNT_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Counted:
    """What the tasks of an action have written. ``tasks``: the numbers of those that had any rows, if they were asked
    for."""

    rows: int
    tasks: frozenset[int] = frozenset()


class RowCounter:
    """Counts the rows that an action writes, by a metric in its plan. The action is to be that of ``frame``."""

    def __init__(self, frame: DataFrame, *, by_task: bool = False) -> None:
        self._observation = Observation()
        rows = functions.count(functions.lit(1)).alias("rows")
        if not by_task:
            self.frame = frame.observe(self._observation, rows)
            return
        # Spark does not let a metric itself ask for the number of its task.
        task = f"task_{secrets.token_hex(8)}"
        numbered = frame.withColumn(task, functions.spark_partition_id())
        tasks = functions.collect_set(task).alias("tasks")
        self.frame = numbered.observe(self._observation, rows, tasks).drop(task)

    def rows(self) -> int | None:
        """The count; None when Spark does not tell it in time (it comes over the listener bus, after the action)."""
        found = self._found(_ROWS_WAIT_S)
        return None if found is None else found.rows

    def counted(self, vertex: str | None = None) -> Counted:
        """The count, without which nothing can be checked.

        Raises:
            DriverError: Spark does not tell it.
        """
        found = self._found(_COUNT_WAIT_S)
        if found is None:
            raise DriverError(
                "Spark has not said how many rows its tasks have written, so it is not known whether all are there.",
                vertex=vertex,
                recoverable=True,
            )
        return found

    def _found(self, wait_s: float) -> Counted | None:
        future = self._observation._jo.future()  # type: ignore[union-attr]
        deadline = time.monotonic() + wait_s
        while not future.isCompleted():
            if time.monotonic() > deadline:
                return None
            time.sleep(0.001)
        metrics = self._observation.get
        rows = metrics.get("rows")
        return None if rows is None else Counted(int(rows), frozenset(map(int, metrics.get("tasks") or ())))


def is_on_this_host(session: SparkSession) -> bool:
    """Whether all tasks run in this process: then there is nothing that the driver would not see."""
    return str(session.sparkContext.master).startswith("local")


def once_whole(look: Callable[[], T], is_whole: Callable[[T], bool]) -> T:
    """What ``look`` finds, as soon as it is whole; or what it finds last, if it never is."""
    deadline = time.monotonic() + APPEARS_S
    while not is_whole(found := look()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return found


def not_there(
    written: int, seen: str, directory: object, where: str, vertex: str | None = None
) -> DriverError:
    """The error of an action that has written ``written`` rows, of which the driver sees ``seen``.

    It is recoverable: tasks may run elsewhere the next time, and a mount that is missing may come. ``where`` says what
    decides where the directory is.
    """
    return DriverError(
        f"Tasks wrote {written} row(s) into {directory}, and {seen}: the driver and all executors have to see the "
        f"same directory under this path ({where}).",
        vertex=vertex,
        recoverable=True,
    )

"""The files that the tasks of a batch have written, and whether all of them are where the driver looks.

Tasks on other hosts write to the same path as the driver reads. Where that is not the same file system, what they wrote
would be missing without anybody noticing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.failures import DriverError
from app.driver.sinks.staging import list_parts, write_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_WAIT_S = 2.0

APPEARS_S = 60.0
"""For how long files may be on their way: so long may a network file system go by what it knew of a directory."""

_LOOK_S = 0.5


class RowCounter:
    """Counts the rows that an action writes, by a metric in its plan."""

    def __init__(self, frame: DataFrame) -> None:
        from pyspark.sql import Observation, functions

        self._observation = Observation()
        self.frame = frame.observe(self._observation, functions.count(functions.lit(1)).alias("rows"))

    def rows(self) -> int | None:
        """The count; None when Spark does not tell it in time (it comes over the listener bus, after the action)."""
        future = self._observation._jo.future()  # type: ignore[union-attr]
        deadline = time.monotonic() + _ROWS_WAIT_S
        while not future.isCompleted():
            if time.monotonic() > deadline:
                return None
            time.sleep(0.001)
        rows = self._observation.get.get("rows")
        return None if rows is None else int(rows)


def write_parquet(
    frame: DataFrame, directory: Path, options: Mapping[str, str], vertex: str
) -> dict[Path, int]:
    """Run the one action, which writes Parquet files into ``directory``: these, in task order, each with its rows.

    Raises:
        DriverError: tasks on a cluster wrote rows that are not there.
    """
    if _is_on_this_host(frame):
        return {part: parquet_rows(part) for part in write_parts(frame, directory, "parquet", dict(options))}
    counter = RowCounter(frame)
    parts = write_parts(counter.frame, directory, "parquet", dict(options))
    written = counter.rows() or 0
    deadline = time.monotonic() + APPEARS_S
    while True:
        found = {part: parquet_rows(part) for part in parts}
        seen = sum(found.values())
        if seen >= written or time.monotonic() > deadline:
            must_be_there(written, seen, directory, vertex)
            return found
        time.sleep(_LOOK_S)
        parts = list_parts(directory)


def must_be_there(written: int, seen: int, directory: Path, vertex: str) -> None:
    """
    Raises:
        DriverError: fewer rows are seen than were written.
    """
    if seen < written:
        raise DriverError(
            f"Tasks wrote {written} row(s) into {directory}, and {seen} of them are there: all hosts of the cluster "
            "have to see it under this path.",
            vertex=vertex,
            recoverable=True,
        )


def parquet_rows(path: Path) -> int:
    import pyarrow.parquet

    return int(pyarrow.parquet.read_metadata(path).num_rows)


def _is_on_this_host(frame: DataFrame) -> bool:
    return str(frame.sparkSession.sparkContext.master).startswith("local")

"""Files in which a batch lies before it is committed: one action writes them, and the driver has to see them all."""

from __future__ import annotations

import contextlib
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import DataFrame

from app.driver.arrivals import RAW_FILES, RowCounter, is_on_this_host, not_there, once_whole

_TASK = re.compile(r"part-(\d+)")

# Spark's commit of files is only the first half of ours, so it may be the quick one: a task moves its files when it is
# done (a failed action's directory is thrown away whole).
_WRITE_OPTIONS = {
    **RAW_FILES,
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    # One file for each task that has rows.
    "maxRecordsPerFile": "0",
}


@contextlib.contextmanager
def staging(root: Path) -> Iterator[Path]:
    """A path below ``root`` for one batch, which does not exist yet; removed at the end, whatever happens."""
    directory = root / uuid.uuid4().hex
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_parts(
    frame: DataFrame,
    directory: Path,
    file_format: str,
    options: Mapping[str, str],
    *,
    vertex: str,
    where: str,
) -> list[Path]:
    """Run the one action: each task that has rows writes a file into ``directory``. Returns these in task order; the
    first task has one without rows too.

    ``where``: what decides where the directory is, in words.

    Raises:
        DriverError: tasks on a cluster wrote rows that are not there.
    """
    if is_on_this_host(frame.sparkSession):
        run_action(frame, directory, file_format, options)
        return list_parts(directory)
    # Not by their rows: a line of text is not always one.
    counter = RowCounter(frame, by_task=True)
    run_action(counter.frame, directory, file_format, options)
    written = counter.counted(vertex)
    found = once_whole(lambda: list_parts(directory), lambda parts: written.tasks <= _tasks_of(parts))
    if missing := len(written.tasks - _tasks_of(found)):
        seen = f"the files of {missing} of {len(written.tasks)} tasks are not there"
        raise not_there(written.rows, seen, directory, where, vertex)
    return found


def run_action(frame: DataFrame, directory: Path, file_format: str, options: Mapping[str, str]) -> None:
    writer = frame.write.format(file_format).options(**_WRITE_OPTIONS, **options).mode("append")
    writer.save(f"file://{directory}")


def list_parts(directory: Path) -> list[Path]:
    """The files that tasks have written into ``directory``, in task order."""
    return sorted(path for path in directory.iterdir() if path.is_file() and _TASK.match(path.name))


def parquet_rows(path: Path) -> int:
    import pyarrow.parquet

    return int(pyarrow.parquet.read_metadata(path).num_rows)


def _tasks_of(parts: list[Path]) -> frozenset[int]:
    return frozenset(int(match[1]) for part in parts if (match := _TASK.match(part.name)))

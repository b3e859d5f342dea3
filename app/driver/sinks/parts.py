"""The files that the tasks of a batch have written, all of which have to be where the driver looks."""

from __future__ import annotations

import bz2
import gzip
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.arrivals import RowCounter, is_on_this_host, not_there, once_whole
from app.driver.sinks.staging import list_parts, write_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASK = re.compile(r"part-(\d+)")


def write_parquet(
    frame: DataFrame, directory: Path, options: Mapping[str, str], *, vertex: str, where: str
) -> dict[Path, int]:
    """Run the one action, which writes Parquet files into ``directory``: these, in task order, each with its rows.

    ``where``: what decides where the directory is, in words.

    Raises:
        DriverError: tasks on a cluster wrote rows that are not there.
    """
    if is_on_this_host(frame):
        return {part: parquet_rows(part) for part in write_parts(frame, directory, "parquet", dict(options))}
    counter = RowCounter(frame)
    write_parts(counter.frame, directory, "parquet", dict(options))
    written = counter.counted(vertex).rows
    found = once_whole(
        lambda: {part: parquet_rows(part) for part in list_parts(directory)},
        lambda rows: sum(rows.values()) >= written,
    )
    seen = sum(found.values())
    if seen < written:
        raise not_there(written, f"{seen} of them are there", directory, where, vertex)
    return found


def write_text(
    frame: DataFrame, directory: Path, kind: str, options: Mapping[str, str], *, vertex: str, where: str
) -> tuple[list[Path], int | None]:
    """Run the one action, which writes text files into ``directory``: those with rows, in task order, and how many
    rows these are, if Spark says it in time.

    A line is not always a row. But each task makes one file, and Spark knows which tasks had rows. That of a task may
    be empty all the same: a row of CSV with a single column that is null has no line.

    Raises:
        DriverError: tasks on a cluster wrote rows that are not there.
    """
    compression = options["compression"]
    may_be_empty = kind == "csv" and len(frame.columns) == 1

    def look() -> tuple[list[Path], frozenset[int]]:
        """The files with rows, and the tasks whose files are there."""
        there = list_parts(directory)
        filled = [part for part in there if not _is_empty(part, compression)]
        return filled, _tasks_of(there if may_be_empty else filled)

    if is_on_this_host(frame):
        counter = RowCounter(frame)
        write_parts(counter.frame, directory, kind, dict(options))
        found, _ = look()
        return found, counter.rows() if found else 0
    counter = RowCounter(frame, by_task=True)
    write_parts(counter.frame, directory, kind, dict(options))
    written = counter.counted(vertex)
    found, tasks = once_whole(look, lambda seen: written.tasks <= seen[1])
    if missing := len(written.tasks - tasks):
        seen = f"the files of {missing} of {len(written.tasks)} tasks are not there"
        raise not_there(written.rows, seen, directory, where, vertex)
    return found, written.rows


def parquet_rows(path: Path) -> int:
    import pyarrow.parquet

    return int(pyarrow.parquet.read_metadata(path).num_rows)


def _tasks_of(parts: list[Path]) -> frozenset[int]:
    return frozenset(int(match[1]) for part in parts if (match := _TASK.match(part.name)))


def _is_empty(path: Path, compression: str) -> bool:
    """Whether a text file has no byte in it, below its compression."""
    if compression == "none":
        return path.stat().st_size == 0
    with gzip.open(path) if compression == "gzip" else bz2.open(path) as file:
        return not file.read(1)

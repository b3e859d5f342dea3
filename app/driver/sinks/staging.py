"""Directories in which a batch is written before it is committed, and the one action that writes it there.

A staging area belongs to one sink of one process, which holds a lock on it for its life. So what a killed process
left is recognised by its free lock, and two queries can stage in the same place without harming each other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from app import filelocks
from app.driver import rawfiles
from app.driver.locks import short_lock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOCK = "lock"

# Spark's commit of files is only the first half of ours, so it may be the quick one: a task moves its files when it is
# done (a failed action's directory is thrown away whole).
_WRITE_OPTIONS = {
    **rawfiles.WRITE_OPTIONS,
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    # One file for each task that has rows.
    "maxRecordsPerFile": "0",
}


@dataclass
class StagingArea:
    """A directory of directories, one per batch, under ``root``."""

    root: Path
    _own: Path | None = field(default=None, init=False)
    _discard: Callable[[], object] | None = field(default=None, init=False)

    def open(self) -> None:
        """Make this process's own directory, and remove those of processes that are gone.

        Raises:
            OSError: ``root`` is not writable.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        # One at a time: between the making of a directory and its lock it looks like a dead one.
        with short_lock(self.root / _LOCK):
            for left in self.root.iterdir():
                if left.is_dir() and left != self._own and _is_left_over(left):
                    shutil.rmtree(left, ignore_errors=True)
            if self._own is None or not self._own.is_dir():
                own = self.root / uuid.uuid4().hex
                own.mkdir()
                fd = filelocks.lock(own / _LOCK, wait=True)
                assert fd is not None
                self._discard = weakref.finalize(self, _discard, own, fd)
                self._own = own

    def close(self) -> None:
        """Remove this process's own directory. It may be opened again."""
        if self._discard is not None:
            self._discard()
        self._own = self._discard = None

    @contextlib.contextmanager
    def batch(self, name: str) -> Iterator[Path]:
        """A path of its own for one batch, which does not exist yet; removed at the end, whatever happens."""
        assert self._own is not None, "a sink is prepared before it is written"
        directory = self._own / f"{name}-{uuid.uuid4().hex[:8]}"
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def write_parts(frame: DataFrame, directory: Path, file_format: str, options: dict[str, str]) -> list[Path]:
    """Run the one action: each task writes its rows into a file of ``directory``. Returns the files in task order."""
    frame.write.format(file_format).options(**_WRITE_OPTIONS, **options).mode("append").save(
        f"file://{directory}"
    )
    return list_parts(directory)


def list_parts(directory: Path) -> list[Path]:
    """The files that tasks have written into ``directory``, in task order."""
    return sorted(path for path in directory.iterdir() if path.is_file() and path.name.startswith("part-"))


def _is_left_over(directory: Path) -> bool:
    """Whether its process is gone. Where that cannot be told, it may live: the directory is left alone."""
    try:
        return not filelocks.is_held(directory / _LOCK)
    except OSError:
        return False


def _discard(directory: Path, fd: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.close(fd)

"""The log of a file source: which files it took in, in which order, and how many rows each has.

It numbers all rows of all files from 0, so an offset is one number however many files there are. A line is appended
and made durable before an offset that needs it is handed to Spark; a crash in between leaves lines that no offset
names yet, and the next offset names them. Lines are never changed.
"""

from __future__ import annotations

import bisect
import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.driver.sources.durable import make_durable_directory
from app.driver.sources.errors import SourceError
from app.durablefiles import sync_to_disk


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file as it was when it was taken in. ``name`` is relative to the source's directory."""

    name: str
    size: int
    mtime_ns: int
    rows: int


class FileLog:
    """The log, and where in it a row number falls."""

    def __init__(self, path: Path) -> None:
        """Read the log; a last line that a crash cut off is dropped, because no offset names it yet."""
        self._path = path
        self.files: list[LoggedFile] = []
        self.ends: list[int] = []
        self.names: set[str] = set()
        self.size_bytes = 0
        self._length = 0
        if not path.exists():
            return
        with open(path, "r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            content = log.read()
            for line in content.splitlines(keepends=True):
                file = _parse(line)
                if file is None:
                    break
                self._length += len(line)
                self._add(file)
            if self._length < len(content):
                log.truncate(self._length)

    @property
    def rows(self) -> int:
        """The number of rows of all files in the log."""
        return self.ends[-1] if self.ends else 0

    def append(self, files: Sequence[LoggedFile]) -> None:
        """Take in more files; they are durable on return.

        Raises:
            SourceError: somebody else wrote to the log, so what this object knows of it is out of date.
        """
        if not files:
            return
        created = not self._path.exists()
        if created:
            make_durable_directory(self._path.parent)
        lines = "".join(json.dumps([f.name, f.size, f.mtime_ns, f.rows]) + "\n" for f in files).encode()
        with open(self._path, "ab") as log:
            # The planner of a query that was just stopped may still be at work when that of the next one starts.
            fcntl.flock(log, fcntl.LOCK_EX)
            if os.fstat(log.fileno()).st_size != self._length:
                raise SourceError(
                    f"The log {self._path} was written by another process: an earlier run of the query had not "
                    f"ended, or two queries use one checkpoint. A restart of the query reads the log anew."
                )
            log.write(lines)
            log.flush()
            os.fsync(log.fileno())
        self._length += len(lines)
        if created:
            sync_to_disk(self._path.parent)
        for file in files:
            self._add(file)

    def file_of(self, row: int) -> int:
        """Index of the file that holds ``row``; the number of files if the row is not there yet."""
        return bisect.bisect_right(self.ends, row)

    def first_row(self, index: int) -> int:
        """Number of the first row of the file at ``index``."""
        return self.ends[index - 1] if index else 0

    def check(self, row: int) -> None:
        """Raises SourceError if an offset names a row that the log does not know."""
        if row > self.rows:
            raise SourceError(
                f"The checkpoint's log {self._path} knows {self.rows} rows, but the query stands at row {row}: "
                f"the log is damaged or does not belong to this checkpoint."
            )

    def _add(self, file: LoggedFile) -> None:
        self.files.append(file)
        self.ends.append(self.rows + file.rows)
        self.names.add(file.name)
        self.size_bytes += file.size


def _parse(line: bytes) -> LoggedFile | None:
    try:
        name, size, mtime_ns, rows = json.loads(line)
    except (ValueError, TypeError):
        return None
    if not line.endswith(b"\n"):
        return None
    return LoggedFile(name, size, mtime_ns, rows)

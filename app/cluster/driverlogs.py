"""The logs of drivers: files that driver processes append to. One that grows too long is cut down to its end, and
parts of one are read while it is written.

A *place* in a log is the number of bytes that were written before it, those included that were cut off since. So a
place that a reader remembers stays the same place when the log is cut.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

from app.durablefiles import open_regular

log = structlog.get_logger()

# A function of a job that prints for every row fills a disk within hours.
_LOG_LIMIT_BYTES = 64 << 20
_LOG_TAIL_BYTES = 16 << 20
_CUT_NOTE = re.compile(rb"\.\.\. (\d{1,18}) bytes were cut off here\n")
_NOTE_MAX_BYTES = 64
# Turns in which what was written while a log was cut is kept. A driver may write faster than it is copied.
_TURNS_MAX = 3
_LOCK_FILE = "logs.lock"
_LOCK_PATIENCE_S = 0.5
_LOCK_PAUSE_S = 0.01


def log_file_of(lock_file: str | Path) -> Path:
    """The log of the driver that has this lock file."""
    return Path(lock_file).with_suffix(".log")


class OpenLog:
    """A log that is open. ``first`` is the place of the first byte that was not cut off, ``end`` that behind the last
    byte, ``size`` how long the file is, ``written_s`` when it was written to (epoch seconds)."""

    def __init__(self, fd: int) -> None:
        found = os.fstat(fd)
        note = _CUT_NOTE.match(os.pread(fd, _NOTE_MAX_BYTES, 0))
        self.first = int(note[1]) if note else 0
        # What a place is more than its byte's offset in the file.
        self._ahead = self.first - (note.end() if note else 0)
        self.size = found.st_size
        self.end = self.size + self._ahead
        self.written_s = found.st_mtime
        self._fd = fd

    def read(self, begin: int, end: int) -> bytes:
        """What is written from one place to another, as far as it is there."""
        begin = max(begin, self.first)
        return os.pread(self._fd, max(0, min(end, self.end) - begin), begin - self._ahead)


@contextlib.contextmanager
def open_log(path: Path) -> Iterator[OpenLog]:
    """
    Raises:
        FileNotFoundError: it was removed, or is on another host.
        OSError: it cannot be read, or was replaced by another file.
    """
    with _opened(path, os.O_RDONLY, fcntl.LOCK_SH) as fd:
        yield OpenLog(fd)


def end_of_log(lock_file: str) -> int | None:
    """The place at which the log of a driver ends now; None if it cannot be found out."""
    try:
        with open_log(log_file_of(lock_file)) as opened:
            return opened.end
    except OSError:
        return None


def trim_logs(run_dir: Path) -> None:
    """Cut the logs of drivers that have grown too long down to their ends. Blocks; not for the event loop."""
    for path in run_dir.glob("driver-*.log"):
        try:
            _trim(path)
        except OSError as error:
            log.warning("the log of a driver could not be cut", path=str(path), error=str(error))


def _trim(path: Path) -> None:
    """Drivers append, so theirs may be cut while they write; what is written in the last moment may be lost."""
    if path.stat(follow_symlinks=False).st_size <= _LOG_LIMIT_BYTES:
        return
    with _opened(path, os.O_RDWR, fcntl.LOCK_EX) as fd:
        opened = OpenLog(fd)
        tail = opened.read(opened.end - _LOG_TAIL_BYTES, opened.end)
        # From the begin of a line, if it has one.
        tail = tail.partition(b"\n")[2] or tail
        note = b"... %d bytes were cut off here\n" % (opened.end - len(tail))
        written, copied = _write_at(fd, len(note), tail), opened.size
        for _ in range(_TURNS_MAX):
            if not (more := os.pread(fd, _LOG_TAIL_BYTES, copied)):
                break
            written, copied = _write_at(fd, written, more), copied + len(more)
        os.ftruncate(fd, written)
        # Last: until then the places are those of the note before.
        _write_at(fd, 0, note)


def _write_at(fd: int, place: int, content: bytes) -> int:
    """Where it ends."""
    left = memoryview(content)
    while left:
        count = os.pwrite(fd, left, place)
        left, place = left[count:], place + count
    return place


@contextlib.contextmanager
def _opened(path: Path, access: int, lock: int) -> Iterator[int]:
    """A descriptor of the file, with a lock against who cuts or reads logs of its directory.

    The lock is on a file of its own, which only servers can open: a driver has its log open too, and could hold a lock
    on that for ever. One that a server holds for long, as it was stopped, is done without.
    """
    fd = open_regular(path, access)
    try:
        with _locked(path.with_name(_LOCK_FILE), lock):
            yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(path: Path, lock: int) -> Iterator[None]:
    fd = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        until_s = time.monotonic() + _LOCK_PATIENCE_S
        while time.monotonic() < until_s:
            try:
                fcntl.flock(fd, lock | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(_LOCK_PAUSE_S)
        yield
    finally:
        os.close(fd)

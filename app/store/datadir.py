"""The lock of a data directory: one control plane with SQLite, or several that share a PostgreSQL database."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from pathlib import Path
from typing import Self

from app.durablefiles import make_private, write_once
from app.store.errors import DataDirectoryInUse, StoreUnavailable

LOCK_NAME = "server.lock"
HOME_NAME = "home-id"


class HeldLock:
    """A lock that the kernel drops with the process, however it dies; held until then, or until `release`."""

    def __init__(self, lock_fd: int) -> None:
        self._lock_fd: int | None = lock_fd

    def release(self) -> None:
        """Let go. The file stays: removing it would let two servers lock different files."""
        lock_fd, self._lock_fd = self._lock_fd, None
        if lock_fd is not None:
            os.close(lock_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class DataDirectory(HeldLock):
    """A claim on a data directory, exclusive or with others.

    The file's text only tells a person who holds it. Child processes do not inherit it. Not for network file systems,
    and neither is SQLite.
    """

    def __init__(self, path: Path, lock_fd: int) -> None:
        super().__init__(lock_fd)
        self.path = path

    @classmethod
    def claim(cls, path: Path, *, shared: bool = False) -> DataDirectory:
        """Create ``path`` (mode 0700) if need be, and claim it. ``shared``: together with others that share it.

        Raises:
            DataDirectoryInUse: another server has it, and not both share it; the sentence names its pid.
            StoreUnavailable: the directory cannot be created or written.
        """
        what = "used"
        with contextlib.ExitStack() as undo:
            try:
                make_private(path)
                lock_fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                undo.callback(os.close, lock_fd)
                what = "locked"
                fcntl.flock(lock_fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                what = "written"
                since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                os.ftruncate(lock_fd, 0)
                if not shared:
                    os.pwrite(lock_fd, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)
            except BlockingIOError:
                raise DataDirectoryInUse(
                    f"The data directory {path} is in use by another server{_holder(lock_fd)}: stop that one first, or "
                    "choose another data directory. Only servers with the same PostgreSQL database share one: with "
                    "SQLite there is a single server."
                ) from None
            except OSError as error:
                raise StoreUnavailable(
                    f"The data directory {path} cannot be {what}: {error.strerror}."
                ) from error
            undo.pop_all()
            return cls(path, lock_fd)

    def home(self) -> str:
        """The lasting name of this directory, wherever it is moved to: what is in it cannot be reached from others.

        Raises:
            StoreUnavailable: it can be neither read nor written.
        """
        file = self.path / HOME_NAME
        try:
            with contextlib.suppress(FileNotFoundError):
                if name := file.read_text(encoding="ascii").strip():
                    return name
            return write_once(file, secrets.token_hex(8))
        except (OSError, ValueError) as error:
            raise StoreUnavailable(
                f"The name of the data directory in {file} cannot be used: {error}."
            ) from error


def _holder(lock_fd: int) -> str:
    """What the holder wrote about itself; nothing if it has not come to that yet."""
    try:
        note = json.loads(os.pread(lock_fd, 1024, 0))
        return f" (pid {int(note['pid'])}, since {note['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""

"""Files that are there whole or not at all, and that survive a power failure. The standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write ``path`` whole or not at all. Its content is on the disk on return; its name is, after a `sync_to_disk` of
    the directory. ``mode``: the permissions of a new file, less the process's umask.

    Raises:
        OSError: ``path`` is as it was.
    """
    # Hidden: what lists the directory, or allows no name that begins with a dot, does not meet it.
    temporary = path.with_name(f".{path.name}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def sync_to_disk(path: Path) -> None:
    """Have the operating system write ``path``, a file or the names in a directory, to its disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

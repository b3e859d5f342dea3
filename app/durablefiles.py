"""Files that are there whole or not at all, and that survive a power failure; directories that are for one user. The
standard library only."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

APPEARS_S: Final = 60.0
"""For how long a file may be on its way: so long may a network file system go by what it knew of a directory."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_whole(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write ``path`` whole or not at all. Its content is on the disk on return; its name is, after a `sync_to_disk` of
    the directory. ``mode``: the permissions of a new file, less the process's umask.

    Raises:
        OSError: ``path`` is as it was.
    """
    # Hidden: what lists the directory, or allows no name that begins with a dot, does not meet it.
    temporary = path.with_name(f".{path.name}.tmp")
    # Made anew: whoever may write into the directory could have put a link there.
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_once(path: Path, text: str) -> str:
    """Write the line ``text`` into ``path`` if nobody has; the line that is there then. It and its name are on the disk
    on return. Of several that write at once the first one wins.

    Raises:
        OSError: it can be neither written nor read.
        UnicodeError: somebody wrote what is no text.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    write_whole(temporary, f"{text}\n".encode())
    if path.exists() and not _line(path):
        # An empty file says nothing.
        os.replace(temporary, path)
    else:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    sync_to_disk(path.parent)
    return _line(path)


def _line(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def read_regular(path: Path, most_bytes: int) -> bytes:
    """What is in ``path``, of which somebody else may have made a link or a pipe.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than ``most_bytes``.
    """
    fd = open_regular(path)
    with os.fdopen(fd, "rb") as file:
        if os.fstat(fd).st_size > most_bytes:
            raise OSError(errno.EINVAL, "It is too large", str(path))
        return file.read(most_bytes)


def open_regular(path: Path, access: int = os.O_RDONLY) -> int:
    """A descriptor of ``path``, of which somebody else may have made a link or a pipe.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    fd = os.open(path, access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "It is no regular file", str(path))
    return fd


def remove_tree(path: Path) -> None:
    """Remove ``path``, whatever it is; what cannot be removed stays.

    Somebody else may have made it and all that is in it, and may still put something else in its place: no link is
    followed, no pipe is waited for, and no directory is too deep.
    """
    with contextlib.suppress(OSError):
        if _is_unlinked(path, None):
            return
        top = os.open(path, _DIRECTORY)
        try:
            names = os.listdir(top)
            while names:
                with contextlib.suppress(OSError):
                    name = names.pop()
                    if not _is_unlinked(name, top):
                        names += _emptied(name, top)
                        os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(path)


def _is_unlinked(name: str | Path, parent: int | None) -> bool:
    """Remove what is no directory."""
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=parent)
    return True


def _emptied(name: str, top: int) -> list[str]:
    """Remove the files of the directory ``name`` in ``top``, and move its directories up into ``top``, where they get
    the names returned. So none is reached by a recursion, or by a descriptor for each level."""
    moved = []
    fd = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        for each in os.listdir(fd):
            with contextlib.suppress(OSError):
                if not _is_unlinked(each, fd):
                    new = f".removed-{secrets.token_hex(8)}"
                    os.rename(each, new, src_dir_fd=fd, dst_dir_fd=top)
                    moved.append(new)
    finally:
        os.close(fd)
    return moved


def make_private(directory: Path) -> None:
    """Make ``directory``, and those above it that are missing, for this user only. One that is there stays as it is.

    Raises:
        OSError: it is not there.
    """
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not missing:
        # Says so if it is something else.
        directory.mkdir(exist_ok=True)


def is_open_to_others(directory: Path) -> bool:
    """Whether users other than the owner and the group may look into ``directory``, or at what they know the name of.

    Raises:
        OSError: that cannot be told.
    """
    return bool(directory.stat().st_mode & stat.S_IRWXO)


def sync_to_disk(path: Path) -> None:
    """Have the operating system write ``path``, a file or the names in a directory, to its disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_written_within(path: str, directories: Collection[str | Path]) -> bool:
    """Whether ``path`` says of itself, whatever links there are, that it is one of ``directories`` or below it."""
    written = Path(path)
    return ".." not in written.parts and any(
        written.is_relative_to(directory) or written.is_relative_to(os.path.realpath(directory))
        for directory in directories
    )


def is_within(path: str, directories: Collection[str | Path]) -> bool:
    """Whether ``path`` is one of ``directories`` or below it, as it is written or with its links followed as far as
    they exist. What is above a link is what the system says, or the text, by which Hadoop goes."""
    if is_written_within(path, directories):
        return True
    try:
        real = [Path(os.path.realpath(each)) for each in (path, os.path.normpath(path))]
    except (OSError, ValueError):
        return False
    return any(each.is_relative_to(os.path.realpath(directory)) for each in real for directory in directories)

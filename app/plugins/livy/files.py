"""The files that Livy batches name by path."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.durablefiles import is_within, open_regular
from app.model.sentences import shown
from app.plugins.livy.document import FileAsked
from app.worker.refusals import InvalidRequest

_CHANGED = "It was changed while it was read. Try again"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is there and may be read. ``path`` has no links in it."""

    place: str
    path: Path
    size: int


def find_files(
    directory: Path | None, private: Collection[Path], asked: Mapping[str, FileAsked]
) -> dict[str, FoundFile]:
    """The files that were asked for, by name. Blocks; not for the event loop.

    ``private``: what no program may be told of, also below ``directory``.

    Raises:
        InvalidRequest: with a sentence for each file that is not there, or is not for programs.
    """
    if directory is None:
        raise InvalidRequest(
            "file: this server reads no programs by path. Its operator has to name a directory with programs in its "
            "setting livy_files_dir."
        )
    root = os.path.realpath(directory)
    found: dict[str, FoundFile] = {}
    errors: list[str] = []
    for name, each in asked.items():
        path = Path(os.path.realpath(os.path.join(root, each.path)))
        if not path.is_relative_to(root) or is_within(str(path), private):
            # Whether there is such a file is nobody's business.
            errors.append(
                f"{each.place}: {shown(each.path)} is not for programs: only files below {directory} are, which the "
                "server's setting livy_files_dir names."
            )
            continue
        try:
            status = path.stat(follow_symlinks=False)
        except OSError as error:
            errors.append(f"{each.place}: {shown(each.path)} cannot be read: {error.strerror}.")
            continue
        if stat.S_ISREG(status.st_mode):
            found[name] = FoundFile(each.place, path, status.st_size)
        else:
            errors.append(f"{each.place}: {shown(each.path)} is no file.")
    if errors:
        raise InvalidRequest(*errors)
    return found


def read_files(found: Mapping[str, FoundFile]) -> dict[str, bytes]:
    """What is in them. Blocks; not for the event loop.

    Raises:
        InvalidRequest: with a sentence for each one that cannot be read, or that somebody has changed meanwhile.
    """
    contents: dict[str, bytes] = {}
    errors: list[str] = []
    for name, each in found.items():
        try:
            contents[name] = _content(each)
        except OSError as error:
            errors.append(f"{each.place}: {shown(str(each.path))} cannot be read: {error.strerror}.")
    if errors:
        raise InvalidRequest(*errors)
    return contents


def _content(file: FoundFile) -> bytes:
    fd = open_regular(file.path)
    with os.fdopen(fd, "rb") as opened:
        # Whoever may write into a directory above it could have put a link there meanwhile.
        if os.readlink(f"/proc/self/fd/{fd}") != str(file.path) or os.fstat(fd).st_size != file.size:
            raise OSError(errno.ESTALE, _CHANGED)
        content = opened.read(file.size)
    if len(content) < file.size:
        raise OSError(errno.ESTALE, _CHANGED)
    return content

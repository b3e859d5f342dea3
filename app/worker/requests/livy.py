"""Livy batches: which jobs they are, and the files that they name by path."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.documents.livy import FileAsked
from app.durablefiles import is_within, open_regular
from app.model.sentences import shown
from app.store.store import Store
from app.worker.refusals import InvalidRequest, UnknownBatch
from app.worker.retrying import reading

_CHANGED = "It was changed while it was read. Try again"


class LivyBatches:
    """Which jobs are Livy batches, by number. Every server answers: it is in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def number_of(self, job_id: str) -> int:
        """Of a job that was submitted as a batch.

        Raises:
            UnknownBatch: it is not there any more.
        """
        number = await reading(self._store.livy_number(job_id))
        if number is None:
            raise UnknownBatch(f"Job {job_id} is no Livy batch.")
        return number

    async def job_of(self, number: int) -> str:
        """Raises UnknownBatch: there is none with this number."""
        job_id = await reading(self._store.job_of_livy_number(number))
        if job_id is None:
            raise UnknownBatch(f"There is no Livy batch {number}.")
        return job_id

    async def page(self, first: int, most: int) -> tuple[int, Mapping[str, int]]:
        """How many there are, and the numbers by job of those from place ``first`` on."""
        return await reading(self._store.livy_page(first, most))


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

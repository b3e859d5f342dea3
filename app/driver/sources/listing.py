"""Which files a source sees."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from app.driver.sources.errors import SourceError


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is not in the log yet. ``name`` is relative to the source's path."""

    name: str
    size: int
    mtime_ns: int


def find_files(
    root: Path, known: Collection[str], *, glob: str, recursive: bool, only: Collection[str] | None = None
) -> list[FoundFile]:
    """The files at ``root`` whose names are not ``known``, in the order of their names.

    As in Spark, names that begin with an underscore or a dot are not seen. ``only``: no others than these.

    Raises:
        SourceError: there is no such directory or file, or it cannot be read.
    """
    found: list[FoundFile] = []
    try:
        if root.is_file():
            names = [root.name] if root.name not in known else []
            root = root.parent
        else:
            names = list(_names(root, "", known, glob, recursive))
        for name in sorted(names):
            if only is not None and name not in only:
                continue
            try:
                status = os.stat(root / name)
            except FileNotFoundError:
                continue  # Gone between the two looks: it was never taken in.
            found.append(FoundFile(name, status.st_size, status.st_mtime_ns))
    except OSError as error:
        raise SourceError(f"The source's files at {root} cannot be listed: {error.strerror}.") from None
    return found


def path_of(root: Path, name: str) -> Path:
    """Where the file lies that is called ``name`` in the log."""
    return root.parent / name if root.name == name and not root.is_dir() else root / name


def _names(directory: Path, prefix: str, known: Collection[str], glob: str, recursive: bool) -> list[str]:
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(("_", ".")):
                continue
            name = prefix + entry.name
            if name in known:
                continue
            if entry.is_dir():
                if recursive:
                    names += _names(directory / entry.name, name + "/", known, glob, recursive)
            elif fnmatch.fnmatch(entry.name, glob):
                names.append(name)
    return names

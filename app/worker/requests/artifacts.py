"""The files that are submitted with a job: those that its graph lists. Modules that would hide other modules
are refused.

Artifacts come first on the path of the driver and of Spark's Python workers, which import their own modules by name.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Mapping, Sequence
from typing import Final

NEEDED: Final = frozenset(
    {"app", "google", "numpy", "pandas", "psycopg", "py4j", "pyarrow", "pyspark"}
    | {"dateutil", "pytz", "six", "typing_extensions", "tzdata"}
)
"""What drivers and workers import, and what that imports in turn, apart from Python's standard library."""

_FREE_IN_PROGRAMS: Final = frozenset({"app"})
"""A driver that runs a program has imported what it needs of its own before."""

_PROTOBUF: Final = ("google/__init__.", "google/_upb/", "google/protobuf/")

_ARCHIVES: Final = (".zip", ".whl", ".egg")


def refused_artifacts(
    listed: Sequence[str], artifacts: Mapping[str, bytes], *, program: bool = False
) -> list[str]:
    """What is wrong with the files, in sentences. It takes its time if an archive has very many files in it."""
    missing = [name for name in listed if name not in artifacts]
    unlisted = [name for name in artifacts if name not in listed]
    errors = [f"artifacts: the file {name} is listed but was not sent along." for name in missing]
    errors += [f"artifacts: the file {name} was sent along but is not listed." for name in unlisted]
    free = _FREE_IN_PROGRAMS if program else frozenset()
    for file, content in artifacts.items():
        hidden = min(_modules(file, content) & (NEEDED | sys.stdlib_module_names) - free, default=None)
        if hidden is not None:
            whose = "Python's standard library" if hidden in sys.stdlib_module_names else "the driver"
            errors.append(
                f"artifacts: {file} {'is' if file.endswith('.py') else 'holds'} a module {hidden}, which would hide "
                f"the module {hidden} of {whose}: give it another name."
            )
    return errors


def _modules(file: str, content: bytes) -> set[str]:
    """The modules and packages that can be imported once the file is on the path."""
    if file.endswith(".py"):
        return {file.partition(".")[0]}
    if not file.lower().endswith(_ARCHIVES):
        return set()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = [name for name in archive.namelist() if name.endswith((".py", ".pyc"))]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        # Python imports nothing from it either; the driver will say which module is missing.
        return set()
    return {_bare(name.partition("/")[0]) for name in files if _may_hide(name)}


def _may_hide(file: str) -> bool:
    """Whether a file of an archive may take the place of the module or package at the top of its path."""
    top, _, inner = file.partition("/")
    if top in sys.stdlib_module_names and _bare(inner) != "__init__":
        # A directory without __init__ comes after the module of Python's library.
        return False
    # Google's libraries share the package `google`, which has no code of its own: protobuf is one of them.
    return top != "google" or file.startswith(_PROTOBUF)


def _bare(file: str) -> str:
    return file.removesuffix(".pyc").removesuffix(".py")

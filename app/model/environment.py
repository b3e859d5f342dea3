"""The environment of a job: a Python with PySpark and the job's libraries, packages (jars) for its JVM, and
environment variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.model.sentences import shown

LEAST_PYTHON: Final = (3, 11)
"""What the driver's own code is written for."""
SPARK_LINES: Final = ("4.1", "4.2", "4.3")
MAX_REQUIREMENTS: Final = 200
MAX_PACKAGES: Final = 50

_MOST_CHARS = 500
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_COORDINATE = re.compile(rf"{_PART}:{_PART}:{_PART}\Z")
_CREDENTIALS = re.compile(r"://[^/@]*@")


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """Exactly one of these is given. ``python`` and ``archive`` are absolute paths on the host of the server, or
    ``archive`` is one of the job's artifacts; ``requirements`` are as pip reads them."""

    python: str | None = None
    archive: str | None = None
    requirements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a driver process is started with. ``environment`` None is that of the server; ``packages`` are coordinates
    ``group:artifact:version``; ``artifacts_dir`` has the job's files, and is empty in a document. ``variables`` are
    environment variables, which a driver that was started before gets too."""

    environment: EnvironmentSpec | None = None
    packages: tuple[str, ...] = ()
    artifacts_dir: str = ""
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether it is other than what the server's drivers have by themselves."""
        return self.environment is not None or bool(self.packages)

    def with_artifacts(self, artifacts_dir: str) -> Runtime | None:
        """This one with the files of the job; None if it is that of the server."""
        return replace(self, artifacts_dir=artifacts_dir) if self.is_own else None


SERVERS: Final = Runtime()
"""The environment of the server."""


def python_fault(version: Sequence[int]) -> str | None:
    """Why drivers cannot run on a Python of this version."""
    if tuple(version[:2]) >= LEAST_PYTHON:
        return None
    told = ".".join(map(str, version[:3]))
    return f"is Python {told}: a driver needs Python {'.'.join(map(str, LEAST_PYTHON))} or newer"


def spark_fault(version: str) -> str | None:
    """Why drivers cannot run on this PySpark."""
    if ".".join(version.split(".")[:2]) in SPARK_LINES:
        return None
    return f"has PySpark {version}: Slotwise runs PySpark {', '.join(SPARK_LINES[:-1])} and {SPARK_LINES[-1]}"


def is_before(version: str, line: str) -> bool:
    """Whether a PySpark is older than those of a line, such as 4.2."""
    return tuple(map(int, version.split(".")[:2])) < tuple(map(int, line.split(".")))


def path_fault(path: str) -> str | None:
    if path.startswith("/") and "\0" not in path and "/../" not in f"{path}/":
        return None
    return f"should be an absolute path on the host of the server, without .., found {shown(path)}"


def requirement_fault(requirement: str) -> str | None:
    """Why this cannot be asked of the resolver: an option would change how it works."""
    if len(requirement) > _MOST_CHARS:
        return f"is too long: at most {_MOST_CHARS} characters are allowed"
    if requirement.lstrip().startswith("-") or not requirement.isprintable() or not requirement.strip():
        return f"should be a requirement such as numpy==2.1.0, and not an option, found {shown(requirement)}"
    if _CREDENTIALS.search(requirement):
        return "has a password in an address: give the index and its password to the server, in uv's own settings"
    return None


def package_fault(coordinate: str) -> str | None:
    if len(coordinate) <= _MOST_CHARS and _COORDINATE.match(coordinate):
        return None
    return (
        "should be the coordinates of one version, group:artifact:version, such as "
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0, found {shown(coordinate)}"
    )

"""Environments of other PySparks for tests, made as the product makes those of jobs, and kept in a cache directory.

A server of a test that has `CACHE` as its `cache_dir` finds them there and makes none again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tomllib
from pathlib import Path

from app.cluster.appcds import ArchiveBuilder
from app.cluster.environments import EnvironmentRefused
from app.cluster.java import usable_java
from app.cluster.runtimes import Kind, Runtimes
from app.driver.jvm import archive_options
from app.model.environment import EnvironmentSpec, Runtime
from app.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slotwise-tests"
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""For a JVM that lives for a test: C2 would compile what is not run often enough to pay for it."""

VERSIONS = ("4.1.1", "4.2.0")
"""PySparks that are supported beside that of the server."""


def archive_builder() -> ArchiveBuilder:
    """Of the class data archive where servers of tests look for it."""
    return ArchiveBuilder(CACHE, usable_java())


def quick_java() -> str:
    """`QUICK_JAVA` for a Spark that no driver of Slotwise starts: with the class data archive too, a third less time. A
    JVM with other jars, or before the fixture ``class_data_archive``, starts without it."""
    return " ".join(("-XX:+UseSerialGC", QUICK_JAVA, *archive_options(str(archive_builder().path))))


class NotServed(Exception):
    """A registry does not give what an environment or a package needs; with its sentence."""


def requirements(version: str) -> list[str]:
    """What an environment of the PySpark ``version`` has."""
    return [f"pyspark=={version}", "pandas<3", "pyarrow>=18"]


def for_tests(version: str) -> Kind:
    """The Python with that PySpark and all that tests of the project need besides.

    Raises:
        NotServed: it cannot be had.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    needed = [each for each in wanted if not each.startswith(("pyspark", "slotwise"))]
    # The workers of PySpark 4.1 give newer ones a number of rows that is no integer (applyInPandasWithState).
    older = ["pyarrow<22"] if version.startswith("4.1.") else []
    return having([f"pyspark=={version}", *needed, *older])


def having(wanted: list[str], packages: tuple[str, ...] = ()) -> Kind:
    """The Python that has what is ``wanted``, and the jars of ``packages``; what is not there yet is fetched.

    Raises:
        NotServed: it cannot be had.
    """
    with_uv()
    runtimes = Runtimes(CACHE, usable_java(), repository=Settings.model_fields["package_repository"].default)
    spec = EnvironmentSpec(requirements=tuple(wanted))
    try:
        return asyncio.run(runtimes.kind(Runtime(spec, packages)))
    except EnvironmentRefused as error:
        raise NotServed(str(error)) from None


def with_uv() -> None:
    """Put the uv of `make setup` on the PATH of this process and its children, if there is none."""
    if shutil.which("uv") is None:
        os.environ["PATH"] += f"{os.pathsep}{ROOT / '.uv/bin'}"

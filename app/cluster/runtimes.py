"""The runtime of a driver process: a Python, found or built for its job, and packages for its JVM."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import structlog

from app import filelocks
from app.cluster.driveruser import DriverUser
from app.cluster.environments import Environment, EnvironmentRefused, Pythons, own_environment, run_bounded
from app.cluster.java import Java
from app.cluster.ports import DriverLaunchError, ExecutorCluster
from app.durablefiles import remove_tree, write_whole
from app.model.environment import EnvironmentSpec, Runtime

log = structlog.get_logger()

_BUILD_S = 1200
_MOST_CHARS = 1500
# Spark's own resolver, and a gateway that ends at once because nobody holds its standard input.
_RESOLVER = ("org.apache.spark.deploy.SparkSubmit", "--conf", "spark.ui.enabled=false")
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers><ibiblio name="repository" m2compatible="true" root="{}"/></resolvers>
</ivysettings>
"""
# What uv draws around its sentences.
_FRAME = re.compile(r"^[^\w\[\"'`(/-]+")
_PYSPARK = re.compile(r"\s*pyspark\s*(\[|[=<>!~;@,( ]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a driver was started with: a warm one can be given to whoever asks for one of its kind. ``environment`` None
    is that of the server; ``jars`` are behind Spark's own on the class path."""

    environment: Environment | None = None
    jars: tuple[str, ...] = ()

    @property
    def python(self) -> str | None:
        return None if self.environment is None else self.environment.python


OWN = Kind()


class Runtimes:
    """Finds or builds what jobs ask for. ``repository`` has the packages; ``cluster`` runs the executors of jobs, which
    have the Python of their driver under the same path, and its packages from it."""

    def __init__(
        self,
        cache_dir: Path,
        java: Java,
        *,
        repository: str,
        user: DriverUser | None = None,
        cluster: ExecutorCluster | None = None,
    ) -> None:
        self._builds = Builds(cache_dir / "environments", user)
        self._pythons = Pythons(user)
        self._java = java
        self._repository = repository
        self._user = user
        self._cluster = cluster

    async def kind(self, runtime: Runtime | None) -> Kind:
        """
        Raises:
            EnvironmentRefused: no driver can be started with it; the message is a sentence.
        """
        if runtime is None or not runtime.is_own:
            return OWN
        environment = None
        if runtime.environment is not None:
            environment = await self._environment(runtime.environment, runtime.artifacts_dir)
        if self._cluster is not None:
            version = (environment or own_environment()).spark_version
            if fault := await self._cluster.runtime_fault(version):
                raise EnvironmentRefused(f"{'packages' if environment is None else 'environment'}: {fault}")
        jars: tuple[str, ...] = ()
        if runtime.packages:
            home = (environment or own_environment()).spark_home
            jars = await self._jars(runtime.packages, home)
        return Kind(environment, jars)

    async def _environment(self, spec: EnvironmentSpec, artifacts_dir: str) -> Environment:
        if spec.python is not None:
            return await self._pythons.look(spec.python)
        if spec.archive is not None:
            file = Path(artifacts_dir) / spec.archive
            key = f"archive-{await asyncio.to_thread(_hash_of, file)}"
            unpack = partial(self._unpack, file, sent=not os.path.isabs(spec.archive))
            (python,) = await self._builds.once(key, unpack)
            return await self._pythons.look(python, "environment.archive")
        wanted = with_pyspark(spec.requirements, own_environment().spark_version)
        key = f"requirements-{_short_hash(*sorted(wanted), sys.version)}"
        (python,) = await self._builds.once(key, partial(self._install, wanted))
        return await self._pythons.look(python, "environment.requirements")

    async def _jars(self, packages: tuple[str, ...], spark_home: str) -> tuple[str, ...]:
        # What Spark brings itself is left out, so the jars are those for one Spark.
        key = f"packages-{_short_hash(*sorted(packages), self._repository, spark_home)}"
        return tuple(await self._builds.once(key, partial(self._resolve, packages, spark_home)))

    # -- builds, in threads

    def _install(self, requirements: tuple[str, ...], place: Path) -> list[str]:
        uv = shutil.which("uv")
        if uv is None:
            raise EnvironmentRefused(
                "environment.requirements: the server has no uv on its PATH. Install it (pip install uv), or name a "
                "Python that has them as environment.python."
            )
        python = place / "bin" / "python"
        log.info("an environment is being installed (once)", requirements=requirements, path=str(place))
        base = getattr(sys, "_base_executable", None) or sys.executable
        # Whoever drivers run as need not have a home.
        extra = {"UV_CACHE_DIR": str(place / ".uv")} if self._user is not None else {}
        for command in (
            [uv, "venv", "--quiet", "--allow-existing", "--python", base, str(place)],
            [uv, "pip", "install", "--quiet", "--python", str(python), *requirements],
        ):
            self._run(command, place, "environment.requirements", extra=extra)
        shutil.rmtree(place / ".uv", ignore_errors=True)
        return [str(python)]

    def _unpack(self, file: Path, place: Path, *, sent: bool) -> list[str]:
        # GNU tar leaves out what would lie elsewhere, by its name or through a link.
        flags = ("--no-same-owner", "--no-same-permissions")
        unpack = ["tar", "-xz", "-C", str(place), *flags]
        if sent:
            # Until a driver has it, what was sent along is for the server alone.
            with file.open("rb") as content:
                self._run(unpack, place, "environment.archive", stdin=content)
        else:
            self._run([*unpack, "-f", str(file)], place, "environment.archive")
        python = place / "bin" / "python"
        if not os.path.lexists(python):
            raise EnvironmentRefused(
                "environment.archive: the archive has no bin/python. It should be one that venv-pack or conda-pack "
                "made."
            )
        if (place / "bin" / "conda-unpack").is_file():
            self._run([str(python), str(place / "bin" / "conda-unpack")], place, "environment.archive")
        return [str(python)]

    def _resolve(self, packages: tuple[str, ...], spark_home: str, place: Path) -> list[str]:
        log.info("packages are being resolved (once)", packages=packages, path=str(place))
        settings = place / "ivysettings.xml"
        settings.write_text(_IVY_SETTINGS.format(self._repository), encoding="utf-8")
        if self._user is not None:
            self._user.give(settings)
        conf = {"spark.jars.ivy": place, "spark.jars.ivySettings": settings}
        self._run(
            [
                self._java.command,
                "-Xmx512m",
                "-XX:+UseSerialGC",
                "-cp",
                f"{spark_home}/jars/*",
                *_RESOLVER,
                *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
                "--packages",
                ",".join(packages),
                "pyspark-shell",
            ],
            place,
            "packages",
            extra={
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(place / "connection"),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )
        (place / "connection").unlink(missing_ok=True)
        shutil.rmtree(place / "cache", ignore_errors=True)
        return sorted(map(str, (place / "jars").glob("*.jar")))

    def _run(
        self,
        command: list[str],
        place: Path,
        what: str,
        *,
        extra: dict[str, str] | None = None,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
    ) -> None:
        try:
            status, output = run_bounded(
                command, _BUILD_S, self._user, cwd=str(place), extra=extra, stdin=stdin
            )
        except subprocess.TimeoutExpired:
            raise EnvironmentRefused(
                f"{what}: {Path(command[0]).name} was not done within {_BUILD_S} s."
            ) from None
        if status < 0:
            # By the host, not for a reason of its own.
            raise DriverLaunchError(f"{what}: {Path(command[0]).name} was ended by signal {-status}.")
        if status != 0:
            log.warning("an environment cannot be built", what=what, output=output[-20_000:])
            raise EnvironmentRefused(f"{what}: {told_by(output) or f'it ended with exit status {status}'}")


def with_pyspark(requirements: tuple[str, ...], version: str) -> tuple[str, ...]:
    """The requirements of a driver: if they do not say which PySpark, that of the server."""
    if any(_PYSPARK.match(each) for each in requirements):
        return requirements
    return (f"pyspark=={version}", *requirements)


def told_by(output: str) -> str:
    """What a resolver said last, as one sentence."""
    lines = [_FRAME.sub("", line).strip() for line in output.splitlines()]
    if any(line.startswith('Exception in thread "main"') for line in lines):
        # Spark's: the rest is a table of what was tried.
        lines = [line.partition(": ")[2] for line in lines if line.startswith('Exception in thread "main"')]
    sentence = " ".join(line for line in lines if line).removeprefix("error: ").replace(" cause: ", ": ")
    sentence = sentence[-_MOST_CHARS:]
    return sentence if not sentence or sentence.endswith(".") else f"{sentence}."


def _short_hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _hash_of(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:16]
    except OSError as error:
        raise EnvironmentRefused(f"environment.archive: {file} cannot be read: {error.strerror}.") from None


class Builds:
    """Directories below ``directory``, one per key. A build counts once it is noted beside its directory, so half a
    build never does. ``user``: whom drivers run as; builds run code of others, so they belong to that user."""

    def __init__(self, directory: Path, user: DriverUser | None) -> None:
        self._directory = directory
        self._user = user
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(self, key: str, build: Callable[[Path], list[str]]) -> list[str]:
        """What ``build`` gave when it made the directory of ``key``, now or before; whoever asks meanwhile waits.

        Raises:
            EnvironmentRefused: it cannot be built. Nothing is left of it.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                return await asyncio.to_thread(self._once, key, build)
            except OSError as error:
                raise EnvironmentRefused(f"environment: it cannot be kept in the cache: {error}.") from error

    def _once(self, key: str, build: Callable[[Path], list[str]]) -> list[str]:
        note = self._directory / f"{key}.json"
        if (built := _read(note)) is not None:
            return built
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            self._user.let_through(self._directory)
        # Of several servers that share the cache, one builds.
        fd = filelocks.lock(self._directory / f"{key}.lock", wait=True)
        assert fd is not None
        try:
            if (built := _read(note)) is not None:
                return built
            place = self._directory / key
            remove_tree(place)
            place.mkdir(mode=stat.S_IRWXU)
            if self._user is not None:
                self._user.give_directory(place)
            try:
                built = build(place)
            except BaseException:
                remove_tree(place)
                raise
            write_whole(note, json.dumps(built).encode())
            return built
        finally:
            os.close(fd)


def _read(note: Path) -> list[str] | None:
    """What was built, if it is there still: caches are emptied by hand."""
    try:
        built = [str(each) for each in json.loads(note.read_text(encoding="utf-8"))]
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return built if all(os.path.exists(each) for each in built) else None

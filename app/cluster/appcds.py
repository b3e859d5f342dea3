"""The class data archive that makes drivers start faster, built once per installation in the background.

It belongs to one Java and one set of jars: its name carries a fingerprint of both, so an upgrade builds another, and so
does PySpark when it is installed anew at the same place.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import structlog

from app.cluster.environments import Environment, inherited_environment, own_environment
from app.cluster.java import Java
from app.cluster.processes import DRIVER_ENV_PREFIX, driver_command
from app.durablefiles import remove_tree

log = structlog.get_logger()

_CLASSES = "of a warm-up, and of Parquet"
"""Which classes an archive has. Another text has archives built again."""


def default_cache_dir() -> Path:
    """The user's cache directory for Slotwise."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "slotwise"


def fingerprint(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def jars(spark_home: str) -> list[str]:
    """What Java compares of each jar: it ignores an archive of other jars, and says nothing."""
    with contextlib.suppress(OSError):
        found = [(jar.name, jar.stat()) for jar in Path(spark_home, "jars").glob("*.jar")]
        return sorted(f"{name} {stat.st_size} {int(stat.st_mtime)}" for name, stat in found)
    return []


def _ended(process: subprocess.Popen[bytes]) -> int:
    with process:
        return process.wait()


class ArchiveBuilder:
    """Knows where the archive is and builds it when it is missing."""

    def __init__(
        self,
        cache_dir: Path,
        java: Java,
        *,
        environment: Environment | None = None,
        command: tuple[str, ...] = (),
    ) -> None:
        """``environment``: the one whose Spark it is for, if not that of the server. ``command``: what builds an
        archive at the path that is its last argument."""
        self.cache_dir, self.java = cache_dir, java
        spark = environment or own_environment()
        place = fingerprint(java.version, spark.spark_version, spark.spark_home, "classpath of an executor")
        self.path = cache_dir / f"spark-{place}-{fingerprint(_CLASSES, *jars(spark.spark_home))}.jsa"
        python = None if environment is None else environment.python
        self._command = command or tuple(driver_command("app.driver.appcds", python))
        self._process: subprocess.Popen[bytes] | None = None
        self._given_up = False

    def path_if_ready(self) -> Path | None:
        """The archive, or None while there is none."""
        return self.path if self.path.exists() else None

    @property
    def is_building(self) -> bool:
        return self._process is not None

    async def ensure(self) -> bool:
        """Build the archive if it is missing; whether it is there now. A failure costs speed only: it is logged."""
        if self.path.exists():
            return True
        log_file = self.path.with_suffix(".log")
        try:
            process = self._start(log_file)
        except OSError as error:
            log.warning("no class data archive", error=str(error))
            return False
        log.info("building the class data archive (once per installation)", path=str(self.path))
        status = await asyncio.to_thread(_ended, process)
        self._process = None
        if self._given_up:
            return self.path.exists()
        if status != 0 or not self.path.exists():
            log.warning("the class data archive could not be built", exit_status=status, log=str(log_file))
            return False
        log.info("class data archive ready", path=str(self.path))
        await asyncio.to_thread(self._remove_older)
        return True

    def _remove_older(self) -> None:
        """Remove archives of the jars that were in the place of these: Java cannot use them any more."""
        place = self.path.stem.rpartition("-")[0]
        for left in self.cache_dir.glob(f"{place}*"):
            if not left.name.startswith(f"{self.path.stem}."):
                with contextlib.suppress(OSError):
                    left.unlink()

    def _start(self, log_file: Path) -> subprocess.Popen[bytes]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(log_file, "ab") as output:
            self._process = subprocess.Popen(
                [*self._command, str(self.path)],
                # It ends with this process.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**inherited_environment(), DRIVER_ENV_PREFIX + "JAVA": self.java.command},
                start_new_session=True,
                # Class data of Spark and nothing else: drivers of another user may read it.
                umask=0o022,
                # It must never slow down a job that starts meanwhile. Nothing else runs between fork and exec.
                preexec_fn=lambda: os.nice(10),
            )
        return self._process

    def stop(self) -> None:
        """Give up a build that is under way, and remove what there is of it."""
        self._given_up = True
        # One that has ended by itself has left nothing.
        if (process := self._process) is None or process.poll() is not None:
            return
        # The JVM too, which else would go on and write the archive.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.path.with_name(f"{self.path.name}.{process.pid}.partial").unlink(missing_ok=True)
        for scratch_dir in Path(tempfile.gettempdir()).glob(f"slotwise-archive-{process.pid}-*"):
            remove_tree(scratch_dir)

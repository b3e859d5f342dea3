"""The class data archive that makes drivers start faster, built once per installation in the background.

It belongs to one Java and one set of jars: its name carries a fingerprint of both, so an upgrade builds another.
"""

from __future__ import annotations

import asyncio
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


def default_cache_dir() -> Path:
    """The user's cache directory for Slotwise."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "slotwise"


def fingerprint(java_version: str, environment: Environment | None = None) -> str:
    """What the archive depends on: the Java, the Spark, and where its jars lie."""
    spark = environment or own_environment()
    text = "\n".join((java_version, spark.spark_version, spark.spark_home, "classpath of an executor"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def jars(environment: Environment | None = None) -> str:
    """A fingerprint of the jars, by what Java compares: it does not use an archive of other jars."""
    found = Path((environment or own_environment()).spark_home, "jars").glob("*.jar")
    told = [(jar.name, jar.stat()) for jar in found]
    text = "\n".join(f"{name} {stat.st_size} {int(stat.st_mtime)}" for name, stat in told)
    return hashlib.sha256(text.encode()).hexdigest()


class ArchiveBuilder:
    """Knows where the archive is and builds it when it is missing, or of other jars than those that are there now."""

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
        self.path = cache_dir / f"spark-{fingerprint(java.version, environment)}.jsa"
        # Says of which jars it is.
        self._stamp = self.path.with_suffix(".jars")
        self._environment = environment
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
        """Build the archive if it is missing or out of date; whether it is there now. A failure costs speed only: it is
        logged."""
        found = await asyncio.to_thread(jars, self._environment)
        log_file = self.path.with_suffix(".log")
        try:
            if self.path.exists():
                if self._stamp.exists() and self._stamp.read_text(encoding="ascii") == found:
                    return True
                self.path.unlink()
            process = self._start(log_file)
        except OSError as error:
            log.warning("no class data archive", error=str(error))
            return False
        log.info("building the class data archive (once per installation)", path=str(self.path))
        status = await asyncio.to_thread(process.wait)
        self._process = None
        if self._given_up:
            return self.path.exists()
        if status != 0 or not self.path.exists():
            log.warning("the class data archive could not be built", exit_status=status, log=str(log_file))
            return False
        self._stamp.write_text(found, encoding="ascii")
        log.info("class data archive ready", path=str(self.path))
        return True

    def _start(self, log_file: Path) -> subprocess.Popen[bytes]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(log_file, "ab") as output:
            self._process = subprocess.Popen(
                [*self._command, str(self.path)],
                stdin=subprocess.DEVNULL,
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

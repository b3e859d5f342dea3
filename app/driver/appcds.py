"""Builds the class data archive that makes later JVMs start faster: run as a program of its own, once.

The archive holds the classes that are loaded by a warm-up, and by what sinks of ours write. Java writes it when the JVM
ends in an orderly way. What a build leaves that is killed, `app.cluster.appcds` removes, or else the next build.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from app import filelocks
from app.driver.failures import DriverError
from app.driver.jvm import start_jvm
from app.driver.rope import Rope
from app.driver.session import close_session
from app.driver.sinks.staging import run_action
from app.driver.warmup import warm_up

log = logging.getLogger(__name__)

_EXIT_TIMEOUT_S = 180.0


def main() -> None:
    """``python -m app.driver.appcds <archive>``; the exit status is 0 if the archive is there at the end."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    archive = Path(sys.argv[1])
    # One build at a time. The JVM, which writes the archive, inherits the lock: it may outlive this process.
    fd = filelocks.lock(archive.with_name(f"{archive.name}.lock"), wait=True)
    assert fd is not None
    if archive.exists():
        return
    # Remove files of killed builds: only the holder of the lock builds.
    for left in archive.parent.glob(f"{archive.name}.*.partial"):
        left.unlink(missing_ok=True)
    for left in Path(tempfile.gettempdir()).glob("slotwise-archive-*-*"):
        if not Path("/proc", left.name.split("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    # Written under another name, so that no reader sees an incomplete archive.
    partial = archive.with_name(f"{archive.name}.{os.getpid()}.partial")
    # A server that kills this process finds the directory by its number.
    scratch_dir = Path(tempfile.mkdtemp(prefix=f"slotwise-archive-{os.getpid()}-"))
    try:
        build(partial, scratch_dir, fd)
        os.replace(partial, archive)
    finally:
        partial.unlink(missing_ok=True)
        shutil.rmtree(scratch_dir, ignore_errors=True)


def build(archive: Path, scratch_dir: Path, lock_fd: int) -> None:
    """
    Raises:
        DriverError: there is no archive, as the JVM did not start or did not end.
    """
    jvm = start_jvm(
        scratch_dir=scratch_dir,
        inherited_fds=(lock_fd,),
        extra=(f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off"),
    )
    try:
        jvm.wait_for_gateway()
        session = warm_up(scratch_dir, str(scratch_dir), "local[2]")
        if session is not None:
            _write_parquet(session, scratch_dir / "parquet")
            close_session(session)
        assert jvm.process.stdin is not None
        jvm.process.stdin.close()
        jvm.process.wait(_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise DriverError("The JVM did not end.") from None
    finally:
        jvm.kill()
    if not archive.exists():
        raise DriverError("Java wrote no archive.")


def _write_parquet(session: SparkSession, directory: Path) -> None:
    """What sinks of databases and files do, and regions with their results: the warm-up's own sink does not."""
    try:
        run_action(session.range(1).toDF("id"), directory, "parquet", {})
    except Exception:
        log.exception("the archive has no classes of Parquet")


if __name__ == "__main__":
    # A server that is killed leaves no build behind.
    Rope()
    main()

"""Builds the class data archive that makes later JVMs start faster: run as a program of its own, once.

The archive holds the classes that a warm-up loads. Java writes it when the JVM ends in an orderly way.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from app import filelocks
from app.driver.jvm import Jvm, start_jvm
from app.driver.session import close_session
from app.driver.warmup import warm_up

_EXIT_TIMEOUT_S = 180.0


def main() -> int:
    """``python -m app.driver.appcds <archive>``; the exit status is 0 if the archive is there at the end.

    SIGTERM gives the build up: nothing of it stays behind.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    if len(sys.argv) != 2:
        print("usage: python -m app.driver.appcds <archive>", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _on_sigterm)
    archive = Path(sys.argv[1])
    # One build at a time. The JVM, which writes the archive, inherits the lock: it may outlive this process.
    fd = filelocks.lock(archive.with_name(f"{archive.name}.lock"), wait=True)
    assert fd is not None
    if archive.exists():
        return 0
    # Remove files of killed builds: only the holder of the lock builds.
    for left in archive.parent.glob(f"{archive.name}.*.partial"):
        left.unlink(missing_ok=True)
    return _build(archive, fd)


def _build(archive: Path, lock_fd: int) -> int:
    # Written under another name, so that no reader sees an incomplete archive.
    partial = archive.with_name(f"{archive.name}.{os.getpid()}.partial")
    jvm: Jvm | None = None
    # A server that kills this process finds the directory by its number.
    scratch_dir = Path(tempfile.mkdtemp(prefix=f"slotwise-archive-{os.getpid()}-"))
    try:
        jvm = start_jvm(
            scratch_dir=scratch_dir,
            inherited_fds=(lock_fd,),
            extra=(f"-XX:ArchiveClassesAtExit={partial}", "-Xlog:cds=off"),
        )
        jvm.wait_for_gateway()
        session = warm_up(scratch_dir, str(scratch_dir), "local[2]")
        if session is not None:
            close_session(session)
        assert jvm.process.stdin is not None
        jvm.process.stdin.close()
        try:
            jvm.process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print("The JVM did not end.", file=sys.stderr)
            return 1
        if not partial.exists():
            print("Java wrote no archive.", file=sys.stderr)
            return 1
        os.replace(partial, archive)
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if jvm is not None:
            jvm.kill()
        partial.unlink(missing_ok=True)
        shutil.rmtree(scratch_dir, ignore_errors=True)


def _on_sigterm(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    raise SystemExit(main())

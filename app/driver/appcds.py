"""Builds the class data archive that makes later JVMs start faster: run as a program of its own, once.

The archive holds the classes that a warm-up loads. Java writes it when the JVM ends in an orderly way.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from app.driver.jvm import start_jvm
from app.driver.session import close_session
from app.driver.warmup import warm_up

_EXIT_TIMEOUT_S = 180.0


def main() -> int:
    """``python -m app.driver.appcds <archive>``; the exit status is 0 if the archive is there at the end."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    if len(sys.argv) != 2:
        print("usage: python -m app.driver.appcds <archive>", file=sys.stderr)
        return 2
    archive = Path(sys.argv[1])
    # Written under another name: whoever looks for the archive must never see half of it.
    partial = archive.with_name(f"{archive.name}.{os.getpid()}.partial")
    scratch_dir = Path(tempfile.mkdtemp(prefix="slotwise-archive-"))
    jvm = start_jvm(
        scratch_dir=scratch_dir,
        inherited_fds=(),
        extra=(f"-XX:ArchiveClassesAtExit={partial}", "-Xlog:cds=off"),
    )
    try:
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
        jvm.kill()
        partial.unlink(missing_ok=True)
        shutil.rmtree(scratch_dir, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())

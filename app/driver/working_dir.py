"""The working directory of a job: where its program, its JVM and the Python workers of its tasks are.

A driver that is started for a job is started there. One that was warm before has to go there, and any driver goes where
its program is when it asks for its first session. A JVM cannot: what it finds by `user.dir`, by Hadoop or by Derby
follows, and a file that Java opens by a relative name does not. So the JVM of a warm driver is in a directory in which
no file can be made: to open one fails, and writes nothing where nobody looks.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext

log = logging.getLogger(__name__)

WAREHOUSE: Final = "spark.sql.warehouse.dir"
_DERBY: Final = "derby.system.home"


def warehouse_in(working_dir: str) -> str:
    """The directory of Spark's own tables. Spark would have the same by itself, if ``working_dir`` has no blanks."""
    return f"file:{os.path.join(working_dir, 'spark-warehouse')}"


def take_jvm(link: Path | None, working_dir: str) -> None:
    """Take a JVM that was started elsewhere to ``working_dir``. ``link``: the `user.dir` of that of a warm driver."""
    if link is not None:
        link.unlink()
        link.symlink_to(working_dir)
    SparkContext._ensure_initialized()
    assert SparkContext._gateway is not None
    jvm: Any = SparkContext._gateway.jvm
    system = jvm.java.lang.System
    before = system.setProperty("user.dir", working_dir)
    if system.getProperty(_DERBY) in (None, before):
        system.setProperty(_DERBY, working_dir)
    hadoop = jvm.org.apache.hadoop
    hadoop.fs.FileSystem.getLocal(hadoop.conf.Configuration()).setWorkingDirectory(
        hadoop.fs.Path(working_dir)
    )


def python_in(directory: Path, working_dir: str) -> Path | None:
    """Make the script in ``directory`` that starts Python workers in ``working_dir``; None if none can be executed
    there. Made before any worker starts by it: once there are some, others may start at any moment."""
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\ncd {shlex.quote(working_dir)} && exec {shlex.quote(sys.executable)} "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o700)
    if os.access(python, os.X_OK):
        return python
    log.warning("Python workers do not start in %s: %s cannot be executed", working_dir, python)
    return None

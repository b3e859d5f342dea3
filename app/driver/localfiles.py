"""Files of this host without Hadoop's child processes.

Without its native library, which PySpark does not bring, Hadoop starts `chmod` for each file that it makes, and
`readlink` four times for each that it renames. Spark makes and renames a file for each state partition in each
micro-batch, and some for its logs: `localfiles.java` does both in the JVM (docs/adr/0013-raw-local-checkpoints.md).
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any, Final

from app.driver.failures import one_line
from app.driver.scala import compiled

log = logging.getLogger(__name__)

CHECKPOINT_FILES: Final = "spark.hadoop.fs.AbstractFileSystem.file.impl"
"""The setting that names what Spark writes checkpoints on a local disk with."""

_PACKAGE: Final = "org.apache.hadoop.fs.local"
HADOOP_CLASS: Final = f"{_PACKAGE}.RawLocalFs"
_CLASS: Final = f"{_PACKAGE}.SlotwiseLocalFs"


def checkpoint_files(jvm: Any, scratch_dir: Path) -> str:
    """The class of `CHECKPOINT_FILES` for a Spark that runs in ``jvm`` alone: other processes do not have it.

    It is defined beside Hadoop's own, since Hadoop looks for it by its name, and tried in ``scratch_dir``. Where that
    fails, it is Hadoop's own.
    """
    try:
        _define(jvm)
        _try(jvm, scratch_dir / "checkpoint-files")
    except Exception as error:
        log.warning(
            "checkpoints are written by Hadoop's own classes, which is slower: %s", one_line(str(error))
        )
        return HADOOP_CLASS
    return _CLASS


def _define(jvm: Any) -> None:
    """Once for a JVM."""
    beside = jvm.java.lang.Class.forName(HADOOP_CLASS)
    loader = beside.getClassLoader()
    with contextlib.suppress(Exception):
        jvm.java.lang.Class.forName(_CLASS, False, loader)
        return
    methods = jvm.java.lang.invoke.MethodHandles
    lookup = methods.privateLookupIn(beside, methods.lookup())
    for code in compiled(jvm, "localfiles.java", loader).getBytecodes().values():
        lookup.defineClass(code)


def _try(jvm: Any, directory: Path) -> None:
    """Make, rename and remove something: what a class lacks shows when it is used."""
    settings = jvm.org.apache.hadoop.conf.Configuration()
    settings.set(CHECKPOINT_FILES.removeprefix("spark.hadoop."), _CLASS)
    files = jvm.org.apache.hadoop.fs.AbstractFileSystem.get(jvm.java.net.URI("file:///"), settings)
    one, other = (jvm.org.apache.hadoop.fs.Path(f"file://{directory}{end}") for end in ("", "-renamed"))
    files.mkdir(one, jvm.org.apache.hadoop.fs.permission.FsPermission("700"), True)
    files.renameInternal(one, other, True)
    files.delete(other, True)

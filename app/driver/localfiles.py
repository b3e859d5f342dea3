"""Files of this host without Hadoop's child processes.

Without its native library, which PySpark does not bring, Hadoop starts `chmod` for each file that it makes, and
`readlink` four times for each that it renames. Spark makes and renames a file for each state partition in each
micro-batch, and some for its logs: `localfiles.java` does both in the JVM (docs/adr/0013-raw-local-checkpoints.md).
"""

from __future__ import annotations

import logging
from typing import Any, Final

from app.driver.janino import compiled

log = logging.getLogger(__name__)

CHECKPOINT_FILES: Final = "spark.hadoop.fs.AbstractFileSystem.file.impl"
"""The setting that names what Spark writes checkpoints on a local disk with."""

_PACKAGE: Final = "org.apache.hadoop.fs.local"
_HADOOPS: Final = f"{_PACKAGE}.RawLocalFs"
_OURS: Final = f"{_PACKAGE}.SlotwiseLocalFs"


def checkpoint_files(jvm: Any) -> str:
    """The class of `CHECKPOINT_FILES` for a Spark that runs in ``jvm`` alone: other processes do not have it.

    It is defined beside Hadoop's own, since Hadoop looks for it by its name. Where that fails, it is Hadoop's own.
    """
    try:
        beside = jvm.java.lang.Class.forName(_HADOOPS)
        loader = beside.getClassLoader()
        if not _is_defined(jvm, loader):
            methods = jvm.java.lang.invoke.MethodHandles
            lookup = methods.privateLookupIn(beside, methods.lookup())
            for code in compiled(jvm, "localfiles.java", loader).getBytecodes().values():
                lookup.defineClass(code)
    except Exception as error:
        log.warning("checkpoints are written by Hadoop's own classes, which is slower: %s", error)
        return _HADOOPS
    return _OURS


def _is_defined(jvm: Any, loader: Any) -> bool:
    try:
        jvm.java.lang.Class.forName(_OURS, False, loader)
    except Exception:
        return False
    return True

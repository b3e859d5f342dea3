"""How many bytes the files of a job's sources have, for the parallelism of the sources."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from app.driver.batch.hadoop import HadoopFiles
from app.model.formats import FILE_FORMATS
from app.model.jobgraph import JobGraph, SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_AT_ONCE = 4
_PATIENCE_S = 10.0
"""A file system that is away lets its clients wait for many minutes; the job need not know."""


def source_bytes(session: SparkSession, graph: JobGraph) -> dict[str, int]:
    """By vertex id, for those sources whose files are found."""
    paths = {
        vertex.id: vertex.operation.path
        for vertex in graph.vertices
        if isinstance(vertex.operation, SourceSpec)
        and vertex.operation.format in FILE_FORMATS
        and vertex.operation.path
    }
    if not paths:
        return {}
    files = HadoopFiles(session)
    default = files.default_scheme
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sizes")
    sizes = {
        vertex_id: pool.submit(_size, files, path, urlsplit(path).scheme or default)
        for vertex_id, path in paths.items()
    }
    pool.shutdown(wait=False)
    done, _ = wait(sizes.values(), timeout=_PATIENCE_S)
    found = {vertex_id: future.result() for vertex_id, future in sizes.items() if future in done}
    return {vertex_id: size for vertex_id, size in found.items() if size is not None}


def _size(files: HadoopFiles, path: str, scheme: str) -> int | None:
    """None if it is not known."""
    try:
        if scheme == "file":
            return local_size(urlsplit(path).path if urlsplit(path).scheme else path)
        return int(files.system(path).getContentSummary(files.path(path)).getLength())
    except Exception as error:
        log.debug("the size of %s is not known: %s", path, error)
        return None


def local_size(path: str) -> int | None:
    """The bytes of a file, or of the data files in a directory; None if it is neither."""
    root = Path(path)
    if root.is_file():
        return root.stat().st_size
    total = 0
    for directory, below, names in os.walk(root):
        # Spark reads no file and no directory of such a name: another job writes there what is not committed yet.
        below[:] = [name for name in below if _is_read(name)]
        for name in filter(_is_read, names):
            try:
                total += os.stat(os.path.join(directory, name)).st_size
            except OSError:
                return None
    return total if root.is_dir() else None


def _is_read(name: str) -> bool:
    return not name.startswith(("_", "."))

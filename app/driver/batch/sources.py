"""What is looked up of a job's sources once, before any region runs: how many bytes their files have, for the
parallelism of the sources, and their schemas."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from app.driver.batch.storage import HadoopFiles
from app.driver.directories import directory_of
from app.driver.session import own_session
from app.driver.sources.opening import read_static
from app.model.formats import FILE_FORMATS
from app.model.jobgraph import JobGraph, JobVertex, SourceSpec

log = logging.getLogger(__name__)

_AT_ONCE = 4
_PATIENCE_S = 10.0
"""A file system that is away lets its clients wait for many minutes; the job need not know."""
# Their files say what is in them. Of other formats Spark may read all the data to find out.
_WITH_FOOTERS = frozenset({"parquet", "orc"})


def source_bytes(session: SparkSession, graph: JobGraph) -> dict[str, int]:
    """The bytes of each source whose files are found, by vertex id."""
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
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sizes")
    sizes = {vertex_id: pool.submit(_size, session, files, path) for vertex_id, path in paths.items()}
    pool.shutdown(wait=False)
    done, _ = wait(sizes.values(), timeout=_PATIENCE_S)
    found = {vertex_id: future.result() for vertex_id, future in sizes.items() if future in done}
    return {vertex_id: size for vertex_id, size in found.items() if size is not None}


def _size(session: SparkSession, files: HadoopFiles, path: str) -> int | None:
    """The bytes of the files at ``path``; None if they are not known."""
    try:
        if (directory := directory_of(session, path)) is not None:
            return local_size(directory)
        return int(files.system(path).getContentSummary(files.path(path)).getLength())
    except Exception as error:
        log.debug("the size of %s is not known: %s", path, error)
        return None


def local_size(root: Path) -> int | None:
    """The bytes of a file, or of the data files in a directory; None if it is neither."""
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


class Schemas:
    """Begins to look when it is made."""

    def __init__(self, session: SparkSession, conf: Mapping[str, str], graph: JobGraph) -> None:
        self._session = own_session(session, conf)
        sources = [
            vertex
            for vertex in graph.vertices
            if isinstance(source := vertex.operation, SourceSpec)
            and source.schema is None
            and source.format in _WITH_FOOTERS
        ]
        self._found: dict[str, Future[StructType]] = {}
        if sources:
            pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="schemas")
            self._found = {vertex.id: pool.submit(self._look, vertex) for vertex in sources}
            pool.shutdown(wait=False)

    def _look(self, vertex: JobVertex) -> StructType:
        return read_static(self._session, vertex).schema

    def schema(self, vertex: JobVertex) -> StructType | None:
        """The schema of a source, None if Spark has to find out when it reads it."""
        future = self._found.get(vertex.id)
        if future is None:
            return None
        try:
            return future.result()
        except Exception as error:
            # The files may have come meanwhile; if not, reading them fails in the same way, where it is answered.
            log.debug("the schema of %s is not known: %s", vertex.name, error)
            return None

"""The schemas of a job's sources, looked up once, before any region runs.

Spark reads a footer in a job of its own, which would wait for tasks of other regions, once more for each region.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from app.driver.session import own_session
from app.driver.sources.opening import read_static
from app.model.jobgraph import JobGraph, JobVertex, SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

# Their files say what is in them. Of other formats Spark may read all the data to find out.
_WITH_FOOTERS = frozenset({"parquet", "orc"})
_AT_ONCE = 4


class Schemas:
    """Begins to look when it is made."""

    def __init__(self, session: SparkSession, conf: Mapping[str, str], graph: JobGraph) -> None:
        self._session = own_session(session, conf)
        sources = [vertex for vertex in graph.vertices if _is_worth_it(vertex)]
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


def _is_worth_it(vertex: JobVertex) -> bool:
    source = vertex.operation
    return isinstance(source, SourceSpec) and source.schema is None and source.format in _WITH_FOOTERS

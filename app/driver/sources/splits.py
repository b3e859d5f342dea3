"""The split of a source's batches into about as many parts as it has tasks.

What reads files asks the session that its stream was made with for this in every batch. So each source has a session of
its own, in which the number can be set while the query runs; a valve behind the source then puts parts together. A
source of ours, which Spark asks for its parts in another process, looks into a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from app.durablefiles import write_whole

_PARTS: Final = "spark.sql.files.minPartitionNum"
_OPEN_COST: Final = "spark.sql.files.openCostInBytes"
_INFERENCE: Final = "spark.sql.streaming.schemaInference"


class Splits:
    """The numbers of parts for one query; one thread calls the methods, while Spark plans batches in another.

    ``conf``: the settings of the job; what it says about this itself holds.
    """

    def __init__(self, conf: Mapping[str, str], parallelism: Mapping[str, int], directory: Path) -> None:
        """``directory``: for the files, which are this query's alone."""
        self._conf = conf
        self._numbers = dict(parallelism)
        self._directory = directory
        self._tell: dict[str, Callable[[str], object]] = {}

    def wanted(self, vertex_id: str) -> int:
        """Into how many parts the batches of a source are to be split, at least."""
        return self._numbers[vertex_id]

    def session(self, vertex_id: str, session: SparkSession) -> SparkSession:
        """The session for the stream of a source of files, with the settings of ``session``."""
        own = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
        # By Spark's own measure, 4 MB a file, small files would all be one part.
        for name, value in ((_OPEN_COST, "1"), (_INFERENCE, "true")):
            if name not in self._conf:
                own.conf.set(name, value)
        if _PARTS not in self._conf:
            self._follow(vertex_id, lambda parts: own.conf.set(_PARTS, parts))
        return own

    def file(self, vertex_id: str) -> Path:
        """The file for a source of ours: it has the number of parts."""
        file = self._directory / vertex_id
        self._directory.mkdir(parents=True, exist_ok=True)
        self._follow(vertex_id, lambda parts: write_whole(file, parts.encode()))
        return file

    def raise_to(self, parallelism: Mapping[str, int]) -> None:
        """Split no batch that is planned from here on into less parts than this; it may be at an older plan."""
        for vertex_id, number in parallelism.items():
            if number > self._numbers[vertex_id]:
                self._set(vertex_id, number)

    def settle(self, parallelism: Mapping[str, int]) -> None:
        """A batch was planned at the newest plan: no later one needs more parts than that says."""
        for vertex_id, number in parallelism.items():
            if number != self._numbers[vertex_id]:
                self._set(vertex_id, number)

    def _follow(self, vertex_id: str, tell: Callable[[str], object]) -> None:
        """``tell`` a source its number from now on."""
        self._tell[vertex_id] = tell
        tell(str(self._numbers[vertex_id]))

    def _set(self, vertex_id: str, number: int) -> None:
        self._numbers[vertex_id] = number
        if tell := self._tell.get(vertex_id):
            tell(str(number))

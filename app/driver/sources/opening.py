"""Opening the sources of a graph: streams and side tables, by Spark's own readers or by ours of numbered rows. Batches
of a stream are split into about as many parts as its source has tasks.

What reads files asks the session that its stream was made with for this in every batch. So each source has a session of
its own, in which the number can be set while the query runs; a valve behind the source then puts parts together. A
source of ours, which Spark asks for its parts in another process, looks into a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from app.driver.failures import DriverError, one_line
from app.driver.needs import require
from app.driver.valves.spark import frame_in
from app.durablefiles import write_whole
from app.model.formats import FILE_FORMATS
from app.model.jobgraph import JobVertex, SourceSpec

_PARTS: Final = "spark.sql.files.minPartitionNum"
_OPEN_COST: Final = "spark.sql.files.openCostInBytes"
_INFERENCE: Final = "spark.sql.streaming.schemaInference"
_SPLIT_OPTIONS: Final = {"kafka": "minPartitions", "rate-micro-batch": "numPartitions"}
"""What says before a query starts into how many parts a batch is to be split at least, if nothing says it later."""
_WITH_SCHEMA: Final = ("avro", "orc", "parquet", "text")
"""Of files that name their columns: those of others would be guessed anew at each start."""


def open_stream(spark: SparkSession, vertex: JobVertex, splits: Splits) -> DataFrame:
    """A streaming DataFrame of ``vertex`` in ``spark``.

    Raises:
        DriverError: an option, the path or the schema is wrong. The message names it.
    """
    source = _source(vertex)
    if source.format == "rate":
        return _open_rate(spark, vertex, source, splits)
    if source.format not in FILE_FORMATS:
        return _loaded(vertex, source, spark.readStream, with_split_option(source, splits.wanted(vertex.id)))
    own = splits.session(vertex.id, spark, infers=source.format in _WITH_SCHEMA)
    frame = _loaded(vertex, source, own.readStream, dict(source.options))
    return frame_in(spark, frame._jdf.queryExecution().analyzed())


def with_split_option(source: SourceSpec, parts: int) -> dict[str, str]:
    """The options of ``source``, and, where its format has an option for that, into how many parts it is to split."""
    options = dict(source.options)
    wanted = _SPLIT_OPTIONS.get(source.format.lower(), "")
    if wanted and wanted.lower() not in {name.lower() for name in options}:
        options[wanted] = str(parts)
    return options


def read_static(spark: SparkSession, vertex: JobVertex, schema: StructType | None = None) -> DataFrame:
    """A side table, read by Spark's own reader of its format. ``schema``: of the files, if it is known already.

    Raises:
        DriverError: Spark refuses the format, an option, the path or the schema.
    """
    source = _source(vertex)
    return _loaded(vertex, source, spark.read, dict(source.options), schema)


def _source(vertex: JobVertex) -> SourceSpec:
    assert isinstance(vertex.operation, SourceSpec), f"vertex {vertex.name} is not a source"
    return vertex.operation


def _loaded(
    vertex: JobVertex,
    source: SourceSpec,
    reader: Any,
    options: dict[str, str],
    schema: StructType | None = None,
) -> DataFrame:
    """What Spark's own reader makes of a source, batch or streaming."""
    try:
        reader = reader.format(source.format).options(**options)
        chosen = schema if source.schema is None else source.schema
        if chosen is not None:
            reader = reader.schema(chosen)
        frame: DataFrame = reader.load(source.path) if source.path is not None else reader.load()
    except (PySparkException, Py4JJavaError) as error:
        raise _refused(vertex, _why_not_loaded(source, error)) from error
    return frame


def _why_not_loaded(source: SourceSpec, error: PySparkException | Py4JJavaError) -> str:
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    if condition == "PATH_NOT_FOUND":
        return f"there is no directory or file {source.path}."
    if condition == "UNABLE_TO_INFER_SCHEMA":
        return (
            f"{source.path} has no {source.format} file from which the columns could be read; give a schema."
        )
    return f"Spark cannot read it as {source.format}: {_first_line(error)}"


def _open_rate(spark: SparkSession, vertex: JobVertex, source: SourceSpec, splits: Splits) -> DataFrame:
    require(vertex, "a source of format rate", ("numpy", "pyarrow"), since="4.2")
    from app.driver.sources.rate import PARTS_FILE, START_MS, RateSource

    spark.dataSource.register(RateSource)
    reader = spark.readStream.format(RateSource.name()).options(**dict(source.options))
    reader = reader.option(START_MS, str(time.time_ns() // 1_000_000))
    return reader.option(PARTS_FILE, str(splits.file(vertex.id))).load()


def _first_line(error: Exception) -> str:
    # PySpark leaves some Java exceptions as they are, of which the text begins with the call that failed.
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return one_line(str(text).strip().split("\n")[0], 400)


def _refused(vertex: JobVertex, why: str) -> DriverError:
    return DriverError(f"Source {vertex.name}: {why}", vertex=vertex.name)


class Splits:
    """The numbers of parts for one query; one thread calls the methods, while Spark plans batches in another.

    ``conf``: the settings of the job; what it says about this itself holds.
    """

    def __init__(self, conf: Mapping[str, str], parallelism: Mapping[str, int], directory: Path) -> None:
        """``directory``: for the files, which are this query's alone."""
        self._conf = conf
        self._numbers = dict(parallelism)
        self.directory = directory
        self._tell: dict[str, Callable[[str], object]] = {}

    def move_to(self, directory: Path) -> None:
        """The sources of frames that are made from here on have their files there; those of earlier ones are gone."""
        self.directory, self._tell = directory, {}

    def wanted(self, vertex_id: str) -> int:
        """Into how many parts the batches of a source are to be split, at least."""
        return self._numbers[vertex_id]

    def session(self, vertex_id: str, session: SparkSession, *, infers: bool = False) -> SparkSession:
        """The session for the stream of a source of files, with the settings of ``session``. ``infers``: Spark may take
        the columns from the files."""
        own = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
        # By Spark's own measure, 4 MB a file, small files would all be one part.
        for name, value in ((_OPEN_COST, "1"), (_INFERENCE, str(infers).lower())):
            if name not in self._conf:
                own.conf.set(name, value)
        if _PARTS not in self._conf:
            self._follow(vertex_id, lambda parts: own.conf.set(_PARTS, parts))
        return own

    def file(self, vertex_id: str) -> Path:
        """The file for a source of ours: it has the number of parts."""
        file = self.directory / vertex_id
        self.directory.mkdir(parents=True, exist_ok=True)
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

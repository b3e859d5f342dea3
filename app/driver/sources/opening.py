"""Opening the streaming sources: what `app.driver.sources` offers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from app.driver.failures import DriverError, one_line
from app.driver.sources import state_directory
from app.driver.sources.control import ControlFile, SourceSide
from app.driver.sources.errors import SourceError
from app.driver.sources.files import FileSource, side_options, spec_to_text
from app.driver.sources.listing import find_files, path_of
from app.driver.sources.rate import RateSource, rate_options_text
from app.driver.sources.slices import ReadSpec
from app.model.jobgraph import JobVertex, SourceSpec
from app.model.source_options import (
    FILE_FORMATS,
    RATE_FORMATS,
    FileOptions,
    OptionErrors,
    parse_file_options,
    parse_rate_options,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def register_all(spark: SparkSession) -> None:
    """Make the built-in sources known to a session."""
    spark.dataSource.register(FileSource)
    spark.dataSource.register(RateSource)


def open_stream(
    spark: SparkSession, vertex: JobVertex, control: ControlFile, query_key: str, checkpoint_dir: Path
) -> DataFrame:
    """A streaming DataFrame of ``vertex``. ``checkpoint_dir`` is the checkpoint of the query that reads it.

    A built-in format needs `register_all` before, and a published plan before the query starts.

    Raises:
        DriverError: an option, the path or the schema is wrong. The message names it.
    """
    source = _source(vertex)
    if source.format in FILE_FORMATS:
        return _open_files(spark, vertex, source, control, query_key, checkpoint_dir)
    if source.format in RATE_FORMATS:
        return _open_rate(spark, vertex, source, control, query_key, checkpoint_dir)
    return _loaded(vertex, source, spark.readStream)


def read_static(spark: SparkSession, vertex: JobVertex, schema: StructType | None = None) -> DataFrame:
    """A side table, read by Spark's own reader of its format. ``schema``: of the files, if it is known already.

    Raises:
        DriverError: Spark refuses the format, an option, the path or the schema.
    """
    return _loaded(vertex, _source(vertex), spark.read, schema)


def _source(vertex: JobVertex) -> SourceSpec:
    assert isinstance(vertex.operation, SourceSpec), f"vertex {vertex.name} is not a source"
    return vertex.operation


def _loaded(
    vertex: JobVertex, source: SourceSpec, reader: Any, schema: StructType | str | None = None
) -> DataFrame:
    """What Spark's own reader makes of a source, batch or streaming."""
    try:
        reader = reader.format(source.format).options(**dict(source.options))
        schema = schema if source.schema is None else source.schema
        if schema is not None:
            reader = reader.schema(schema)
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


def _open_files(
    spark: SparkSession,
    vertex: JobVertex,
    source: SourceSpec,
    control: ControlFile,
    query_key: str,
    checkpoint_dir: Path,
) -> DataFrame:
    try:
        options = parse_file_options(source.format, dict(source.options))
    except OptionErrors as errors:
        raise _refused(vertex, str(errors)) from None
    if source.path is None:
        raise _refused(vertex, f"a {source.format} source needs a path: a directory or a file.")
    root = Path(source.path)
    if not root.exists():
        raise _refused(vertex, f"there is no directory or file {root}.")
    schema = _schema(vertex, source, root, options)
    _check_types(vertex, source.format, schema)
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spec = ReadSpec(vertex.name, FILE_FORMATS[source.format], options, zone)
    reader = spark.readStream.format(FileSource.name()).schema(schema)
    own = {"spec": spec_to_text(spec), "root": str(root.absolute())}
    return reader.options(**own, **_common_options(vertex, control, query_key, checkpoint_dir)).load()


def _open_rate(
    spark: SparkSession,
    vertex: JobVertex,
    source: SourceSpec,
    control: ControlFile,
    query_key: str,
    checkpoint_dir: Path,
) -> DataFrame:
    try:
        options = parse_rate_options(source.format, dict(source.options))
    except OptionErrors as errors:
        raise _refused(vertex, str(errors)) from None
    for name, value in (("path", source.path), ("schema", source.schema)):
        if value is not None:
            raise _refused(vertex, f"the source {source.format} takes no {name}.")
    reader = spark.readStream.format(RateSource.name())
    own = {"spec": rate_options_text(options), "kind": source.format}
    return reader.options(**own, **_common_options(vertex, control, query_key, checkpoint_dir)).load()


def _common_options(
    vertex: JobVertex, control: ControlFile, query_key: str, checkpoint_dir: Path
) -> dict[str, str]:
    side = SourceSide(control.directory, vertex.id, vertex.name, query_key)
    return {**side_options(side), "state_dir": str(state_directory(checkpoint_dir, vertex.id))}


def _schema(vertex: JobVertex, source: SourceSpec, root: Path, options: FileOptions) -> StructType:
    if source.schema is not None:
        try:
            parsed = StructType.fromDDL(source.schema)
        except PySparkException as error:
            raise _refused(vertex, f"the schema is not a Spark DDL text: {_first_line(error)}") from None
        if not isinstance(parsed, StructType) or not parsed.fields:
            raise _refused(vertex, f"the schema {source.schema!r} names no columns.")
        # As for Spark's own file sources, every column may be null, whatever the schema says.
        nullable = StructType.fromJson(_nullable(json.loads(parsed.json())))
        return nullable
    if source.format == "text":
        return StructType([StructField("value", StringType())])
    if source.format == "parquet":
        return _parquet_schema(vertex, root, options)
    raise _refused(vertex, f"a {source.format} source needs a schema, for example: id BIGINT, name STRING.")


def _parquet_schema(vertex: JobVertex, root: Path, options: FileOptions) -> StructType:
    """The schema of the first file."""
    try:
        found = find_files(root, (), glob=options.glob, recursive=options.recursive)
        if not found:
            raise _refused(vertex, f"{root} holds no file yet, so the source needs a schema.")
        path = path_of(root, found[0].name)
        with parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            arrow = file.schema_arrow
            leaves = [file.schema.column(index) for index in range(len(file.schema))]
            physical = {leaf.path: leaf.physical_type for leaf in leaves}
    except (SourceError, OSError, pa.ArrowException) as error:
        raise _refused(vertex, f"the schema cannot be read from a file: {one_line(str(error))}") from None
    # Spark's INT96 is an instant; Arrow cannot tell it from a local time.
    fields = [
        pa.field(f.name, pa.timestamp("us", "UTC"))
        if physical.get(f.name) == "INT96"
        else pa.field(f.name, f.type)
        for f in arrow
    ]
    return from_arrow_schema(pa.schema(fields))


def _check_types(vertex: JobVertex, file_format: str, schema: StructType) -> None:
    """Refuse columns that the format cannot be decoded into."""
    if file_format == "text" and not (len(schema) == 1 and isinstance(schema[0].dataType, StringType)):
        raise _refused(vertex, "a text source has one column of type STRING.")
    try:
        arrow = to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise _refused(vertex, _first_line(error)) from None
    for field, kind in zip(schema.fields, arrow.types, strict=True):
        if file_format != "parquet" and not _decodable(file_format, field.dataType, kind):
            name = field.dataType.simpleString()
            raise _refused(
                vertex, f"column {field.name}: a {file_format} source cannot read values of type {name}."
            )


def _decodable(file_format: str, spark_type: DataType, kind: pa.DataType) -> bool:
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    plain = plain or pa.types.is_boolean(kind) or pa.types.is_string(kind)
    if plain:
        return True
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return True
    if file_format == "csv":
        return bool(pa.types.is_binary(kind))
    # Inside arrays and structs there are no dates: those are read as texts first, column by column.
    if isinstance(spark_type, MapType):
        return False
    if isinstance(spark_type, ArrayType):
        inner = [(spark_type.elementType, kind.value_type)]
    elif isinstance(spark_type, StructType):
        inner = [(f.dataType, kind.field(i).type) for i, f in enumerate(spark_type.fields)]
    else:
        return False
    return all(not pa.types.is_temporal(k) and _decodable(file_format, s, k) for s, k in inner)


def _nullable(value: Any) -> Any:
    if isinstance(value, dict):
        flags = ("nullable", "containsNull", "valueContainsNull")
        return {key: True if key in flags else _nullable(item) for key, item in value.items()}
    return [_nullable(item) for item in value] if isinstance(value, list) else value


def _first_line(error: Exception) -> str:
    # PySpark leaves some Java exceptions as they are, of which the text begins with the call that failed.
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return one_line(str(text).strip().split("\n")[0], 400)


def _refused(vertex: JobVertex, why: str) -> DriverError:
    return DriverError(f"Source {vertex.name}: {why}", vertex=vertex.name)

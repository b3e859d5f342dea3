"""The columns of a table: what each Spark type becomes on its way to a database.

On the way, in staged Parquet files, values have types that no setting of Spark's can bend: a date is a number of
days, a timestamp a number of microseconds. `arrow_column` makes typed values of them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


class Kind(Enum):
    """What a column holds, as far as a database is concerned."""

    BOOLEAN = "boolean"
    SMALLINT = "smallint"
    INTEGER = "integer"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    TEXT = "text"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``precision`` and ``scale`` are those of a decimal."""

    name: str
    kind: Kind
    precision: int = 0
    scale: int = 0


class UnknownType(Exception):
    """A column has a type that no database column is known for."""

    def __init__(self, column: str, type_name: str) -> None:
        super().__init__(f"column {column} has the type {type_name}")
        self.column = column
        self.type_name = type_name


_BY_NAME = {
    "boolean": Kind.BOOLEAN,
    "tinyint": Kind.SMALLINT,
    "smallint": Kind.SMALLINT,
    "int": Kind.INTEGER,
    "bigint": Kind.BIGINT,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "binary": Kind.BINARY,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamp_ntz": Kind.TIMESTAMP_NTZ,
    "variant": Kind.JSON,
    "void": Kind.TEXT,
}
_BY_PREFIX = {
    "decimal": Kind.DECIMAL,
    "string": Kind.TEXT,
    "char": Kind.TEXT,
    "varchar": Kind.TEXT,
    "interval": Kind.TEXT,
    "time(": Kind.TIME,
    "array": Kind.JSON,
    "map": Kind.JSON,
    "struct": Kind.JSON,
}

_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "ignoreNullFields": "false",
}


def table_columns(frame: DataFrame) -> tuple[TableColumn, ...]:
    """The columns of ``frame``.

    Raises:
        UnknownType: one of them cannot be stored.
    """
    return tuple(_table_column(each.name, each.dataType) for each in frame.schema.fields)


def _table_column(name: str, data_type: DataType) -> TableColumn:
    text = data_type.simpleString()
    kind = _BY_NAME.get(text) or next(
        (kind for start, kind in _BY_PREFIX.items() if text.startswith(start)), None
    )
    if kind is None:
        raise UnknownType(name, text)
    if kind is Kind.DECIMAL:
        decimal: Any = data_type
        return TableColumn(name, kind, decimal.precision, decimal.scale)
    return TableColumn(name, kind)


def staged(frame: DataFrame, columns: tuple[TableColumn, ...], *, binary_as_hex: bool) -> DataFrame:
    """``frame`` with the types in which it is staged. Columns are called c0, c1, ...: any name will do in a table."""
    numbered = frame.toDF(*(f"c{index}" for index in range(len(columns))))
    return numbered.select(
        *(_staged(f"c{index}", column.kind, binary_as_hex) for index, column in enumerate(columns))
    )


def _staged(name: str, kind: Kind, binary_as_hex: bool) -> Column:
    from pyspark.sql import functions as f

    column = f.col(name)
    match kind:
        case Kind.TIMESTAMP:
            column = f.unix_micros(column)
        case Kind.DATE:
            column = f.unix_date(column)
        case Kind.JSON:
            column = f.to_json(column, _JSON_OPTIONS)
        case Kind.TEXT | Kind.TIME:
            column = column.cast("string")
        case Kind.BINARY if binary_as_hex:
            column = f.concat(f.lit("\\x"), f.hex(column))
        case _:
            pass
    return column.alias(name)


def arrow_column(array: pa.Array, kind: Kind) -> pa.Array:
    """A staged column with its own type again: dates and timestamps, the latter in UTC."""
    import pyarrow as pa

    match kind:
        case Kind.TIMESTAMP:
            return array.cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        case Kind.TIMESTAMP_NTZ:
            return array.cast(pa.timestamp("us"))
        case Kind.DATE:
            return array.cast(pa.int32()).cast(pa.date32())
        case _:
            return array

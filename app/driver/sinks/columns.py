"""The columns of a table: what each Spark type becomes on its way to a database.

On the way, in staged Parquet files, values have types that no setting of Spark's can bend: a date is a number of
days, a timestamp a number of microseconds. `arrow_column` makes typed values of them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``kind`` is what it holds, as far as a database is concerned: a name of `_KINDS`, or ``decimal(p,s)``."""

    name: str
    kind: str


class UnknownType(Exception):
    """A column of a type that no database column is known for; which, in words."""


_KINDS = frozenset(
    {"boolean", "smallint", "int", "bigint", "float", "double", "text", "binary", "date", "time", "timestamp"}
    | {"timestamp_ntz", "json"}
)
_BY_NAME = {"tinyint": "smallint", "variant": "json", "void": "text"}
_BY_PREFIX = {
    "string": "text",
    "char": "text",
    "varchar": "text",
    "interval": "text",
    "time(": "time",
    "array": "json",
    "map": "json",
    "struct": "json",
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
    return tuple(
        TableColumn(each.name, _kind_of(each.name, each.dataType.simpleString()))
        for each in frame.schema.fields
    )


def _kind_of(column: str, type_name: str) -> str:
    if type_name in _KINDS or type_name.startswith("decimal"):
        return type_name
    if type_name in _BY_NAME:
        return _BY_NAME[type_name]
    found = next((kind for start, kind in _BY_PREFIX.items() if type_name.startswith(start)), None)
    if found is None:
        raise UnknownType(f"the column {column} of type {type_name}")
    return found


def staged(frame: DataFrame, columns: tuple[TableColumn, ...], *, binary_as_hex: bool) -> DataFrame:
    """``frame`` with the types in which it is staged. Columns are called c0, c1, ...: any name will do in a table."""
    numbered = frame.toDF(*(f"c{index}" for index in range(len(columns))))
    return numbered.select(
        *(_staged(f"c{index}", column.kind, binary_as_hex) for index, column in enumerate(columns))
    )


def _staged(name: str, kind: str, binary_as_hex: bool) -> Column:
    column = f.col(name)
    match kind:
        case "timestamp":
            column = f.unix_micros(column)
        case "date":
            column = f.unix_date(column)
        case "json":
            column = f.to_json(column, _JSON_OPTIONS)
        case "text" | "time":
            column = column.cast("string")
        case "binary" if binary_as_hex:
            column = f.concat(f.lit("\\x"), f.hex(column))
        case _:
            pass
    return column.alias(name)


def arrow_column(array: pa.Array, kind: str) -> pa.Array:
    """A staged column with its own type again: dates and timestamps, the latter in UTC."""
    import pyarrow as pa

    match kind:
        case "timestamp":
            return array.cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        case "timestamp_ntz":
            return array.cast(pa.timestamp("us"))
        case "date":
            return array.cast(pa.int32()).cast(pa.date32())
        case _:
            return array

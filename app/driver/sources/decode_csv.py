"""CSV to Arrow."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pyarrow.csv as arrow_csv

from app.driver.sources.decode import arrow_type_name, empty_row, excerpt, instants
from app.driver.sources.errors import SourceError
from app.driver.sources.records import TextShape
from app.model.source_options import CsvOptions

_INSTANT = pa.timestamp("us", "UTC")
_BLOCK_LIMIT = 1 << 26


def csv_shape(options: CsvOptions) -> TextShape:
    quote = ord(options.quote) if options.quote else None
    return TextShape(quote=quote, sep=ord(options.sep), header=options.header)


def header_names(record: bytes, options: CsvOptions) -> tuple[str, ...]:
    """The column names in a header record."""
    return tuple(_values(record, options))


def file_columns(place: str, header: bytes | None, schema: pa.Schema, options: CsvOptions) -> tuple[str, ...]:
    """The names of a file's columns in their order: those of its header, else those of the schema.

    A header's name stands for the schema's column of that name, without regard to case if there is no exact match.

    Raises:
        SourceError: the header lacks a column of the schema, or has it twice.
    """
    if header is None:
        return tuple(schema.names)
    try:
        names = list(header_names(header, options))
    except UnicodeDecodeError:
        raise SourceError(f"{place}: the header is not UTF-8 text.") from None
    for wanted in schema.names:
        exact = [index for index, name in enumerate(names) if name == wanted]
        close = [index for index, name in enumerate(names) if name.strip().lower() == wanted.lower()]
        chosen = exact or close
        if len(chosen) != 1:
            problem = "has no column" if not chosen else "has more than one column"
            raise SourceError(
                f"{place}: the header {problem} {wanted}; it names {excerpt(', '.join(names), 300)}."
            )
        names[chosen[0]] = wanted
    return tuple(names)


class CsvDecoder:
    """Decodes records whose columns are ``columns`` into ``schema``."""

    def __init__(self, schema: pa.Schema, columns: tuple[str, ...], options: CsvOptions, zone: str) -> None:
        self.shape = csv_shape(options)
        self._schema = schema
        self._columns = columns
        self._options = options
        self._zone = zone

    def parse(self, data: bytes) -> pa.Table:
        return self._parse(data, self._schema)

    def salvage(self, record: bytes) -> pa.Table:
        values = self._texts(record)
        if values is None:
            return empty_row(self._schema)
        values = (values + [""] * len(self._columns))[: len(self._columns)]
        whole = self._written(values)
        columns = []
        for field in self._schema:
            try:
                columns.append(self._parse(whole, pa.schema([field])).column(0))
            except pa.ArrowInvalid:
                columns.append(pa.nulls(1, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def explain(self, record: bytes) -> str:
        values = self._texts(record)
        if values is None:
            return "the row is not UTF-8 text."
        if len(values) != len(self._columns):
            shown = excerpt(record.decode("utf-8", "replace"))
            return (
                f"the row has {len(values)} values, but {len(self._columns)} columns are expected: {shown}."
            )
        whole = self._written(values)
        for field in self._schema:
            try:
                self._parse(whole, pa.schema([field]))
            except pa.ArrowInvalid:
                value = excerpt(values[self._columns.index(field.name)])
                return f"column {field.name}: {value} is not {arrow_type_name(field.type)}."
        return f"the row cannot be read: {excerpt(record.decode('utf-8', 'replace'))}."

    def _parse(self, data: bytes, schema: pa.Schema) -> pa.Table:
        if not data:
            return schema.empty_table()
        # A text and its offset decide together which instant it is, so timestamps are read as texts first.
        types = {field.name: pa.string() if field.type == _INSTANT else field.type for field in schema}
        options = self._options
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(
                column_names=list(self._columns),
                use_threads=False,
                block_size=min(len(data) + 1, _BLOCK_LIMIT),
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=options.sep,
                quote_char=options.quote or False,
                newlines_in_values=bool(options.quote),
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=schema.names,
                null_values=["", options.null_value],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        ).combine_chunks()
        columns = [
            instants(_one(column), self._zone) if field.type == _INSTANT else column
            for field, column in zip(schema, table.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _texts(self, record: bytes) -> list[str] | None:
        try:
            return _values(record, self._options)
        except UnicodeDecodeError:
            return None

    def _written(self, values: list[str]) -> bytes:
        """The values as one record with the same options."""
        options = self._options
        if not options.quote:
            return (options.sep.join(values) + "\n").encode()
        output = io.StringIO()
        csv.writer(
            output, delimiter=options.sep, quotechar=options.quote, quoting=csv.QUOTE_ALL, lineterminator="\n"
        ).writerow(values)
        return output.getvalue().encode()


def _values(record: bytes, options: CsvOptions) -> list[str]:
    text = record.decode("utf-8").removesuffix("\r")
    if not options.quote:
        return text.split(options.sep)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=options.sep, quotechar=options.quote)
    return next(rows, [])


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)

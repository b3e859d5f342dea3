"""Lines of JSON and lines of text to Arrow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.json as arrow_json

from app.driver.sources.decode import arrow_type_name, empty_row, excerpt, instants
from app.driver.sources.records import TextShape

_INSTANT = pa.timestamp("us", "UTC")
_AS_TEXT = frozenset({_INSTANT, pa.timestamp("us"), pa.date32()})

JSON_SHAPE = TextShape(json=True)
TEXT_SHAPE = TextShape(keep_blank=True)


class JsonDecoder:
    """Decodes one JSON object per line. Members that the schema does not name are left out."""

    def __init__(self, schema: pa.Schema, zone: str) -> None:
        self.shape = JSON_SHAPE
        self._schema = schema
        self._zone = zone

    def parse(self, data: bytes) -> pa.Table:
        return self._parse(data, self._schema)

    def salvage(self, record: bytes) -> pa.Table:
        if not isinstance(_loaded(record), dict):
            return empty_row(self._schema)
        columns = []
        for field in self._schema:
            try:
                columns.append(self._parse(record, pa.schema([field])).column(0))
            except pa.ArrowInvalid:
                columns.append(pa.nulls(1, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def explain(self, record: bytes) -> str:
        shown = excerpt(record.decode("utf-8", "replace"))
        value = _loaded(record)
        if not isinstance(value, dict):
            return f"not a JSON object: {shown}."
        for field in self._schema:
            try:
                self._parse(record, pa.schema([field]))
            except pa.ArrowInvalid:
                found = excerpt(json.dumps(value.get(field.name)))
                return f"column {field.name}: {found} is not {arrow_type_name(field.type)}."
        return f"the line cannot be read: {shown}."

    def _parse(self, data: bytes, schema: pa.Schema) -> pa.Table:
        if not data:
            return schema.empty_table()
        asked = [pa.field(f.name, pa.string() if f.type in _AS_TEXT else f.type) for f in schema]
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(asked), unexpected_field_behavior="ignore"
            ),
        ).combine_chunks()
        columns = []
        for field in schema:
            column = pa.concat_arrays(table.column(field.name).chunks)
            if field.type == _INSTANT:
                column = instants(column, self._zone)
            columns.append(column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=schema)


class TextDecoder:
    """Each line is a row with one column."""

    def __init__(self, schema: pa.Schema) -> None:
        self.shape = TEXT_SHAPE
        self._schema = schema

    def parse(self, data: bytes) -> pa.Table:
        lines = data.removesuffix(b"\n").split(b"\n") if data else []
        values = pa.array([line.removesuffix(b"\r") for line in lines], pa.binary())
        return pa.Table.from_arrays([values.cast(self._schema.field(0).type)], schema=self._schema)

    def salvage(self, record: bytes) -> pa.Table:
        return empty_row(self._schema)

    def explain(self, record: bytes) -> str:
        return f"not UTF-8 text: {excerpt(record.decode('utf-8', 'replace'))}."


def _loaded(record: bytes) -> Any:
    try:
        return json.loads(record)
    except ValueError:
        return None

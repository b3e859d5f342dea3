"""Streams of CSV, JSON, Parquet and text files, as a Python data source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from app.driver.sources.control import SourceSide
from app.driver.sources.planner import FilePlanner
from app.driver.sources.reader import Part, RowReader, spare_collector
from app.driver.sources.slices import ReadSpec, Slice, read_slice
from app.model.source_options import CsvOptions, FileFormat, FileOptions


class FileSource(DataSource):
    """Registered under `name`; `app.driver.sources.open_stream` is what fills in the options."""

    @classmethod
    def name(cls) -> str:
        return "slotwise-files"

    def streamReader(self, schema: StructType) -> FileReader:
        return FileReader(self.options, to_arrow_schema(schema, timezone="UTC"))


class FileReader(RowReader):
    """Reads files by rows; see `app.driver.sources.planner`."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        super().__init__(side_from(options))
        self._spec = spec_from_text(options["spec"])
        self._schema = schema
        self._root = options["root"]
        self._state_dir = options["state_dir"]

    @cached_property
    def _planner(self) -> FilePlanner:
        return FilePlanner(self._spec, self._schema, Path(self._root), Path(self._state_dir), self._side)

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.look_no_more()

    def latest_row(self, start: int, *, limited: bool) -> int:
        return self._planner.latest_row(start, limited=limited)

    def divide(self, start: int, end: int, parallelism: int) -> Sequence[object]:
        return self._planner.divide(start, end, parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part) and isinstance(partition.content, tuple)
        for piece in partition.content:
            assert isinstance(piece, Slice)
            yield from read_slice(self._spec, self._schema, piece)
        spare_collector()


def side_options(side: SourceSide) -> dict[str, str]:
    """What `side_from` needs, as options of a data source."""
    return {
        "control": str(side.directory),
        "vertex_id": side.vertex_id,
        "vertex_name": side.vertex_name,
        "query_key": side.query_key,
    }


def side_from(options: Mapping[str, str]) -> SourceSide:
    return SourceSide(
        Path(options["control"]), options["vertex_id"], options["vertex_name"], options["query_key"]
    )


def spec_to_text(spec: ReadSpec) -> str:
    """Options of a data source are texts, so the checked options travel as one."""
    return json.dumps(asdict(spec))


def spec_from_text(text: str) -> ReadSpec:
    value = json.loads(text)
    options = value["options"]
    checked = FileOptions(**{**options, "csv": CsvOptions(**options["csv"])})
    file_format: FileFormat = value["format"]
    return ReadSpec(value["vertex_name"], file_format, checked, value["zone"])

"""What a task reads: slices of files. They travel from the planner to the tasks, so they are small and plain."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from app.driver.sources.decode import Decoder, Window, arrow_type_name, decode
from app.driver.sources.decode_csv import CsvDecoder
from app.driver.sources.decode_json import JsonDecoder, TextDecoder
from app.driver.sources.errors import SourceError
from app.driver.sources.records import open_bytes, read_range
from app.model.source_options import FileFormat, FileOptions

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file as it was taken in. ``columns`` are the names of its columns, for CSV."""

    path: str
    size: int
    mtime_ns: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """``take`` rows of a file after the first ``skip`` of the ``rows`` that begin within [``begin``, ``end``).

    Of Parquet the unit is the whole file: ``begin`` and ``end`` are not used.
    """

    file: FileRef
    begin: int
    end: int
    rows: int
    skip: int
    take: int


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """How the tasks of a source decode its files."""

    vertex_name: str
    format: FileFormat
    options: FileOptions
    zone: str


def read_slice(spec: ReadSpec, schema: pa.Schema, piece: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of a slice.

    Raises:
        SourceError: the file changed or disappeared since it was taken in, or a row is malformed.
    """
    prefix = f"Source {spec.vertex_name}: the file {piece.file.path}"
    check_unchanged(prefix, piece.file)
    if spec.format == "parquet":
        yield from _read_parquet(prefix, schema, piece)
        return

    def place(position: int) -> str:
        return f"{prefix}, line {_line_number(piece, position)}"

    data = read_range(Path(piece.file.path), piece.begin, piece.end)
    window = Window(data, piece.rows, piece.skip, piece.take)
    for table in decode(_decoder(spec, schema, piece), window, spec.options.mode, place):
        yield from table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
    # Looked at again, because it may have been replaced while it was read.
    check_unchanged(prefix, piece.file)


def check_unchanged(prefix: str, file: FileRef) -> None:
    """Raises SourceError if a file is not what it was when it was taken in."""
    try:
        status = os.stat(file.path)
    except OSError as error:
        raise SourceError(
            f"{prefix} was taken in but cannot be read any more ({error.strerror}). A file must stay where it is "
            f"until its rows are committed."
        ) from None
    if (status.st_size, status.st_mtime_ns) != (file.size, file.mtime_ns):
        raise SourceError(
            f"{prefix} changed after it was taken in: it had {file.size} bytes and has {status.st_size}, or was "
            f"written again. Put new rows into a new file, and move a file in when it is complete."
        )


def _decoder(spec: ReadSpec, schema: pa.Schema, piece: Slice) -> Decoder:
    if spec.format == "csv":
        return CsvDecoder(schema, piece.file.columns, spec.options.csv, spec.zone)
    return JsonDecoder(schema, spec.zone) if spec.format == "json" else TextDecoder(schema)


def _line_number(piece: Slice, position: int) -> int:
    content = open_bytes(Path(piece.file.path))
    return bytes(content[: piece.begin + position]).count(b"\n") + 1


def _read_parquet(prefix: str, schema: pa.Schema, piece: Slice) -> Iterator[pa.RecordBatch]:
    try:
        with parquet.ParquetFile(piece.file.path, coerce_int96_timestamp_unit="us") as file:
            groups, skip = _row_groups(file.metadata, piece.skip, piece.take)
            names = [name for name in schema.names if name in file.schema_arrow.names]
            left = piece.take
            batches = file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names, use_threads=False)
            for batch in batches:
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                wanted = batch.slice(skip, left)
                skip = 0
                left -= wanted.num_rows
                yield conform(prefix, wanted, schema)
                if left == 0:
                    break
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{prefix} cannot be read as Parquet: {' '.join(str(error).split())}.") from None


def _row_groups(metadata: parquet.FileMetaData, first: int, count: int) -> tuple[list[int], int]:
    """The row groups that hold rows ``first`` and on, and how many rows of them come before it."""
    groups: list[int] = []
    skip = 0
    begin = 0
    for index in range(metadata.num_row_groups):
        end = begin + metadata.row_group(index).num_rows
        if begin < first + count and end > first:
            if not groups:
                skip = first - begin
            groups.append(index)
        begin = end
    return groups, skip


def conform(prefix: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``batch`` in the source's schema: columns by name, nulls for those that the file lacks.

    Raises:
        SourceError: a value does not fit its column.
    """
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(
                f"{prefix}, column {field.name}: values of type {column.type} cannot be read as "
                f"{arrow_type_name(field.type)}: {' '.join(str(error).split())}."
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)

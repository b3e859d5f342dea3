"""Records of text files to Arrow, fast when all are well formed, and exact about the one that is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from app.driver.sources.errors import SourceError
from app.driver.sources.records import TextShape, record_bounds
from app.model.source_options import Mode

_ZONED = r"(?:[Zz]|[+-]\d\d:?\d\d)$"


class Decoder(Protocol):
    """What is particular to a format."""

    shape: TextShape

    def parse(self, data: bytes) -> pa.Table:
        """All records of ``data`` in the source's schema. Raises pyarrow.ArrowInvalid if one is malformed."""

    def salvage(self, record: bytes) -> pa.Table:
        """One row of what can be used of a malformed record, nulls for the rest."""

    def explain(self, record: bytes) -> str:
        """What is wrong with a malformed record, to follow "line 7: "."""


@dataclass(frozen=True, slots=True)
class Window:
    """``data`` holds ``rows`` records, of which ``take`` are wanted after the first ``skip``."""

    data: bytes
    rows: int
    skip: int
    take: int


def decode(decoder: Decoder, window: Window, mode: Mode, place: Callable[[int], str]) -> list[pa.Table]:
    """The wanted records as tables. ``place`` names the file and line of a position within the data.

    Raises:
        SourceError: a record is malformed and the mode is FAILFAST; it says where and why.
    """
    try:
        table = decoder.parse(window.data)
        if table.num_rows == window.rows:
            return [table.slice(window.skip, window.take)]
    except pa.ArrowInvalid:
        pass  # The culprit may lie outside the wanted rows: another slice's, or not released yet.
    starts, ends = record_bounds(window.data, decoder.shape, 0)
    if len(starts) != window.rows:
        raise SourceError(
            f"{place(0)}: {window.rows} records were here when the file was taken in, now {len(starts)}."
        )
    wanted = slice(window.skip, window.skip + window.take)
    bounds = list(zip(starts[wanted].tolist(), ends[wanted].tolist(), strict=True))
    found: list[pa.Table] = []
    _decode_halves(decoder, window.data, bounds, mode, place, found)
    return found


def _decode_halves(
    decoder: Decoder,
    data: bytes,
    bounds: Sequence[tuple[int, int]],
    mode: Mode,
    place: Callable[[int], str],
    found: list[pa.Table],
) -> None:
    """Decode in ever smaller parts until each malformed record stands alone: log2(n) passes for one of n."""
    if not bounds:
        return
    try:
        table = decoder.parse(b"".join(data[begin:end] + b"\n" for begin, end in bounds))
        if table.num_rows == len(bounds):
            found.append(table)
            return
    except pa.ArrowInvalid:
        pass
    if len(bounds) > 1:
        middle = len(bounds) // 2
        _decode_halves(decoder, data, bounds[:middle], mode, place, found)
        _decode_halves(decoder, data, bounds[middle:], mode, place, found)
        return
    begin, end = bounds[0]
    if mode == "FAILFAST":
        raise SourceError(f"{place(begin)}: {decoder.explain(data[begin:end])}")
    if mode == "PERMISSIVE":
        found.append(decoder.salvage(data[begin:end]))


def instants(texts: pa.Array, zone: str) -> pa.Array:
    """ISO 8601 texts as points in time. A text without an offset is local time of ``zone``, the session's."""
    target = pa.timestamp("us", "UTC")
    trimmed = pc.utf8_trim_whitespace(texts)
    zoned = pc.match_substring_regex(trimmed, _ZONED)
    some = pc.any(zoned).as_py()
    if not some:
        return _local(trimmed, zone)
    if pc.all(zoned).as_py() and not trimmed.null_count:
        return trimmed.cast(target)
    nothing = pa.scalar(None, pa.string())
    with_offset = pc.if_else(zoned, trimmed, nothing).cast(target)
    without = _local(pc.if_else(zoned, nothing, trimmed), zone)
    return pc.coalesce(with_offset, without)


def _local(texts: pa.Array, zone: str) -> pa.Array:
    naive = texts.cast(pa.timestamp("us"))
    # As Java does: a time that occurs twice is the earlier one, one that is skipped moves on.
    local = pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="latest")
    return local.cast(pa.timestamp("us", "UTC"))


def arrow_type_name(kind: pa.DataType) -> str:
    """An Arrow type by its name in Spark's DDL, with its article."""
    names = {
        pa.int8(): "a TINYINT",
        pa.int16(): "a SMALLINT",
        pa.int32(): "an INT",
        pa.int64(): "a BIGINT",
        pa.float32(): "a FLOAT",
        pa.float64(): "a DOUBLE",
        pa.bool_(): "a BOOLEAN",
        pa.string(): "a STRING",
        pa.date32(): "a DATE",
        pa.timestamp("us"): "a TIMESTAMP_NTZ",
        pa.timestamp("us", "UTC"): "a TIMESTAMP",
    }
    if pa.types.is_decimal(kind):
        return f"a DECIMAL({kind.precision},{kind.scale})"
    return names.get(kind, f"a value of type {kind}")


def empty_row(schema: pa.Schema) -> pa.Table:
    """One row of nulls."""
    return pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)


def excerpt(text: str, limit: int = 80) -> str:
    """A value of a file as it is shown in a message."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")

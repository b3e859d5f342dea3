"""Where the records of a text file begin: what makes one large file divisible, exactly, by row number.

One look at the bytes of a file finds the end of every record (a line break inside quotes is none) and keeps the
position of every 64th record. A task that needs rows a to b then reads only the bytes around them.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.driver.sources.errors import SourceError

STEP = 64
"""A position is kept for every 64th record: 8 bytes per 64 rows held, at most 126 rows read in vain per slice."""

_BLOCK = 1 << 22
_NEWLINE, _RETURN, _BRACE = 10, 13, 123
_BOM = b"\xef\xbb\xbf"

Bytes = bytes | memoryview
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextShape:
    """How records are told apart. ``quote`` and ``sep`` are byte values; quote None: line breaks always end one.

    ``keep_blank``: an empty line is a record (text), else it is nothing (csv, json). ``header``: the first record
    holds names.
    """

    quote: int | None = None
    sep: int = 44
    keep_blank: bool = False
    header: bool = False
    json: bool = False


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """Rows of a file. ``sampled[i]`` is where row ``i * STEP`` begins; ``end`` is the size in bytes."""

    rows: int
    sampled: Positions
    end: int
    header: bytes | None = None

    def span(self, first: int, last: int) -> tuple[int, int, int, int]:
        """The bytes to read for rows ``first`` to ``last`` (exclusive): first byte, end, rows in them, rows to skip."""
        low = first // STEP
        high = -(-last // STEP)
        begin = int(self.sampled[low])
        end = int(self.sampled[high]) if high < len(self.sampled) else self.end
        return begin, end, min(high * STEP, self.rows) - low * STEP, first - low * STEP


def is_compressed(path: Path) -> bool:
    return path.suffix == ".gz"


def open_bytes(path: Path) -> Bytes:
    """The content of ``path``, decompressed: mapped, not read, unless it is compressed. It closes when unused."""
    with open(path, "rb") as file:
        if is_compressed(path):
            try:
                return gzip.decompress(file.read())
            except (OSError, EOFError, zlib.error) as error:
                raise SourceError(f"The file {path} is not a whole gzip file: {error}.") from None
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_range(path: Path, begin: int, end: int) -> bytes:
    """Bytes ``begin`` to ``end`` of the decompressed content."""
    if is_compressed(path):
        return bytes(open_bytes(path)[begin:end])
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read(end - begin)


def index_records(content: Bytes, shape: TextShape) -> RecordIndex:
    """Find all records of a file's content."""
    start = len(_BOM) if bytes(content[:3]) == _BOM else 0
    starts, ends = record_bounds(content, shape, start)
    header = None
    if shape.header and len(starts):
        header = bytes(content[int(starts[0]) : int(ends[0])]).rstrip(b"\r")
        starts = starts[1:]
    return RecordIndex(len(starts), starts[::STEP].copy(), len(content), header)


def split_records(content: bytes, shape: TextShape) -> list[bytes]:
    """The records of a part of a file that begins and ends between two records."""
    starts, ends = record_bounds(content, shape, 0)
    return [content[begin:end] for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def record_bounds(content: Bytes, shape: TextShape, start: int) -> tuple[Positions, Positions]:
    """First byte and end (before the line break) of every record from ``start`` on."""
    if start >= len(content):
        nothing = np.empty(0, np.int64)
        return nothing, nothing
    data = np.frombuffer(content, np.uint8)
    ends = _record_ends(data, shape, start)
    if ends is None:
        ends = _ends_one_by_one(content, shape, start)
    if not len(ends) or int(ends[-1]) != len(data) - 1 or data[-1] != _NEWLINE:
        # The last record has no line break behind it.
        ends = np.append(ends, np.int64(len(data)))
    starts = np.concatenate((np.array([start], np.int64), ends[:-1] + 1))
    if shape.keep_blank:
        return starts, ends
    lengths = ends - starts
    blank = (lengths == 0) | ((lengths == 1) & (data[np.minimum(starts, len(data) - 1)] == _RETURN))
    if shape.json:
        blank |= _blank_lines(content, data, starts, ends)
    if blank.any():
        starts, ends = starts[~blank], ends[~blank]
    return starts, ends


def _record_ends(data: NDArray[np.uint8], shape: TextShape, start: int) -> Positions | None:
    """Positions of the line breaks outside quotes; None if a quote stands where it opens or closes nothing.

    A line break is outside quotes if an even number of quotes precedes it. That holds for doubled quotes as well,
    but not for a lone quote within an unquoted value, so each quote's neighbours are looked at.
    """
    found: list[Positions] = []
    before = 0
    for offset in range(start, len(data), _BLOCK):
        block = data[offset : offset + _BLOCK]
        breaks = np.flatnonzero(block == _NEWLINE) + offset
        if shape.quote is not None:
            quotes = np.flatnonzero(block == shape.quote) + offset
            if not _well_placed(data, quotes, before, shape, start):
                return None
            if len(quotes):
                breaks = breaks[(np.searchsorted(quotes, breaks) + before) % 2 == 0]
            elif before % 2:
                breaks = breaks[:0]
            before += len(quotes)
        found.append(breaks)
    if before % 2:
        return None
    return np.concatenate(found).astype(np.int64, copy=False)


def _well_placed(
    data: NDArray[np.uint8], quotes: Positions, before: int, shape: TextShape, start: int
) -> bool:
    openers = quotes[before % 2 :: 2]
    closers = quotes[1 - before % 2 :: 2]
    left = data[np.maximum(openers - 1, 0)]
    opens = (openers == start) | (left == shape.sep) | (left == _NEWLINE) | (left == shape.quote)
    right = data[np.minimum(closers + 1, len(data) - 1)]
    closes = (closers == len(data) - 1) | (right == shape.sep) | (right == _NEWLINE) | (right == _RETURN)
    return bool(opens.all()) and bool((closes | (right == shape.quote)).all())


def _ends_one_by_one(content: Bytes, shape: TextShape, start: int) -> Positions:
    """As `_record_ends`, value by value: for files with lone quotes inside values. Some 10 MB/s."""
    assert shape.quote is not None
    value = _value_pattern(shape.quote, shape.sep)
    ends: list[int] = []
    position = start
    while position < len(content):
        match = value.match(content, position)
        assert match is not None, "every part of the pattern may be empty"
        if match.end() == match.start(1):
            break  # the end of the content: the caller adds the last record
        if match.group(1) == b"\n":
            ends.append(match.start(1))
        position = match.end()
    return np.array(ends, np.int64)


def _value_pattern(quote_sign: int, sep_sign: int) -> re.Pattern[bytes]:
    quote, sep = re.escape(bytes([quote_sign])), re.escape(bytes([sep_sign]))
    return re.compile(
        b"(?:%b[^%b]*+(?:%b%b[^%b]*+)*+(?:%b|\\Z))?+[^%b\n]*+(%b|\n|\\Z)"
        % (quote, quote, quote, quote, quote, quote, sep, sep)
    )


def _blank_lines(
    content: Bytes, data: NDArray[np.uint8], starts: Positions, ends: Positions
) -> NDArray[np.bool_]:
    """Lines of white space, which are not records of JSON. Only lines that do not begin with a brace can be."""
    blank = np.zeros(len(starts), np.bool_)
    for index in np.flatnonzero(data[np.minimum(starts, len(data) - 1)] != _BRACE).tolist():
        blank[index] = not bytes(content[int(starts[index]) : int(ends[index])]).strip()
    return blank

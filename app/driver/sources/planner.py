"""How far a file source may go, and how a micro-batch of it is divided. Runs in Spark's planner process.

An offset is a number of rows. Before an offset goes to Spark, the files that it reaches into are in the durable log,
so whatever Spark wrote into its own offset log can be read again, row for row, at any parallelism.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from app.driver.sources.control import SourceSide
from app.driver.sources.decode_csv import csv_shape, file_columns
from app.driver.sources.decode_json import JSON_SHAPE, TEXT_SHAPE
from app.driver.sources.durable import read_durable, write_durably
from app.driver.sources.errors import SourceError
from app.driver.sources.filelog import FileLog, LoggedFile
from app.driver.sources.listing import FoundFile, find_files, path_of
from app.driver.sources.records import RecordIndex, TextShape, index_records, is_compressed, open_bytes
from app.driver.sources.release import ReleaseClock
from app.driver.sources.slices import FileRef, ReadSpec, Slice, check_unchanged

_LOOK_EVERY_S = 0.1
_LOOK_SHARE = 10
_SLICE_ROWS = 131_072
_INDEXES_KEPT = 64


@dataclass(frozen=True, slots=True)
class _Opened:
    """What is known of a file that was looked into: its reference, its rows, and where they are (text formats)."""

    file: FileRef
    rows: int
    index: RecordIndex | None


class FilePlanner:
    """The planner of one file source in one query."""

    def __init__(
        self,
        spec: ReadSpec,
        schema: pa.Schema,
        root: Path,
        state_dir: Path,
        side: SourceSide,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._spec = spec
        self._schema = schema
        self._root = root
        self._state_dir = state_dir
        self._side = side
        self._now_ms = now_ms
        self._log = FileLog(state_dir / "files.log")
        self._waiting: deque[FoundFile] = deque()
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._next_look_s = 0.0
        self._only = self._finite_names()
        self._look_ended = False
        self._clock = self._stored_clock()

    def latest_row(self, start: int, *, limited: bool) -> int:
        """The number of rows up to which the next batch may read.

        ``limited`` False: all that there is now, whatever the options say (Spark's Trigger.Once and AvailableNow).

        Raises:
            SourceError: the checkpoint's log is damaged, or files cannot be read.
        """
        self._log.check(start)
        if self._side.draining():
            return start
        self._look()
        now_ms = self._now_ms()
        end = self._take_in(start, now_ms) if limited else self._take_in_all()
        end = max(start, end)
        nothing_left = not self._waiting and end == self._log.rows
        self._side.report_status(
            backlog=self._backlog(end, now_ms),
            exhausted=self._spec.options.finite and nothing_left and end == start,
        )
        if nothing_left and end == start:
            self._stop_clock(now_ms)
        return end

    def look_no_more(self) -> None:
        """From now on there are only the files that are here (Trigger.AvailableNow)."""
        self._look()
        self._look_ended = True

    def divide(self, start: int, end: int, parallelism: int) -> list[tuple[Slice, ...]]:
        """Rows ``start`` to ``end`` in ``parallelism`` parts of the same number of rows (differing by one)."""
        self._log.check(end)
        bounds = [start + (end - start) * part // parallelism for part in range(parallelism + 1)]
        return [tuple(self._slices(first, last)) for first, last in pairwise(bounds)]

    # Taking in

    def _look(self) -> None:
        """Look for new files, if there is time: often when idle, rarely when listing is slow or there is plenty."""
        now_s = time.monotonic()
        if self._look_ended or now_s < self._next_look_s:
            return
        options = self._spec.options
        if self._only is not None and len(self._log.files) >= len(self._only):
            return
        found = find_files(
            self._root, self._log.names, glob=options.glob, recursive=options.recursive, only=self._only
        )
        if options.finite and self._only is None:
            self._only = frozenset(file.name for file in found)
            write_durably(self._state_dir / "finite.json", {"files": sorted(self._only)})
        # Files that were found earlier keep their place: the order is by name within one look.
        waiting = {file.name for file in self._waiting}
        current = {file.name: file for file in found}
        self._waiting = deque(current[file.name] for file in self._waiting if file.name in current)
        self._waiting.extend(file for file in found if file.name not in waiting)
        if self._waiting:
            self._start_clock()
        self._next_look_s = time.monotonic() + max(_LOOK_EVERY_S, _LOOK_SHARE * (time.monotonic() - now_s))

    def _take_in(self, start: int, now_ms: int) -> int:
        options, log, clock = self._spec.options, self._log, self._clock
        end = start + options.max_rows_per_trigger
        last_file = log.file_of(start) + options.max_files_per_trigger
        # A query that reads what is there and ends (AvailableNow) would take a pause of the rate for the end.
        if options.rows_per_second is not None and not self._look_ended:
            end = min(end, clock.rows_released(options.rows_per_second, now_ms))
        if options.files_per_second is not None and not self._look_ended:
            last_file = min(last_file, clock.files_released(options.files_per_second, now_ms))
        new: list[LoggedFile] = []
        rows = log.rows
        while self._waiting and rows < end and len(log.files) + len(new) < last_file:
            file = self._open_found(self._waiting.popleft())
            if file is not None:
                new.append(file)
                rows += file.rows
        log.append(new)
        return min(end, log.first_row(min(last_file, len(log.files))))

    def _take_in_all(self) -> int:
        opened = (self._open_found(file) for file in self._waiting)
        self._log.append([file for file in opened if file is not None])
        self._waiting.clear()
        return self._log.rows

    def _open_found(self, found: FoundFile) -> LoggedFile | None:
        path = path_of(self._root, found.name)
        try:
            opened = self._open(FileRef(str(path), found.size, found.mtime_ns))
        except FileNotFoundError:
            return None  # It went away before it was taken in.
        return LoggedFile(found.name, found.size, found.mtime_ns, opened.rows)

    # Looking into files

    def _open(self, file: FileRef) -> _Opened:
        """Count a file's rows, or remember them. Raises FileNotFoundError, SourceError."""
        opened = self._opened.get(file.path)
        if opened is not None and (opened.file.size, opened.file.mtime_ns) == (file.size, file.mtime_ns):
            self._opened.move_to_end(file.path)
            return opened
        opened = self._count(file)
        self._opened[file.path] = opened
        while len(self._opened) > _INDEXES_KEPT:
            self._opened.popitem(last=False)
        return opened

    def _count(self, file: FileRef) -> _Opened:
        path = Path(file.path)
        place = f"Source {self._spec.vertex_name}: the file {path}"
        try:
            if self._spec.format == "parquet":
                return _Opened(file, parquet.read_metadata(path).num_rows, None)
            index = index_records(open_bytes(path), self._shape())
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{place} cannot be read: {' '.join(str(error).split())}.") from None
        columns: tuple[str, ...] = ()
        if self._spec.format == "csv" and index.rows:
            columns = file_columns(place, index.header, self._schema, self._spec.options.csv)
        return _Opened(replace(file, columns=columns), index.rows, index)

    def _shape(self) -> TextShape:
        if self._spec.format == "csv":
            return csv_shape(self._spec.options.csv)
        return JSON_SHAPE if self._spec.format == "json" else TEXT_SHAPE

    def _slices(self, first: int, last: int) -> Iterable[Slice]:
        log = self._log
        while first < last:
            number = log.file_of(first)
            begin = log.first_row(number)
            until = min(last, log.ends[number])
            yield from self._file_slices(log.files[number], first - begin, until - begin)
            first = until

    def _file_slices(self, logged: LoggedFile, first: int, last: int) -> Iterable[Slice]:
        path = path_of(self._root, logged.name)
        prefix = f"Source {self._spec.vertex_name}: the file {path}"
        reference = FileRef(str(path), logged.size, logged.mtime_ns)
        check_unchanged(prefix, reference)
        opened = self._open(reference)
        if opened.rows != logged.rows:
            raise SourceError(
                f"{prefix} had {logged.rows} rows when it was taken in and has {opened.rows} now: an option that "
                f"tells rows apart (header, quote, sep) changed, which needs a new checkpoint."
            )
        if opened.index is None:
            yield Slice(opened.file, 0, 0, opened.rows, first, last - first)
            return
        # A compressed file is decompressed for every slice.
        step = last - first if is_compressed(path) else _SLICE_ROWS
        for low in range(first, last, step):
            high = min(low + step, last)
            begin, end, rows, skip = opened.index.span(low, high)
            yield Slice(opened.file, begin, end, rows, skip, high - low)

    # The finite set, the clock, the backlog

    def _finite_names(self) -> frozenset[str] | None:
        stored = read_durable(self._state_dir / "finite.json") if self._spec.options.finite else None
        return frozenset(stored["files"]) if stored is not None else None

    @property
    def _rates(self) -> list[float | None]:
        return [self._spec.options.rows_per_second, self._spec.options.files_per_second]

    @property
    def _has_rate(self) -> bool:
        return any(self._rates)

    def _stored_clock(self) -> ReleaseClock:
        stored = read_durable(self._state_dir / "clock.json") if self._has_rate else None
        if stored is None or stored["rates"] != self._rates:
            return ReleaseClock(self._now_ms(), self._log.rows, len(self._log.files), idle=True)
        return ReleaseClock(stored["anchorMs"], stored["row"], stored["file"], stored["idle"])

    def _start_clock(self) -> None:
        if self._clock.idle:
            self._set_clock(ReleaseClock(self._now_ms(), self._log.rows, len(self._log.files)))

    def _stop_clock(self, now_ms: int) -> None:
        if not self._clock.idle:
            self._set_clock(ReleaseClock(now_ms, self._log.rows, len(self._log.files), idle=True))

    def _set_clock(self, clock: ReleaseClock) -> None:
        self._clock = clock
        if self._has_rate:
            write_durably(
                self._state_dir / "clock.json",
                {
                    "anchorMs": clock.anchor_ms,
                    "row": clock.row,
                    "file": clock.file,
                    "idle": clock.idle,
                    "rates": self._rates,
                },
            )

    def _backlog(self, end: int, now_ms: int) -> int | None:
        """Rows that are released and beyond ``end``; those of unopened files are guessed from their sizes."""
        log, options, clock = self._log, self._spec.options, self._clock
        waiting_bytes = sum(file.size for file in self._waiting)
        if waiting_bytes and not log.size_bytes:
            return None
        rows = log.rows + (waiting_bytes * log.rows // log.size_bytes if log.size_bytes else 0)
        if options.rows_per_second is not None:
            rows = min(rows, clock.rows_released(options.rows_per_second, now_ms))
        if options.files_per_second is not None:
            released = clock.files_released(options.files_per_second, now_ms)
            if released <= len(log.files):
                rows = min(rows, log.first_row(released))
            elif log.files:
                rows = min(rows, released * log.rows // len(log.files))
        return max(0, rows - end)

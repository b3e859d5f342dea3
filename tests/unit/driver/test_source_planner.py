"""The planner of file sources without Spark: what is taken in, released, divided, and remembered after a crash."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from app.driver.sources import planner as planner_module
from app.driver.sources.control import ControlFile, SourceSide
from app.driver.sources.decode_json import TEXT_SHAPE
from app.driver.sources.errors import SourceError
from app.driver.sources.filelog import FileLog, LoggedFile
from app.driver.sources.planner import FilePlanner
from app.driver.sources.records import split_records
from app.driver.sources.release import ReleaseClock
from app.driver.sources.slices import ReadSpec, read_slice
from app.model.source_options import (
    FileFormat,
    FileOptions,
    OptionErrors,
    parse_file_options,
    parse_rate_options,
)

TEXT = pa.schema([("value", pa.string())])


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(planner_module, "_LOOK_SHARE", 0)


class Place:
    """A source of text files on a clock of its own."""

    def __init__(self, directory: Path, file_format: FileFormat = "text", schema: pa.Schema = TEXT) -> None:
        self.root = directory / "in"
        self.root.mkdir()
        self.state = directory / "checkpoint" / "slotwise-source-v"
        self.control = ControlFile(directory / "control")
        self.control.publish(1, {"v": 1})
        self.now_ms = 1_000_000
        self.format: FileFormat = file_format
        self.schema = schema

    def put(self, name: str, *values: object) -> None:
        (self.root / name).write_text("".join(f"{value}\n" for value in values))

    def planner(self, **options: object) -> FilePlanner:
        spec = ReadSpec("src", self.format, FileOptions(**options), "UTC")  # type: ignore[arg-type]
        side = SourceSide(self.control.directory, "v", "src", "q")
        return FilePlanner(spec, self.schema, self.root, self.state, side, lambda: self.now_ms)

    def rows(self, planner: FilePlanner, start: int, end: int, parallelism: int = 1) -> list[object]:
        spec = ReadSpec("src", self.format, FileOptions(), "UTC")
        parts = planner.divide(start, end, parallelism)
        assert len(parts) == parallelism
        batches = [
            batch for part in parts for piece in part for batch in read_slice(spec, self.schema, piece)
        ]
        return [row[self.schema.names[0]] for batch in batches for row in batch.to_pylist()]

    @property
    def backlog(self) -> int | None:
        return self.control.backlog("v", "q")

    @property
    def exhausted(self) -> bool:
        return self.control.exhausted("v", "q")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_files_are_read_once_in_the_order_of_their_names_within_a_look(place: Place) -> None:
    place.put("b", 1, 2)
    place.put("a", 0)
    place.put("_hidden", "no")
    place.put(".hidden", "no")
    planner = place.planner()
    assert planner.latest_row(0, limited=True) == 3
    place.put("aa", 3)
    assert planner.latest_row(3, limited=True) == 4
    assert place.rows(planner, 0, 4) == ["0", "1", "2", "3"]
    assert place.planner().latest_row(4, limited=True) == 4


@pytest.mark.parametrize("seed", range(15))
def test_every_row_once_over_random_limits_parallelism_and_restarts(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    place = Place(tmp_path)
    expected: list[str] = []

    def more_files(count: int) -> None:
        for _ in range(count):
            number = len(list(place.root.iterdir()))
            values = [f"{number}-{row}" for row in range(chance.choice([0, 1, 50, 300]))]
            place.put(f"f{number:03}", *values)
            expected.extend(values)

    more_files(5)
    done: list[object] = []
    planner = place.planner(max_rows_per_trigger=90, max_files_per_trigger=2)
    while len(done) < len(expected) or len(expected) < 2000:
        start = len(done)
        end = planner.latest_row(start, limited=True)
        if chance.random() < 0.3:
            planner = place.planner(max_rows_per_trigger=chance.randint(1, 200), max_files_per_trigger=2)
        rows = place.rows(planner, start, end, chance.randint(1, 9))
        # The same batch again, in other parts, after a crash: the same rows.
        assert place.rows(place.planner(), start, end, chance.randint(1, 9)) == rows
        done += rows
        if len(expected) < 2000 and chance.random() < 0.5:
            more_files(1)
    assert done == expected


def test_limits_of_rows_and_files(place: Place) -> None:
    for name in "abcd":
        place.put(name, *range(10))
    assert place.planner(max_rows_per_trigger=7).latest_row(0, limited=True) == 7
    assert place.planner(max_files_per_trigger=2).latest_row(0, limited=True) == 20
    assert place.planner(max_files_per_trigger=2).latest_row(15, limited=True) == 30
    assert place.planner(max_files_per_trigger=1, max_rows_per_trigger=7).latest_row(3, limited=True) == 10
    assert place.planner(max_rows_per_trigger=7).latest_row(0, limited=False) == 40


def test_a_log_line_that_no_offset_names_is_used_by_the_next_one(place: Place) -> None:
    place.put("a", 0, 1)
    place.planner().latest_row(0, limited=True)
    # Killed before Spark wrote the offset: the query starts at 0 again, and meanwhile an earlier name appeared.
    place.put("Earlier", "late")
    planner = place.planner()
    assert place.rows(planner, 0, planner.latest_row(0, limited=True)) == ["0", "1", "late"]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_of_the_log_is_dropped(place: Place, cut: int) -> None:
    place.put("a", 0, 1)
    place.put("b", 2)
    place.planner().latest_row(0, limited=True)
    log = place.state / "files.log"
    os.truncate(log, log.stat().st_size - cut)
    planner = place.planner()
    assert place.rows(planner, 0, planner.latest_row(2, limited=True)) == ["0", "1", "2"]
    assert [file.name for file in FileLog(log).files] == ["a", "b"]
    place.put("c", 3)
    planner.latest_row(3, limited=True)
    assert [file.name for file in FileLog(log).files] == ["a", "b", "c"], "its line is one of its own"


def test_a_planner_that_is_not_alone_takes_in_no_file_twice(place: Place) -> None:
    late, current = place.planner(), place.planner()
    place.put("a", 0, 1)
    assert late.latest_row(0, limited=True) == 2
    with pytest.raises(SourceError, match="was written by another process"):
        current.latest_row(0, limited=True)
    assert place.planner().latest_row(0, limited=True) == 2


def test_a_log_that_does_not_reach_the_offset_is_refused(place: Place) -> None:
    place.put("a", 0, 1)
    place.planner().latest_row(0, limited=True)
    (place.state / "files.log").unlink()
    with pytest.raises(SourceError, match="knows 0 rows, but the query stands at row 2"):
        place.planner().latest_row(2, limited=True)


def test_the_log_is_durable_before_the_offset_is_returned(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    place.put("a", 0)
    place.planner().latest_row(0, limited=True)
    log = str(place.state / "files.log")
    assert log in synced and str(place.state) in synced[synced.index(log) :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda path: path.write_text("0\n1\n2\n"),
            "changed after it was taken in: it had 4 bytes and has 6",
        ),
        (lambda path: os.utime(path, ns=(1, 1)), "changed after it was taken in"),
        (lambda path: path.unlink(), "cannot be read any more"),
    ],
)
def test_a_file_that_changed_or_went_away_is_refused(
    place: Place, change: Callable[[Path], object], message: str
) -> None:
    place.put("a", 0, 1)
    planner = place.planner()
    end = planner.latest_row(0, limited=True)
    pieces = [piece for part in planner.divide(0, end, 1) for piece in part]
    change(place.root / "a")
    with pytest.raises(SourceError, match=message):
        list(read_slice(ReadSpec("src", "text", FileOptions(), "UTC"), TEXT, pieces[0]))
    for again in (planner, place.planner()):
        with pytest.raises(SourceError, match=message):
            again.divide(0, end, 1)
    # Once its rows are committed, nobody asks for it any more.
    assert planner.divide(end, end, 2) == [(), ()]


def test_rows_are_released_at_the_rate_also_across_a_restart(place: Place) -> None:
    place.put("a", *range(100))
    planner = place.planner(rows_per_second=10.0)
    assert planner.latest_row(0, limited=True) == 0
    place.now_ms += 1_550
    assert planner.latest_row(0, limited=True) == 15
    place.now_ms += 1_000
    assert place.planner(rows_per_second=10.0).latest_row(15, limited=True) == 25
    place.now_ms -= 60_000
    assert place.planner(rows_per_second=10.0).latest_row(25, limited=True) == 25
    assert place.planner(rows_per_second=10.0).latest_row(25, limited=False) == 100


def test_the_clock_of_the_rate_stands_while_there_is_nothing(place: Place) -> None:
    place.put("a", *range(5))
    planner = place.planner(rows_per_second=10.0)
    planner.latest_row(0, limited=True)
    place.now_ms += 60_000
    assert planner.latest_row(0, limited=True) == 5
    assert planner.latest_row(5, limited=True) == 5
    place.now_ms += 60_000
    place.put("b", *range(100))
    planner = place.planner(rows_per_second=10.0)
    assert planner.latest_row(5, limited=True) == 5
    place.now_ms += 1_000
    assert planner.latest_row(5, limited=True) == 15


def test_files_are_released_whole_at_their_rate(place: Place) -> None:
    for name in "abcd":
        place.put(name, 1, 2)
    planner = place.planner(files_per_second=2.0)
    assert planner.latest_row(0, limited=True) == 2
    place.now_ms += 499
    assert planner.latest_row(2, limited=True) == 2
    place.now_ms += 1
    assert planner.latest_row(2, limited=True) == 4
    place.now_ms += 60_000
    assert planner.latest_row(4, limited=True) == 8


def test_a_query_that_ends_by_itself_reads_what_is_there_without_regard_to_the_rate(place: Place) -> None:
    place.put("a", *range(10))
    planner = place.planner(rows_per_second=0.001, max_rows_per_trigger=6)
    planner.look_no_more()
    place.put("b", 99)
    assert planner.latest_row(0, limited=True) == 6
    assert planner.latest_row(6, limited=True) == 10
    assert planner.latest_row(10, limited=True) == 10


def test_a_finite_source_ends_with_the_files_of_its_first_look(place: Place) -> None:
    place.put("a", 0, 1)
    place.put("b", 2)
    planner = place.planner(finite=True, max_files_per_trigger=1)
    assert planner.latest_row(0, limited=True) == 2
    place.put("c", 3)
    assert not place.exhausted
    planner = place.planner(finite=True)
    assert planner.latest_row(2, limited=True) == 3
    assert not place.exhausted, "the last batch is not committed yet"
    assert planner.latest_row(3, limited=True) == 3
    assert place.exhausted
    assert place.planner(finite=False).latest_row(3, limited=True) == 4


def test_draining_and_backlog(place: Place) -> None:
    place.put("a", *range(10, 20))
    place.put("b", *range(10, 40))
    planner = place.planner(max_files_per_trigger=1)
    assert planner.latest_row(0, limited=True) == 10
    assert place.backlog == 30
    place.control.set_draining(True)
    assert planner.latest_row(10, limited=True) == 10
    place.control.set_draining(False)
    assert planner.latest_row(10, limited=True) == 40
    assert place.backlog == 0
    limited = place.planner(rows_per_second=1.0, max_rows_per_trigger=1)
    limited.latest_row(40, limited=True)
    place.put("c", *range(100))
    limited.latest_row(40, limited=True)
    place.now_ms += 10_000
    assert limited.latest_row(40, limited=True) == 41
    assert place.backlog == 9, "only what is released counts"


def test_the_directory_must_exist_and_may_be_a_file(place: Place, tmp_path: Path) -> None:
    place.put("a", 0)
    place.root = place.root / "a"
    planner = place.planner()
    assert planner.latest_row(0, limited=True) == 1
    assert place.rows(planner, 0, 1) == ["0"]
    place.root = tmp_path / "nowhere"
    with pytest.raises(SourceError, match="nowhere cannot be listed: No such file or directory"):
        place.planner().latest_row(1, limited=True)


def test_subdirectories_and_patterns(place: Place) -> None:
    (place.root / "x").mkdir()
    place.put("x/a.txt", 1)
    place.put("b.txt", 0)
    place.put("c.tmp", "no")
    assert place.planner(glob="*.txt").latest_row(0, limited=True) == 1
    planner = place.planner(glob="*.txt", recursive=True)
    assert place.rows(planner, 0, planner.latest_row(1, limited=True)) == ["0", "1"]


def test_parquet_rows_of_several_row_groups(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("new", pa.string())])
    place = Place(tmp_path, "parquet", schema)
    for number in range(3):
        table = pa.table(
            {"more": ["x"] * 100, "id": pa.array(range(number * 100, number * 100 + 100), pa.int32())}
        )
        parquet.write_table(table, place.root / f"{number}.parquet", row_group_size=30)
    planner = place.planner()
    assert planner.latest_row(0, limited=True) == 300
    for parallelism in (1, 2, 7, 300):
        assert place.rows(planner, 0, 300, parallelism) == list(range(300))
    assert place.rows(planner, 95, 131, 3) == list(range(95, 131))
    parquet.write_table(pa.table({"id": ["x"]}), place.root / "9.parquet")
    with pytest.raises(SourceError, match="column id: values of type string cannot be read as a BIGINT"):
        place.rows(planner, 300, planner.latest_row(300, limited=True))


def test_row_counts_that_no_longer_agree_with_the_log_are_refused(place: Place) -> None:
    place.put("a", 0, 1)
    planner = place.planner()
    planner.latest_row(0, limited=True)
    log = place.state / "files.log"
    file = FileLog(log).files[0]
    log.unlink()
    FileLog(log).append([LoggedFile(file.name, file.size, file.mtime_ns, 3)])
    with pytest.raises(SourceError, match=r"had 3 rows when it was taken in and has 2 now: an option"):
        place.planner().divide(0, 2, 1)


def test_text_shape_counts_what_it_splits() -> None:
    assert split_records(b"a\n\nb", TEXT_SHAPE) == [b"a", b"", b"b"]


def test_the_release_clock() -> None:
    clock = ReleaseClock(1_000, row=5, file=1)
    assert clock.rows_released(2.0, 2_400) == 7
    assert clock.files_released(2.0, 2_400) == 4
    assert ReleaseClock(1_000, row=5, idle=True).rows_released(2.0, 9_000) == 5


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "maxFilesPerTrigger",
            "0",
            "Option maxFilesPerTrigger should be a whole number above 0, found '0'",
        ),
        ("rowsPerSecond", "nan", "should be a number above 0"),
        ("header", "yes", "Option header should be true or false, found 'yes'"),
        ("sep", ",,", "Option sep"),
        ("mode", "LENIENT", "FAILFAST, PERMISSIVE or DROPMALFORMED"),
        ("escape", "!", "Option escape is not an option of a streaming csv source.* Allowed are .*nullValue"),
    ],
)
def test_wrong_options_of_files(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionErrors, match=message):
        parse_file_options("csv", {name: value})


def test_options() -> None:
    given = {"HEADER": "True", "sep": r"\t", "nullvalue": "NA", "finite": "true", "rowsPerSecond": "2.5"}
    options = parse_file_options("csv", given)
    assert (options.csv.header, options.csv.sep, options.csv.null_value) == (True, "\t", "NA")
    assert (options.finite, options.rows_per_second) == (True, 2.5)
    with pytest.raises(OptionErrors) as errors:
        parse_rate_options("rate", {"rowsPerBatch": "1", "rowCount": "-1"})
    assert len(errors.value.faults) == 2
    assert parse_rate_options("rate", {"rowsPerSecond": "1000000"}).max_rows_per_trigger == 10_000_000

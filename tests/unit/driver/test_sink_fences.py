"""What keeps a writer that was thought dead from writing a batch again or over a newer one: files and SQLite tables."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from app.driver.failures import DriverError, Fenced
from app.driver.sinks import files
from app.driver.sinks.base import BatchRef, Written
from app.driver.sinks.columns import TableColumn
from app.driver.sinks.database import Load, Recorded
from app.driver.sinks.files import FileSink
from app.driver.sinks.sqlite import SqliteSink

QUERY = "0f" * 16


def ref(batch: int, epoch: int = 1) -> BatchRef:
    return BatchRef(QUERY, batch, epoch)


def allowed() -> None:
    pass


def fenced() -> None:
    raise Fenced("somebody newer owns the job")


# -- files


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A frame is its lines. What was run without output is listed."""
    runs: list[str] = []

    def write_parts(frame: str, directory: Path, *_: object, **__: object) -> list[Path]:
        directory.mkdir(parents=True)
        part = directory / "part-00000"
        part.write_text(frame)
        return [part]

    monkeypatch.setattr(files, "write_parts", write_parts)
    monkeypatch.setattr(files, "run_without_output", runs.append)
    return runs


@pytest.fixture
def sink(tmp_path: Path, without_spark: list[str]) -> FileSink:
    opened = FileSink("store", "json", tmp_path / "out", "none", False, {})
    opened.prepare()
    return opened


def written(sink: FileSink) -> list[str]:
    """The content of the files."""
    return [path.read_text() for path in sorted(sink.directory.iterdir()) if path.is_file()]


def write(sink: FileSink, lines: str, may_commit: Any = allowed) -> Written:
    return sink.write(lines, ref(0), may_commit)  # type: ignore[arg-type]


def test_a_job_whose_file_is_there_is_run_and_not_written_again(
    sink: FileSink, without_spark: list[str]
) -> None:
    assert not write(sink, "one\n").repeated
    assert write(sink, "two\n").repeated
    assert (written(sink), without_spark) == (["one\n"], ["two\n"])
    assert list((sink.directory / files.STAGING).iterdir()) == []


@pytest.mark.parametrize("lines", ["theirs\n", ""])
def test_a_writer_that_was_overtaken_behind_its_last_look_has_nothing_left_to_name(
    sink: FileSink, lines: str
) -> None:
    def overtaken() -> None:
        write(sink, lines)

    with pytest.raises(DriverError, match="No such file"):
        write(sink, "mine\n", overtaken)
    assert written(sink) == [lines] * bool(lines)


def test_what_a_newer_writer_stages_is_left_alone(sink: FileSink, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = sink.directory / files.STAGING / QUERY / "newer"

    def overtaken() -> None:
        newer.mkdir(parents=True)
        raise Fenced

    with pytest.raises(Fenced):
        write(sink, "mine\n", overtaken)
    assert newer.is_dir()
    assert not write(sink, "next\n").repeated
    assert not newer.exists()


def test_a_name_that_cannot_be_given_is_an_error(sink: FileSink, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(DriverError, match="No space left") as error:
        write(sink, "mine\n")
    assert error.value.recoverable and written(sink) == []


@pytest.mark.parametrize("lines", ["mine\n", ""])
def test_a_writer_that_is_fenced_leaves_no_file(sink: FileSink, lines: str) -> None:
    with pytest.raises(Fenced):
        write(sink, lines, fenced)
    assert written(sink) == []
    assert not write(sink, "theirs\n").repeated


# -- SQLite


@pytest.fixture
def table(tmp_path: Path) -> SqliteSink:
    sink = SqliteSink("store", "rows", (), False, tmp_path, tmp_path / "out.db")
    sink.prepare()
    return sink


def load_of(database: SqliteSink, batch: BatchRef, *values: int) -> Load:
    part = database.path.with_name(f"part-{batch.batch_id}.parquet")
    pyarrow.parquet.write_table(pa.table({"n": pa.array(values, pa.int64())}), part)
    return Load(batch, (TableColumn("n", "bigint"),), (part,), len(values))


def rows(database: SqliteSink) -> list[int]:
    with contextlib.closing(sqlite3.connect(database.path)) as db:
        return [n for (n,) in db.execute("SELECT n FROM rows ORDER BY n")]


def test_a_batch_that_is_recorded_is_not_loaded_again(table: SqliteSink) -> None:
    assert table.recorded(ref(0)) is None
    assert table.load(load_of(table, ref(0), 1, 2), allowed) is None
    assert table.recorded(ref(0)) == Recorded(0, 1, 2)
    assert table.load(load_of(table, ref(0), 1, 2), allowed) == Recorded(0, 1, 2), "it was written meanwhile"
    assert rows(table) == [1, 2]
    assert table.load(load_of(table, ref(1), 3), allowed) is None
    assert table.load(load_of(table, ref(0), 1, 2), allowed) is not None, "all up to the newest were written"
    assert rows(table) == [1, 2, 3]


def test_a_writer_of_an_older_epoch_is_refused_before_it_writes(table: SqliteSink) -> None:
    assert table.load(load_of(table, ref(0, epoch=2), 1), allowed) is None
    for batch in (0, 1):
        with pytest.raises(Fenced, match="is of epoch 1, and epoch 2 has written since"):
            table.load(load_of(table, ref(batch, epoch=1), 7), allowed)
    assert rows(table) == [1]


def test_a_batch_that_is_run_again_refuses_the_epoch_before_from_then_on(table: SqliteSink) -> None:
    assert table.load(load_of(table, ref(0, epoch=1), 1), allowed) is None
    recorded = table.recorded(ref(0, epoch=2))
    assert recorded is not None and recorded.rows == 1
    with pytest.raises(Fenced):
        table.load(load_of(table, ref(1, epoch=1), 7), allowed)
    assert rows(table) == [1]


def test_a_writer_that_is_fenced_leaves_no_row_and_no_record(table: SqliteSink) -> None:
    table.load(load_of(table, ref(0), 1), allowed)
    with pytest.raises(Fenced):
        table.load(load_of(table, ref(1), 7), fenced)
    assert (rows(table), table.recorded(ref(1))) == ([1], Recorded(0, 1, None))


def test_another_query_has_batches_of_its_own(table: SqliteSink) -> None:
    table.load(load_of(table, ref(5, epoch=9), 1), allowed)
    other = BatchRef("other", 0, 1)
    assert table.recorded(other) is None
    assert table.load(load_of(table, other, 2), allowed) is None
    assert rows(table) == [1, 2]


def test_a_batch_that_is_the_whole_table_replaces_it_and_is_fenced_alike(table: SqliteSink) -> None:
    whole = replace(table, replace=True)
    whole.load(load_of(whole, ref(0), 1, 2), allowed)
    with pytest.raises(Fenced):
        whole.load(load_of(whole, ref(1), 7), fenced)
    assert rows(whole) == [1, 2], "nothing was deleted"
    whole.load(load_of(whole, ref(1), 3), allowed)
    assert rows(whole) == [3]


def test_a_table_that_is_busy_is_tried_again_and_one_that_is_damaged_is_not(
    table: SqliteSink, tmp_path: Path
) -> None:
    impatient = replace(table, busy_timeout_s=0.0)
    with contextlib.closing(sqlite3.connect(table.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DriverError, match="is locked") as busy:
            impatient.load(load_of(table, ref(0), 1), allowed)
        other.execute("ROLLBACK")
    assert busy.value.recoverable
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    assert table._sentence(failed).recoverable, "one of the kinds of SQLITE_IOERR"
    damaged = replace(table, path=tmp_path / "damaged.db")
    damaged.path.write_bytes(b"no database at all" * 100)
    with pytest.raises(DriverError, match="not a database") as final:
        damaged.prepare()
    assert not final.value.recoverable

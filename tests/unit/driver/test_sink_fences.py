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
from app.driver.sinks.base import BatchRef, Options, Written
from app.driver.sinks.columns import Kind, TableColumn
from app.driver.sinks.database import Load, Recorded, TableSpec
from app.driver.sinks.files import FileSink, open_files
from app.driver.sinks.sqlite import SqliteDatabase
from app.driver.sinks.staging import StagingArea
from app.model.jobgraph import JobVertex, OutputMode, SinkSpec

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

    def write_text(frame: str, directory: Path, *_: object, **__: object) -> tuple[list[Path], int]:
        directory.mkdir()
        part = directory / "part-00000"
        part.write_text(frame)
        return ([part] if frame else []), len(frame.splitlines())

    monkeypatch.setattr(files, "write_text", write_text)
    monkeypatch.setattr(files, "run_without_output", runs.append)
    return runs


@pytest.fixture
def sink(tmp_path: Path, without_spark: list[str]) -> FileSink:
    spec = SinkSpec("json", str(tmp_path / "out"), OutputMode.APPEND)
    opened = open_files(JobVertex("0" * 32, "store", spec, (), 1, 1, 128, "default", "1" * 32), spec)
    opened.prepare()
    return opened


def written(sink: FileSink) -> dict[int, str]:
    """The content of each batch's file."""
    found = sorted(path for path in sink.directory.iterdir() if path.is_file())
    return {int(path.stem.rpartition("-")[2]): path.read_text() for path in found}


def write(sink: FileSink, lines: str, batch: int, may_commit: Any = allowed) -> Written:
    return sink.write(lines, ref(batch), may_commit)  # type: ignore[arg-type]


def test_a_batch_whose_file_is_there_is_run_and_not_written_again(
    sink: FileSink, without_spark: list[str]
) -> None:
    assert write(sink, "one\n", 0) == Written(1)
    assert write(sink, "two\n", 0).repeated
    assert (written(sink), without_spark) == ({0: "one\n"}, ["two\n"])
    assert write(sink, "three\n", 1) == Written(1)
    assert written(sink) == {0: "one\n", 1: "three\n"}


def test_a_batch_that_somebody_wrote_meanwhile_stays_theirs(sink: FileSink) -> None:
    def overtaken() -> None:
        assert write(sink, "theirs\n", 0) == Written(1)

    assert write(sink, "mine\n", 0, overtaken).repeated
    assert written(sink) == {0: "theirs\n"}


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_so_it_is_without_hard_links(sink: FileSink, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def link(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    test_a_batch_that_somebody_wrote_meanwhile_stays_theirs(sink)
    assert write(sink, "next\n", 1) == Written(1)
    assert written(sink) == {0: "theirs\n", 1: "next\n"}


def test_a_name_that_cannot_be_given_is_an_error(sink: FileSink, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(DriverError, match="No space left") as error:
        write(sink, "mine\n", 0)
    assert error.value.recoverable and written(sink) == {}


@pytest.mark.parametrize("lines", ["mine\n", ""])
def test_a_writer_that_is_fenced_leaves_no_file(sink: FileSink, lines: str) -> None:
    with pytest.raises(Fenced):
        write(sink, lines, 0, fenced)
    assert written(sink) == {}
    assert write(sink, "theirs\n", 0) == Written(1)


def test_what_another_process_that_lives_is_staging_is_left_alone(tmp_path: Path) -> None:
    one, other = StagingArea(tmp_path), StagingArea(tmp_path)
    one.open()
    with one.batch("0") as directory:
        directory.mkdir()
        other.open()
        one.open()
        assert directory.is_dir(), "nor does it clear itself away when it is opened again"
    one.close()
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1
    other.close()


# -- SQLite


@pytest.fixture
def table(tmp_path: Path) -> SqliteDatabase:
    spec = TableSpec("store", "rows", (), upsert=False, replace=False, options=Options("store", "sqlite", {}))
    database = SqliteDatabase(spec, tmp_path / "out.db")
    database.prepare()
    return database


def load_of(database: SqliteDatabase, batch: BatchRef, *values: int) -> Load:
    part = database.path.with_name(f"part-{batch.batch_id}.parquet")
    pyarrow.parquet.write_table(pa.table({"n": pa.array(values, pa.int64())}), part)
    return Load(batch, (TableColumn("n", Kind.BIGINT),), (part,), len(values))


def rows(database: SqliteDatabase) -> list[int]:
    with contextlib.closing(sqlite3.connect(database.path)) as db:
        return [n for (n,) in db.execute("SELECT n FROM rows ORDER BY n")]


def test_a_batch_that_is_recorded_is_not_loaded_again(table: SqliteDatabase) -> None:
    assert table.recorded(ref(0)) is None
    assert table.load(load_of(table, ref(0), 1, 2), allowed) is None
    assert table.recorded(ref(0)) == Recorded(0, 1, 2)
    assert table.load(load_of(table, ref(0), 1, 2), allowed) == Recorded(0, 1, 2), "it was written meanwhile"
    assert rows(table) == [1, 2]
    assert table.load(load_of(table, ref(1), 3), allowed) is None
    assert table.load(load_of(table, ref(0), 1, 2), allowed) is not None, "all up to the newest were written"
    assert rows(table) == [1, 2, 3]


def test_a_writer_of_an_older_epoch_is_refused_before_it_writes(table: SqliteDatabase) -> None:
    assert table.load(load_of(table, ref(0, epoch=2), 1), allowed) is None
    for batch in (0, 1):
        with pytest.raises(Fenced, match="is of epoch 1, and epoch 2 has written since"):
            table.load(load_of(table, ref(batch, epoch=1), 7), allowed)
    assert rows(table) == [1]


def test_a_batch_that_is_run_again_refuses_the_epoch_before_from_then_on(table: SqliteDatabase) -> None:
    assert table.load(load_of(table, ref(0, epoch=1), 1), allowed) is None
    recorded = table.recorded(ref(0, epoch=2))
    assert recorded is not None and recorded.rows == 1
    with pytest.raises(Fenced):
        table.load(load_of(table, ref(1, epoch=1), 7), allowed)
    assert rows(table) == [1]


def test_a_writer_that_is_fenced_leaves_no_row_and_no_record(table: SqliteDatabase) -> None:
    table.load(load_of(table, ref(0), 1), allowed)
    with pytest.raises(Fenced):
        table.load(load_of(table, ref(1), 7), fenced)
    assert (rows(table), table.recorded(ref(1))) == ([1], Recorded(0, 1, None))


def test_another_query_has_batches_of_its_own(table: SqliteDatabase) -> None:
    table.load(load_of(table, ref(5, epoch=9), 1), allowed)
    other = BatchRef("other", 0, 1)
    assert table.recorded(other) is None
    assert table.load(load_of(table, other, 2), allowed) is None
    assert rows(table) == [1, 2]


def test_a_batch_that_is_the_whole_table_replaces_it_and_is_fenced_alike(table: SqliteDatabase) -> None:
    whole = replace(table, spec=replace(table.spec, replace=True))
    whole.load(load_of(whole, ref(0), 1, 2), allowed)
    with pytest.raises(Fenced):
        whole.load(load_of(whole, ref(1), 7), fenced)
    assert rows(whole) == [1, 2], "nothing was deleted"
    whole.load(load_of(whole, ref(1), 3), allowed)
    assert rows(whole) == [3]


def test_a_table_that_is_busy_is_tried_again_and_one_that_is_damaged_is_not(
    table: SqliteDatabase, tmp_path: Path
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

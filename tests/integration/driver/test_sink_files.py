"""File sinks on the real Spark: a batch is one file, there once, whole or not at all."""

from __future__ import annotations

import csv
import glob
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from app.driver.failures import DriverError, Fenced
from app.driver.sinks import Written, files, parts
from tests.integration.driver.sink_support import (
    Crash,
    allowed,
    counting,
    crash,
    opened,
    ref,
    spark_session,
    vertex,
)

FORMATS = ("parquet", "json", "csv")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def numbers(spark: SparkSession, first: int, end: int, tasks: int = 3) -> DataFrame:
    return spark.range(first, end, 1, tasks).selectExpr("id", "concat('row ', id) AS name")


def read_back(spark: SparkSession, sink_format: str, out: Path) -> list[int]:
    reader = spark.read.schema("id BIGINT, name STRING") if sink_format != "parquet" else spark.read
    return sorted(row.id for row in reader.format(sink_format).load(str(out)).collect())


def visible(out: Path) -> list[str]:
    """What a shell glob sees."""
    return sorted(os.path.basename(path) for path in glob.glob(f"{out}/*"))


def staged_files(out: Path) -> list[Path]:
    return [path for path in (out / files.STAGING).rglob("*") if path.is_file() and path.name != "lock"]


@pytest.mark.parametrize("sink_format", FORMATS)
def test_every_batch_is_one_file_and_one_action_with_a_task_per_partition(
    spark: SparkSession, tmp_path: Path, sink_format: str
) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex(sink_format, out))
    for batch, tasks in enumerate((1, 3, 5)):
        frame = numbers(spark, batch * 100, batch * 100 + 100, tasks)
        with counting(frame) as ran:
            written = sink.write(frame, ref(batch), allowed)
        assert written == Written(100)
        assert (ran.jobs, ran.tasks) == (1, (tasks,))
    suffix = f".{sink_format}"
    query = "6f9619ff8b864d01b42d00cf4fc964ff"
    assert visible(out) == [f"part-{query}-{batch:010d}{suffix}" for batch in range(3)]
    assert read_back(spark, sink_format, out) == list(range(300))
    assert staged_files(out) == []


def test_parquet_is_read_by_spark_pandas_and_globs_with_its_own_columns_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex("parquet", out))
    for batch in range(2):
        sink.write(numbers(spark, batch * 10, batch * 10 + 10), ref(batch), allowed)
    assert spark.read.parquet(str(out)).columns == ["id", "name"]
    frame = pandas.read_parquet(out)
    assert list(frame.columns) == ["id", "name"]
    assert sorted(frame["id"]) == list(range(20))
    raw = [pyarrow.parquet.read_table(path) for path in glob.glob(f"{out}/*.parquet")]
    assert sum(table.num_rows for table in raw) == 20


def test_a_merged_parquet_file_keeps_the_types_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    frame = spark.range(0, 9, 1, 3).selectExpr(
        "CAST(id AS DECIMAL(20,3)) AS d",
        "timestamp_micros(id) AS t",
        "array(struct(id AS x)) AS nested",
        "make_dt_interval(id) AS i",
    )
    opened(tmp_path, vertex("parquet", out)).write(frame, ref(0), allowed)
    found = spark.read.parquet(str(out))
    assert found.dtypes == frame.dtypes
    assert sorted(found.collect()) == sorted(frame.collect())


@pytest.mark.parametrize("sink_format", FORMATS)
def test_an_empty_batch_makes_no_file(spark: SparkSession, tmp_path: Path, sink_format: str) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex(sink_format, out))
    frame = numbers(spark, 0, 10).where("id < 0")
    with counting(frame) as ran:
        assert sink.write(frame, ref(0), allowed) == Written(0)
    assert (ran.jobs, ran.tasks) == (1, (3,))
    assert visible(out) == []


def _die_before_the_action(monkeypatch: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(parts, "write_parts", lambda *_: crash())
        with pytest.raises(Crash):
            run(allowed)


def _die_before_the_commit(_: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    with pytest.raises(Crash):
        run(crash)


def _die_after_the_commit(monkeypatch: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    with monkeypatch.context() as patched:
        name = files._name

        def name_and_die(whole: Path, target: Path) -> bool:
            name(whole, target)
            raise Crash

        patched.setattr(files, "_name", name_and_die)
        with pytest.raises(Crash):
            run(allowed)


@pytest.mark.parametrize("sink_format", FORMATS)
@pytest.mark.parametrize(
    ("die", "is_there"),
    [(_die_before_the_action, False), (_die_before_the_commit, False), (_die_after_the_commit, True)],
)
def test_a_batch_that_is_run_again_after_a_crash_is_there_once(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sink_format: str,
    die: Callable[..., None],
    is_there: bool,
) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex(sink_format, out))
    sink.write(numbers(spark, 0, 50), ref(0), allowed)
    die(monkeypatch, lambda may_commit: sink.write(numbers(spark, 50, 100), ref(1), may_commit))
    assert read_back(spark, sink_format, out) == list(range(100 if is_there else 50))

    sink = opened(tmp_path, vertex(sink_format, out))
    frame = numbers(spark, 50, 100)
    with counting(frame) as ran:
        written = sink.write(frame, ref(1, epoch=2), allowed)
    # Its action runs in either case: the state of the batch is committed by it.
    assert (ran.jobs, ran.tasks) == (1, (3,))
    assert written.repeated is is_there
    assert written.rows in ((50, None) if is_there else (50,))
    assert read_back(spark, sink_format, out) == list(range(100))
    assert len(visible(out)) == 2


def test_who_is_fenced_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex("parquet", out))

    def fenced() -> None:
        raise Fenced

    with pytest.raises(Fenced):
        sink.write(numbers(spark, 0, 10), ref(0), fenced)
    assert visible(out) == []
    assert staged_files(out) == []


@pytest.mark.parametrize("links", [True, False])
def test_a_writer_that_sleeps_past_its_check_does_not_write_a_second_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    out = tmp_path / "out"
    stale, newer = (opened(tmp_path, vertex("json", out)) for _ in range(2))
    if not links:

        def refused(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refused)

    def allowed_then_asleep() -> None:
        assert newer.write(numbers(spark, 0, 10), ref(0, epoch=2), allowed) == Written(10)

    assert stale.write(numbers(spark, 0, 10), ref(0), allowed_then_asleep).repeated
    assert read_back(spark, "json", out) == list(range(10))


def test_what_a_dead_process_staged_is_removed_and_what_a_living_one_stages_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    dead = out / files.STAGING / "0123" / "part-x"
    dead.mkdir(parents=True)
    (dead / "part-00000.parquet").write_bytes(b"half")
    living = opened(tmp_path, vertex("parquet", out))

    def another_starts() -> None:
        opened(tmp_path, vertex("parquet", out))

    assert not dead.exists()
    assert living.write(numbers(spark, 0, 10), ref(0), another_starts) == Written(10)
    assert read_back(spark, "parquet", out) == list(range(10))


def test_two_queries_may_share_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for query in ("a", "b"):
        sink = opened(tmp_path, vertex("parquet", out))
        assert sink.write(numbers(spark, 0, 10), ref(0, query_id=query), allowed) == Written(10)
    assert read_back(spark, "parquet", out) == sorted([*range(10), *range(10)])


def test_csv_has_its_header_once_per_file_and_odd_values_survive(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    values = ["plain", 'with "quotes"', "with, comma", "two\nlines", ""]
    frame = spark.createDataFrame([(value,) for value in values], ["a, b"]).repartition(3)
    sink = opened(tmp_path, vertex("csv", out, header="true", escape='"', compression="gzip"))
    assert sink.write(frame, ref(0), allowed) == Written(5)
    (file,) = out.glob("*.csv.gz")
    with gzip.open(file, "rt", newline="") as text:
        rows = [row[0] for row in csv.reader(text)]
    assert rows[0] == "a, b"
    assert sorted(rows[1:]) == sorted(values)
    read = spark.read.option("header", "true").option("escape", '"').option("multiLine", "true")
    assert read.csv(str(out)).columns == ["a, b"]


def test_a_path_that_cannot_be_a_directory_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DriverError, match=r"The directory .*/file cannot be written: ") as caught:
        opened(tmp_path, vertex("parquet", tmp_path / "file"))
    assert caught.value.vertex == "store"
    assert not caught.value.recoverable

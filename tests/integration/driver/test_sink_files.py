"""File sinks of BATCH jobs on the real Spark: a job is one file, there once, whole or not at all."""

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
from app.driver.sinks import files, staging
from tests.integration.driver.sink_support import (
    QUERY,
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
def test_every_job_is_one_file_and_one_action_with_a_task_per_partition(
    spark: SparkSession, tmp_path: Path, sink_format: str
) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex(sink_format, out))
    for batch, tasks in enumerate((1, 3, 5)):
        frame = numbers(spark, batch * 100, batch * 100 + 100, tasks)
        with counting(frame) as ran:
            sink.write(frame, ref(0, query_id=f"job-{batch}"), allowed)
        assert (ran.jobs, ran.tasks) == (1, (tasks,))
    assert visible(out) == [f"part-job-{batch}.{sink_format}" for batch in range(3)]
    assert read_back(spark, sink_format, out) == list(range(300))
    assert staged_files(out) == []


def test_parquet_is_read_by_spark_pandas_and_globs_with_its_own_columns_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex("parquet", out))
    for batch in range(2):
        sink.write(numbers(spark, batch * 10, batch * 10 + 10), ref(0, query_id=f"job-{batch}"), allowed)
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
def test_a_job_without_rows_makes_no_file(spark: SparkSession, tmp_path: Path, sink_format: str) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex(sink_format, out))
    frame = numbers(spark, 0, 10).where("id < 0")
    with counting(frame) as ran:
        sink.write(frame, ref(0), allowed)
    assert (ran.jobs, ran.tasks) == (1, (3,))
    assert visible(out) == []


def _die_before_the_action(monkeypatch: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(staging, "run_action", lambda *_: crash())
        with pytest.raises(Crash):
            run(allowed)


def _die_before_the_commit(_: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    with pytest.raises(Crash):
        run(crash)


def _die_after_the_commit(monkeypatch: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(files, "sync_to_disk", lambda path: crash() if path.name == "out" else None)
        with pytest.raises(Crash):
            run(allowed)


@pytest.mark.parametrize("sink_format", FORMATS)
@pytest.mark.parametrize(
    ("die", "is_there"),
    [(_die_before_the_action, False), (_die_before_the_commit, False), (_die_after_the_commit, True)],
)
def test_a_job_that_is_run_again_after_a_crash_is_there_once(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sink_format: str,
    die: Callable[..., None],
    is_there: bool,
) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex(sink_format, out))
    die(monkeypatch, lambda may_commit: sink.write(numbers(spark, 0, 50), ref(0), may_commit))
    assert len(visible(out)) == is_there

    sink = opened(tmp_path, vertex(sink_format, out))
    frame = numbers(spark, 0, 50)
    with counting(frame) as ran:
        assert sink.write(frame, ref(0, epoch=2), allowed).repeated is is_there
    assert (ran.jobs, ran.tasks) == (1, (3,))
    assert read_back(spark, sink_format, out) == list(range(50))
    assert len(visible(out)) == 1


def test_who_is_fenced_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = opened(tmp_path, vertex("parquet", out))

    def fenced() -> None:
        raise Fenced

    with pytest.raises(Fenced):
        sink.write(numbers(spark, 0, 10), ref(0), fenced)
    assert visible(out) == []
    assert staged_files(out) == []


def test_what_a_dead_process_staged_is_removed_and_what_others_stage_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for job in (QUERY, "another"):
        dead = out / files.STAGING / job / "0123"
        dead.mkdir(parents=True)
        (dead / "part-00000.parquet").write_bytes(b"half")
    opened(tmp_path, vertex("parquet", out)).write(numbers(spark, 0, 10), ref(0), allowed)
    assert [path.name for path in (out / files.STAGING).iterdir()] == ["another"]
    assert read_back(spark, "parquet", out) == list(range(10))


def test_two_jobs_may_share_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for query in ("a", "b"):
        sink = opened(tmp_path, vertex("parquet", out))
        sink.write(numbers(spark, 0, 10), ref(0, query_id=query), allowed)
    assert read_back(spark, "parquet", out) == sorted([*range(10), *range(10)])


def test_csv_has_its_header_once_per_file_and_odd_values_survive(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    values = ["plain", 'with "quotes"', "with, comma", "two\nlines", ""]
    frame = spark.createDataFrame([(value,) for value in values], ["a, b"]).repartition(3)
    sink = opened(tmp_path, vertex("csv", out, header="true", escape='"', compression="gzip"))
    sink.write(frame, ref(0), allowed)
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

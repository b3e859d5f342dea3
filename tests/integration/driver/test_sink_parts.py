"""On a cluster, what tasks write has to be where the driver looks: a batch of which something is missing is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from app.driver import arrivals
from app.driver.failures import DriverError
from app.driver.sinks import staging
from app.driver.sinks.base import Written
from tests.integration.driver.database_support import Store, numbers, store_of
from tests.integration.driver.sink_support import allowed, counting, opened, ref, spark_session, vertex

FORMATS = ("parquet", "csv", "json")

run_action = staging.run_action
list_parts = staging.list_parts


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture(autouse=True)
def as_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "is_on_this_host", lambda _frame: False)
    monkeypatch.setattr(arrivals, "APPEARS_S", 0.0)


@pytest.fixture(params=["sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(request, tmp_path)


def lose(monkeypatch: pytest.MonkeyPatch, *lost: int) -> None:
    """The files of these tasks are on another host's disk."""

    def written(frame: Any, directory: Path, *args: Any) -> None:
        run_action(frame, directory, *args)
        for part in list_parts(directory):
            if int(part.name.split("-")[1]) in lost:
                part.unlink()

    monkeypatch.setattr(staging, "run_action", written)


def let_appear(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Files are seen one by one, each time that somebody looks; how often they have looked."""
    looks = 0

    def seen(directory: Path) -> list[Path]:
        nonlocal looks
        looks += 1
        return list_parts(directory)[: looks - 1]

    monkeypatch.setattr(arrivals, "APPEARS_S", 60.0)
    monkeypatch.setattr(arrivals, "_LOOK_S", 0.01)
    monkeypatch.setattr(staging, "list_parts", seen)
    return lambda: looks


def in_tasks(spark: SparkSession, *rows: int) -> DataFrame:
    """A task for each number, with so many rows."""
    counts = ", ".join(map(str, rows))
    frame = numbers(spark, 0, 1000 * len(rows), len(rows))
    return frame.where(f"id % 1000 < element_at(array({counts}), CAST(id / 1000 AS INT) + 1)")


def files_in(out: Path) -> list[Path]:
    return [path for path in out.rglob("*") if path.is_file() and path.name != "lock"]


def test_a_batch_that_is_whole_is_written_in_one_action(spark: SparkSession, store: Store) -> None:
    frame = numbers(spark, 0, 100, 3)
    with counting(frame) as ran:
        assert store.sink().write(frame, ref(0), allowed) == Written(100)
    assert (ran.jobs, ran.tasks) == (1, (3,))
    assert store.sink().write(numbers(spark, 0, 0), ref(1), allowed) == Written(0)


@pytest.mark.parametrize("lost", [(0,), (0, 1, 2)])
def test_rows_that_are_not_there_are_no_batch(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch, lost: tuple[int, ...]
) -> None:
    sink = store.sink()
    sink.write(numbers(spark, 0, 10), ref(0), allowed)
    lose(monkeypatch, *lost)
    with pytest.raises(DriverError, match=r"Tasks wrote 90 row\(s\) into .* jobs_dir says") as error:
        sink.write(numbers(spark, 10, 100, 3), ref(1), allowed)
    assert f"the files of {len(lost)} of 3 tasks are not there" in str(error.value)
    assert error.value.recoverable
    assert store.run("SELECT count(*) FROM results") == [(10,)]


def test_files_that_are_on_their_way_are_waited_for(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = let_appear(monkeypatch)
    assert store.sink().write(numbers(spark, 0, 90, 3), ref(0), allowed) == Written(90)
    assert looks() == 4
    assert store.run("SELECT count(*) FROM results") == [(90,)]


def test_the_file_of_a_task_without_rows_may_be_missing(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(monkeypatch, 0)
    sink = store.sink()
    assert sink.write(in_tasks(spark, 0, 4, 1), ref(0), allowed) == Written(5)
    assert sink.write(in_tasks(spark, 0, 0), ref(1), allowed) == Written(0)
    assert store.run("SELECT count(*) FROM results") == [(5,)]


def test_a_job_cannot_make_several_files_of_a_task(spark: SparkSession, tmp_path: Path) -> None:
    """Of which one might be there and the others not."""
    frame = numbers(spark, 0, 10, 1)
    frame.sparkSession.conf.set("spark.sql.files.maxRecordsPerFile", "3")
    try:
        run_action(frame, tmp_path / "some", "parquet", {})
        assert len(list_parts(tmp_path / "some")) == 1
    finally:
        frame.sparkSession.conf.unset("spark.sql.files.maxRecordsPerFile")


def test_a_batch_whose_rows_nobody_has_counted_fails(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals.RowCounter, "_found", lambda *_: None)
    with pytest.raises(DriverError, match="not said how many rows") as error:
        store.sink().write(numbers(spark, 0, 10), ref(0), allowed)
    assert error.value.recoverable


# -- files


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("lost", [(1,), (3,), (0, 1, 2, 3)])
def test_a_file_sink_whose_files_are_elsewhere(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lost: tuple[int, ...]
) -> None:
    lose(monkeypatch, *lost)
    out = tmp_path / "out"
    sink = opened(tmp_path / "work", vertex(kind, out))
    with pytest.raises(
        DriverError, match=r"Tasks wrote 10 row\(s\) into .* that of the sink's path"
    ) as error:
        # The first task has none, and its file is lost or not.
        sink.write(in_tasks(spark, 0, 4, 5, 1), ref(0), allowed)
    assert error.value.recoverable
    assert error.value.vertex == "store"
    assert f"the files of {len(set(lost) - {0})} of 3 tasks are not there" in str(error.value)
    assert files_in(out) == []


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_file_sink_waits_for_files_that_are_on_their_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, compression: str
) -> None:
    looks = let_appear(monkeypatch)
    out = tmp_path / "out"
    sink = opened(tmp_path / "work", vertex(kind, out, compression=compression))
    frame = in_tasks(spark, 2, 3, 4).coalesce(2)
    with counting(frame) as ran:
        sink.write(frame, ref(0), allowed)
    assert (ran.jobs, ran.tasks) == (1, (2,))
    assert looks() == 3
    monkeypatch.undo()
    reader = spark.read.schema(frame.schema) if kind != "parquet" else spark.read
    found = reader.format(kind).load(str(out))
    assert found.columns == ["id", "name"]
    assert sorted(found.collect()) == sorted(frame.collect())


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_task_whose_rows_have_no_line_in_csv_is_not_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """Spark writes nothing for a row whose only column is null."""
    out = tmp_path / "out"
    sink = opened(tmp_path / "work", vertex("csv", out, compression=compression))
    frame = in_tasks(spark, 2, 3).selectExpr("IF(id < 1000, NULL, id) AS id")
    sink.write(frame, ref(0), allowed)
    assert spark.read.csv(str(out)).count() == 3
    sink.write(frame.where("id IS NULL"), ref(0, query_id="nulls"), allowed)
    assert len(list(out.glob("part-*"))) == 1
    lose(monkeypatch, 0)
    with pytest.raises(DriverError, match="the files of 1 of 2 tasks are not there"):
        sink.write(frame, ref(0, query_id="lost"), allowed)

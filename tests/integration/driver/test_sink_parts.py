"""On a cluster, what tasks write has to be where the driver looks: a batch of which something is missing is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.driver.failures import DriverError
from app.driver.sinks import Written, parts
from tests.integration.driver.database_support import Store, numbers, store_of
from tests.integration.driver.sink_support import allowed, counting, opened, ref, spark_session, vertex

write_parts = parts.write_parts


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture(autouse=True)
def as_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_is_on_this_host", lambda _frame: False)
    monkeypatch.setattr(parts, "APPEARS_S", 0.0)


@pytest.fixture(params=["sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(request, tmp_path)


def lose(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """``count`` of the files are on another host's disk."""

    def written(frame: Any, directory: Path, *args: Any) -> list[Path]:
        found = write_parts(frame, directory, *args)
        for part in found[:count]:
            part.unlink()
        return found[count:]

    monkeypatch.setattr(parts, "write_parts", written)


def test_a_batch_that_is_whole_is_written_in_one_action(spark: SparkSession, store: Store) -> None:
    frame = numbers(spark, 0, 100, 3)
    with counting(frame) as ran:
        assert store.sink().write(frame, ref(0), allowed) == Written(100)
    assert (ran.jobs, ran.tasks) == (1, (3,))
    assert store.sink().write(numbers(spark, 0, 0), ref(1), allowed) == Written(0)


@pytest.mark.parametrize("count", [1, 3])
def test_rows_that_are_not_there_are_no_batch(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    sink = store.sink()
    sink.write(numbers(spark, 0, 10), ref(0), allowed)
    lose(monkeypatch, count)
    with pytest.raises(DriverError, match=r"Tasks wrote 90 row\(s\) into .* have to see it") as error:
        sink.write(numbers(spark, 10, 100, 3), ref(1), allowed)
    assert f"and {90 - 30 * count} of them are there" in str(error.value)
    assert error.value.recoverable
    assert store.run("SELECT count(*) FROM results") == [(10,)]


def test_files_that_are_on_their_way_are_waited_for(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "APPEARS_S", 60.0)
    monkeypatch.setattr(parts, "_LOOK_S", 0.01)

    def written(*args: Any) -> list[Path]:
        return write_parts(*args)[1:]

    monkeypatch.setattr(parts, "write_parts", written)
    assert store.sink().write(numbers(spark, 0, 90, 3), ref(0), allowed) == Written(90)
    assert store.run("SELECT count(*) FROM results") == [(90,)]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_sink_whose_files_are_elsewhere(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lose(monkeypatch, 2)
    monkeypatch.setattr("app.driver.sinks.files.write_parts", parts.write_parts)
    sink = opened(tmp_path / "work", vertex(kind, tmp_path / "out"))
    with pytest.raises(DriverError, match=r"Tasks wrote 10 row\(s\)"):
        sink.write(numbers(spark, 0, 10, 2), ref(0), allowed)
    assert [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".csv", ".parquet")] == []

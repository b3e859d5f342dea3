"""Spark's own sources of files: every file once across crashes, and a batch that is run again has the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.driver.failures import DriverError
from tests.integration.driver.source_support import Batch, Rig, csv_source, source_session, write_csv

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with source_session() as session:
        yield session


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Rig:
    return Rig(spark, tmp_path)


def take_back(rig: Rig, kind: str) -> None:
    """What is left by a crash before the newest batch was committed ("commits"), or between the log of the source and
    that of the query ("offsets")."""
    last = rig.committed
    for entry in (rig.checkpoint / kind).glob("[0-9]*"):
        if int(entry.name) > last - (kind == "commits"):
            entry.unlink()
    for leftover in (*rig.checkpoint.glob("*/.*.crc"), *rig.checkpoint.glob("*/.*.tmp")):
        leftover.unlink()


def test_exact_rows_over_crashes_and_random_splits_while_files_arrive(rig: Rig, tmp_path: Path) -> None:
    chance = random.Random(7)
    folder = tmp_path / "in"
    expected = [row for number in range(3) for row in write_csv(folder, number, 120)]

    def after(batch: Batch) -> None:
        rig.plan(chance.randint(1, 6))

    for life in range(4):
        expected += [row for part in range(5) for row in write_csv(folder, 10 + 5 * life + part, 70)]
        with rig.run(csv_source(folder, maxFilesPerTrigger=chance.randint(1, 2)), after) as query:
            target = rig.committed + 2
            rig.wait(query, lambda target=target: rig.committed >= target)  # type: ignore[misc]
        take_back(rig, "commits" if life % 2 else "offsets")
    with rig.run(csv_source(folder), after) as query:
        rig.wait(query, lambda: len(rig.rows()) >= len(expected))
    assert sorted(rig.rows()) == sorted(expected)
    assert len({batch.tasks for batch in rig.batches}) > 2


def test_a_file_that_is_gone_since_its_batch_was_planned_is_named(rig: Rig, tmp_path: Path) -> None:
    expected = write_csv(tmp_path / "in", 0, 10)
    with rig.run(csv_source(tmp_path / "in")) as query:
        rig.wait(query, lambda: rig.committed == 0)
    take_back(rig, "commits")
    file = tmp_path / "in" / "f0000.csv"
    kept = tmp_path / "kept"
    file.rename(kept)
    with (
        pytest.raises(DriverError, match=rf"its file {file} is gone.*Put it back"),
        rig.run(csv_source(tmp_path / "in")),
    ):
        pass
    kept.rename(file)
    with rig.run(csv_source(tmp_path / "in")) as query:
        rig.wait(query, lambda: rig.committed == 0)
    assert rig.rows() == expected


def test_files_of_old_batches_may_go(rig: Rig, tmp_path: Path) -> None:
    """Spark's log is put together every ten batches."""
    for number in range(12):
        write_csv(tmp_path / "in", number, 1)
    with rig.run(csv_source(tmp_path / "in", maxFilesPerTrigger=1)) as query:
        rig.wait(query, lambda: rig.committed == 11)
    take_back(rig, "commits")
    (row,) = rig.batches[-1].rows
    for file in (tmp_path / "in").iterdir():
        if file.name != f"f{row[0] // 10_000:04}.csv":
            file.unlink()
    with rig.run(csv_source(tmp_path / "in")) as query:
        rig.wait(query, lambda: rig.committed == 11)
    assert len(rig.rows()) == 12


def test_a_malformed_row_fails_where_it_is_asked_for_and_names_its_file(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,name\n1,a\nseven,x\n")
    failure = rig.failure(csv_source(tmp_path / "in", mode="FAILFAST"))
    assert f"{tmp_path}/in/a.csv" in failure and '"seven"' in failure
    with rig.run(csv_source(tmp_path / "in")) as query:
        rig.wait(query, lambda: rig.committed >= 0)
    assert rig.batches[-1].rows == [(1, "a"), (None, "x")]

"""The built-in streaming sources on the real Spark: parallelism per micro-batch, exact rows across crashes."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.driver.sources import state_directory
from tests.integration.driver.source_support import QUERY, Batch, Rig, csv_source, source_session, write_csv

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with source_session() as session:
        yield session


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Rig:
    return Rig(spark, tmp_path)


def test_the_number_of_tasks_follows_the_control_file_from_batch_to_batch(rig: Rig, tmp_path: Path) -> None:
    expected = [row for number in range(12) for row in write_csv(tmp_path / "in", number, 50)]
    wanted = [4, 1, 7, 2, 60, 3, 5, 1, 8, 2, 4, 6]
    rig.plan(wanted[0])
    published = [rig.version]

    def after(batch: Batch) -> None:
        if batch.id + 1 < len(wanted):
            rig.plan(wanted[batch.id + 1])
            published.append(rig.version)

    with rig.run(csv_source(tmp_path / "in", maxFilesPerTrigger=1), after) as query:
        run_id = query.runId
        rig.wait(query, lambda: rig.committed >= len(wanted) - 1)
        assert query.runId == run_id
    assert [batch.tasks for batch in rig.batches] == wanted
    assert [batch.version for batch in rig.batches] == published
    assert rig.rows() == expected


def test_exact_rows_over_crashes_and_random_parallelism_while_files_arrive(rig: Rig, tmp_path: Path) -> None:
    """A crash between any two writes of Spark's logs is what is left when their last files are taken away."""
    chance = random.Random(7)
    folder = tmp_path / "in"
    expected = [row for number in range(3) for row in write_csv(folder, number, 120)]

    def after(batch: Batch) -> None:
        rig.plan(chance.randint(1, 6))

    for life in range(4):
        # Enough for a life that had to share its rows with batches which the one before took in at its end.
        expected += [row for part in range(5) for row in write_csv(folder, 10 + 5 * life + part, 70)]
        vertex = csv_source(folder, maxRowsPerTrigger=chance.randint(40, 90))
        with rig.run(vertex, after) as query:
            target = rig.committed + 3
            rig.wait(query, lambda target=target: rig.committed >= target)  # type: ignore[misc]
        last = rig.committed
        if life % 2:
            (rig.checkpoint / "commits" / str(last)).unlink()  # killed after the batch, before its commit
        else:
            # Killed after the source's log was written and before Spark's: no trace of the offset.
            for offsets in (rig.checkpoint / "offsets").glob("[0-9]*"):
                if int(offsets.name) > last:
                    offsets.unlink()
        for leftover in (*rig.checkpoint.glob("*/.*.crc"), *rig.checkpoint.glob("*/.*.tmp")):
            leftover.unlink()
    with rig.run(csv_source(folder), after) as query:
        rig.wait(query, lambda: len(rig.rows()) >= len(expected))
    assert sorted(rig.rows()) == sorted(expected)
    assert len({batch.tasks for batch in rig.batches}) > 2


def test_a_finite_source_is_exhausted_once_its_last_batch_is_committed(rig: Rig, tmp_path: Path) -> None:
    expected = [row for number in range(3) for row in write_csv(tmp_path / "in", number, 10)]
    seen: list[bool] = []

    def after(batch: Batch) -> None:
        seen.append(rig.control.exhausted("v", QUERY))
        write_csv(tmp_path / "in", 100 + batch.id, 10)

    with rig.run(csv_source(tmp_path / "in", maxFilesPerTrigger=1, finite="true"), after) as query:
        rig.wait(query, lambda: rig.control.exhausted("v", QUERY))
        assert rig.committed == 2
    assert seen == [False, False, False]
    assert rig.rows() == expected
    assert rig.control.backlog("v", QUERY) == 0


def test_draining_stops_the_flow_and_a_restart_goes_on(rig: Rig, tmp_path: Path) -> None:
    expected = [row for number in range(30) for row in write_csv(tmp_path / "in", number, 5)]
    vertex = csv_source(tmp_path / "in", maxFilesPerTrigger=1)
    with rig.run(vertex, lambda batch: rig.control.set_draining(batch.id == 2)) as query:
        rig.wait(query, lambda: rig.committed == 2 and not query.status["isTriggerActive"])
        offsets = [int(p.name) for p in (rig.checkpoint / "offsets").glob("[0-9]*")]
        assert max(offsets) == rig.committed
        rig.control.set_draining(False)
        rig.wait(query, lambda: len(rig.rows()) == len(expected))
    assert rig.rows() == expected


def test_the_replay_rate(rig: Rig, tmp_path: Path) -> None:
    write_csv(tmp_path / "in", 0, 1000)
    begun = time.monotonic()
    at: list[tuple[float, int]] = []
    vertex = csv_source(tmp_path / "in", rowsPerSecond=100)
    with rig.run(vertex, lambda batch: at.append((time.monotonic() - begun, len(batch.rows)))) as query:
        rig.wait(query, lambda: sum(rows for _, rows in at) >= 150)
    for elapsed_s, total in ((s, sum(rows for _, rows in at[: i + 1])) for i, (s, _) in enumerate(at)):
        assert total <= 100 * elapsed_s + 1, at


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("7,x,y", "line 4: the row has 3 values, but 2 columns are expected: '7,x,y'."),
        ("seven,x", "line 4: column id: 'seven' is not a BIGINT."),
    ],
)
def test_a_malformed_row_is_named(rig: Rig, tmp_path: Path, row: str, sentence: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"id,name\n1,a\n2,b\n{row}\n3,c\n")
    failure = rig.failure(csv_source(tmp_path / "in"))
    assert f"Source src: the file {tmp_path}/in/a.csv, {sentence}" in failure
    with rig.run(csv_source(tmp_path / "in", mode="DROPMALFORMED")) as query:
        rig.wait(query, lambda: rig.committed >= 0)
    assert rig.batches[-1].rows == [(1, "a"), (2, "b"), (3, "c")]


def test_a_file_that_changed_between_two_runs_of_a_batch_is_refused(rig: Rig, tmp_path: Path) -> None:
    write_csv(tmp_path / "in", 0, 10)
    with rig.run(csv_source(tmp_path / "in")) as query:
        rig.wait(query, lambda: rig.committed == 0)
    (rig.checkpoint / "commits" / "0").unlink()
    write_csv(tmp_path / "in", 0, 11)
    assert "changed after it was taken in" in rig.failure(csv_source(tmp_path / "in"))


def test_two_queries_read_one_vertex_each_with_its_own_state(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    expected = write_csv(tmp_path / "in", 0, 20)
    other = Rig(spark, tmp_path / "other")
    other.control = rig.control
    with (
        rig.run(csv_source(tmp_path / "in", maxRowsPerTrigger=7)) as one,
        other.run(csv_source(tmp_path / "in")) as two,
    ):
        rig.wait(one, lambda: rig.committed == 2)
        other.wait(two, lambda: other.committed == 0)
    assert rig.rows() == other.rows() == expected
    assert state_directory(rig.checkpoint, "v").is_dir() and state_directory(other.checkpoint, "v").is_dir()


def test_available_now_reads_what_is_there_in_limited_batches_and_ends(rig: Rig, tmp_path: Path) -> None:
    expected = [row for number in range(3) for row in write_csv(tmp_path / "in", number, 10)]
    vertex = csv_source(tmp_path / "in", maxFilesPerTrigger=1, rowsPerSecond=0.01)
    with rig.run(vertex, availableNow=True) as query:
        assert query.awaitTermination(60)
    assert rig.rows() == expected
    assert [len(batch.rows) for batch in rig.batches] == [10, 10, 10]


def test_what_the_checkpoint_keeps_does_not_grow_with_the_batches(rig: Rig, tmp_path: Path) -> None:
    write_csv(tmp_path / "in", 0, 100)
    with rig.run(csv_source(tmp_path / "in", maxRowsPerTrigger=10)) as query:
        rig.wait(query, lambda: rig.committed == 9)
    log = state_directory(rig.checkpoint, "v") / "files.log"
    assert [json.loads(line)[0] for line in log.read_text().splitlines()] == ["f0000.csv"]
    offset = (rig.checkpoint / "offsets" / "9").read_text().splitlines()[-1]
    assert json.loads(offset) == {"row": 100}

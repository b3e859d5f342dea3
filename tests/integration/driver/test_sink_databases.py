"""Database sinks on the real Spark, SQLite and PostgreSQL: a batch is one transaction, written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.driver.failures import DriverError, Fenced
from app.driver.sinks import database, staging
from app.driver.sinks.base import Sink, Written
from app.model.jobgraph import OutputMode
from app.model.sink_formats import BATCH_TABLE
from tests.integration.driver.database_support import Store, numbers, store_of, upsert
from tests.integration.driver.sink_support import QUERY, Crash, allowed, counting, crash, ref, spark_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(request, tmp_path)


def test_append_is_one_action_with_a_task_per_partition_and_one_transaction_per_batch(
    spark: SparkSession, store: Store
) -> None:
    sink = store.sink()
    for batch, tasks in enumerate((1, 3, 5)):
        frame = numbers(spark, batch * 100, batch * 100 + 100, tasks)
        with counting(frame) as ran:
            assert sink.write(frame, ref(batch), allowed) == Written(100)
        assert (ran.jobs, ran.tasks) == (1, (tasks,))
    assert store.run("SELECT id, name FROM results ORDER BY id") == [(i, f"row {i}") for i in range(300)]
    recorded = store.run(f"SELECT query_id, batch_id, epoch, rows FROM {BATCH_TABLE} ORDER BY batch_id")
    assert recorded == [(QUERY, batch, 1, 100) for batch in range(3)]
    assert store.staged_files() == []


def test_upsert_keeps_the_newest_row_of_a_key(spark: SparkSession, store: Store) -> None:
    sink = upsert(store)
    sink.write(numbers(spark, 0, 10), ref(0), allowed)
    assert sink.write(numbers(spark, 5, 15, name="new "), ref(1), allowed) == Written(10)
    expected = [(i, f"{'row' if i < 5 else 'new'} {i}") for i in range(15)]
    assert store.run("SELECT id, name FROM results ORDER BY id") == expected


def test_upsert_of_rows_that_are_all_key_keeps_one_of_each(spark: SparkSession, store: Store) -> None:
    sink = upsert(store, keys="id,name")
    for batch in range(2):
        sink.write(numbers(spark, batch, batch + 2), ref(batch), allowed)
    assert store.run("SELECT id FROM results ORDER BY id") == [(0,), (1,), (2,)]
    with pytest.raises(DriverError, match="two rows of the same key"):
        sink.write(numbers(spark, 0, 2).union(numbers(spark, 0, 2)), ref(2), allowed)


def test_complete_replaces_the_whole_table(spark: SparkSession, store: Store) -> None:
    sink = store.sink(output=OutputMode.COMPLETE)
    sink.write(numbers(spark, 0, 10), ref(0), allowed)
    sink.write(numbers(spark, 8, 12), ref(1), allowed)
    assert store.run("SELECT id FROM results ORDER BY id") == [(8,), (9,), (10,), (11,)]
    sink.write(numbers(spark, 0, 10).where("id < 0"), ref(2), allowed)
    assert store.run("SELECT id FROM results") == []


def test_complete_with_keys_replaces_the_table_too(spark: SparkSession, store: Store) -> None:
    sink = upsert(store, output=OutputMode.COMPLETE)
    sink.write(numbers(spark, 0, 3), ref(0), allowed)
    sink.write(numbers(spark, 2, 4), ref(1), allowed)
    assert store.run("SELECT id FROM results ORDER BY id") == [(2,), (3,)]


def test_an_empty_batch_is_recorded(spark: SparkSession, store: Store) -> None:
    frame = numbers(spark, 0, 10).where("id < 0")
    assert store.sink().write(frame, ref(0), allowed) == Written(0)
    assert store.sink().write(frame, ref(0), allowed) == Written(0, repeated=True)


def _die_before_the_action(patched: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    patched.setattr(staging, "run_action", lambda *_: crash())
    run(allowed)


def _die_before_the_transaction(
    patched: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]
) -> None:
    # The row counts are read between the action and the transaction.
    patched.setattr(database, "parquet_rows", lambda _: crash())
    run(allowed)


def _die_before_the_commit(_: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    run(crash)


def _die_after_the_commit(_: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    run(allowed)
    crash()


@pytest.mark.parametrize("upserts", [False, True], ids=["append", "upsert"])
@pytest.mark.parametrize(
    ("die", "is_there"),
    [
        (_die_before_the_action, False),
        (_die_before_the_transaction, False),
        (_die_before_the_commit, False),
        (_die_after_the_commit, True),
    ],
)
def test_a_batch_that_is_run_again_after_a_crash_is_written_once(
    spark: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    die: Callable[..., None],
    is_there: bool,
    upserts: bool,
) -> None:
    def start() -> Sink:
        return upsert(store) if upserts else store.sink()

    sink = start()
    sink.write(numbers(spark, 0, 50), ref(0), allowed)
    with monkeypatch.context() as patched, pytest.raises(Crash):
        die(patched, lambda may_commit: sink.write(numbers(spark, 50, 100), ref(1), may_commit))
    assert store.run("SELECT count(*) FROM results") == [(100 if is_there else 50,)]

    frame = numbers(spark, 50, 100)
    with counting(frame) as ran:
        written = start().write(frame, ref(1, epoch=2), allowed)
    # Its action runs in either case: the state of the batch is committed by it.
    assert (ran.jobs, ran.tasks) == (1, (3,))
    assert written == Written(50, repeated=is_there)
    assert store.run("SELECT id FROM results ORDER BY id") == [(i,) for i in range(100)]
    # The newer epoch is on record, whoever wrote the rows.
    assert store.run(f"SELECT max(epoch) FROM {BATCH_TABLE}") == [(2,)]


@pytest.mark.parametrize("batch", [0, 1], ids=["the same batch", "the next batch"])
def test_an_older_epoch_than_the_recorded_one_is_refused(
    spark: SparkSession, store: Store, batch: int
) -> None:
    stale, newer = store.sink(), store.sink()
    newer.write(numbers(spark, 0, 10), ref(0, epoch=2), allowed)
    with pytest.raises(Fenced):
        stale.write(numbers(spark, 10, 20), ref(batch, epoch=1), allowed)
    assert store.run("SELECT count(*) FROM results") == [(10,)]


def test_a_newer_epoch_that_writes_between_the_action_and_the_transaction_is_seen(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, newer = store.sink(), store.sink()
    run_action = staging.run_action

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(staging, "run_action", run_action)
        newer.write(numbers(spark, 0, 10), ref(0, epoch=2), allowed)
        return run_action(*arguments)

    monkeypatch.setattr(staging, "run_action", overtaken)
    with pytest.raises(Fenced):
        stale.write(numbers(spark, 0, 10), ref(0, epoch=1), allowed)
    assert store.run("SELECT count(*) FROM results") == [(10,)]


def test_a_second_writer_of_the_same_epoch_writes_nothing(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = store.sink(), store.sink()
    run_action = staging.run_action

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(staging, "run_action", run_action)
        second.write(numbers(spark, 0, 10), ref(0), allowed)
        return run_action(*arguments)

    monkeypatch.setattr(staging, "run_action", overtaken)
    assert first.write(numbers(spark, 0, 10), ref(0), allowed) == Written(10, repeated=True)
    assert store.run("SELECT count(*) FROM results") == [(10,)]


def test_who_is_fenced_writes_nothing(spark: SparkSession, store: Store) -> None:
    sink = store.sink()
    sink.write(numbers(spark, 0, 10), ref(0), allowed)

    def fenced() -> None:
        raise Fenced

    with pytest.raises(Fenced):
        sink.write(numbers(spark, 10, 20), ref(1), fenced)
    assert store.run("SELECT count(*) FROM results") == [(10,)]
    assert store.run(f"SELECT max(batch_id) FROM {BATCH_TABLE}") == [(0,)]
    assert sink.write(numbers(spark, 10, 20), ref(1), allowed) == Written(10)


def test_only_the_newest_batches_stay_on_record(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "KEPT_BATCHES", 2)
    sink = store.sink()
    for batch in range(4):
        sink.write(numbers(spark, batch, batch + 1, 1), ref(batch), allowed)
    assert store.run(f"SELECT batch_id FROM {BATCH_TABLE} ORDER BY batch_id") == [(2,), (3,)]
    # One that is off the record is still known to be written.
    assert sink.write(numbers(spark, 0, 1, 1), ref(0), allowed) == Written(None, repeated=True)


def test_more_rows_than_are_loaded_at_once(spark: SparkSession, store: Store) -> None:
    assert upsert(store).write(numbers(spark, 0, 25_001), ref(0), allowed) == Written(25_001)
    total = 25_000 * 25_001 // 2
    assert store.run("SELECT count(*), sum(id), count(DISTINCT name) FROM results") == [
        (25_001, total, 25_001)
    ]

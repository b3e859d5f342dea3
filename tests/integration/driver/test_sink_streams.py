"""Sinks behind a real stateful streaming query that crashes, at a parallelism that changes with every batch."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from app.driver.failures import DriverError
from app.driver.sinks.base import Sink, Written
from app.model.jobgraph import JobVertex, OutputMode
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
from tests.integration.listeners import await_listeners

FILES = 5
KEYS = 7
PARALLELISM = (3, 1, 4, 2, 3)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def make_input(directory: Path) -> Counter[int]:
    """Files of keys, one per batch; how often each key is in them."""
    directory.mkdir()
    total: Counter[int] = Counter()
    for number in range(FILES):
        keys = [(number * 13 + i) % KEYS for i in range(40 + number)]
        total.update(keys)
        lines = "".join(json.dumps({"key": key}) + "\n" for key in keys)
        (directory / f"{number}.json").write_text(lines)
    return total


class Attempt:
    """One attempt of the job: a query from the checkpoint into a sink that was opened anew."""

    def __init__(self, spark: SparkSession, home: Path, sink: Sink) -> None:
        self.spark, self.home, self.sink = spark, home, sink
        self.written: dict[int, Written] = {}
        self.parallelism: list[int] = []
        self.dies_before_commit = self.dies_after_commit = -1

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        tasks = PARALLELISM[batch_id]
        self.parallelism.append(tasks)
        may_commit = crash if batch_id == self.dies_before_commit else allowed
        self.written[batch_id] = self.sink.write(frame.coalesce(tasks), ref(batch_id), may_commit)
        if batch_id == self.dies_after_commit:
            raise Crash

    def run(self) -> None:
        source = (
            self.spark.readStream.schema("key INT")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.home / "in"))
        )
        query = (
            source.groupBy("key")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(self._batch)
            .option("checkpointLocation", str(self.home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            context = self.spark.sparkContext
            await_listeners(context)
            tracker = context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(str(query.runId)))]
            last = [tracker.getStageInfo(max(job.stageIds)).numTasks for job in jobs]
            # One action per batch, and its last stage, which holds the state, at the parallelism of the batch.
            assert last == self.parallelism


def newest_by_key(rows: list[tuple[int, int, int]]) -> dict[int, int]:
    """Of rows (key, count, batch) the count in the newest batch of each key."""
    return {key: count for key, count, _ in sorted(rows, key=lambda row: row[2])}


def in_sqlite(home: Path) -> list[tuple[int, int, int]]:
    with closing(sqlite3.connect(home / "out.db")) as db:
        return [(key, count, 0) for key, count in db.execute("SELECT key, count FROM counts")]


def upsert_vertex(home: Path) -> JobVertex:
    return vertex(
        "sqlite", home / "out.db", output=OutputMode.UPDATE, table="counts", keys="key", mode="upsert"
    )


def test_a_stateful_query_that_crashes_around_a_commit_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    expected = make_input(tmp_path / "in")

    def attempt() -> Attempt:
        return Attempt(spark, tmp_path, opened(tmp_path, upsert_vertex(tmp_path)))

    first = attempt()
    first.dies_before_commit = 2
    with pytest.raises(StreamingQueryException):
        first.run()
    assert sorted(first.written) == [0, 1]

    second = attempt()
    second.dies_after_commit = 2
    with pytest.raises(StreamingQueryException):
        second.run()
    assert {batch: written.repeated for batch, written in second.written.items()} == {2: False}

    third = attempt()
    third.run()
    repeated = {batch: written.repeated for batch, written in third.written.items()}
    assert repeated == {2: True, 3: False, 4: False}
    # The rows of a batch are known, to whoever reports them: those of an updated key each.
    assert third.written[4] == Written(KEYS)

    rows = in_sqlite(tmp_path)
    assert newest_by_key(rows) == dict(expected)
    assert len(rows) == len({(key, batch) for key, _, batch in rows})


# -- functions, and nothing


def test_a_function_gets_the_frame_and_the_batch_and_the_query_if_it_asks(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[tuple[Any, ...]] = []

    def plain(frame: DataFrame, batch_id: int) -> None:
        calls.append((frame.count(), batch_id))

    def asking(frame: DataFrame, batch_id: int, query_id: str) -> None:
        calls.append((frame.count(), batch_id, query_id))

    frame = spark.range(0, 10, 1, 3)
    functions = {"m:plain": plain, "m:asking": asking}
    for entry in functions:
        sink = opened(tmp_path, vertex("python", python=entry), functions.__getitem__)
        assert sink.write(frame, ref(4, query_id="q"), allowed) == Written(None)
    assert calls == [(10, 4), (10, 4, "q")]


def test_a_function_is_not_called_for_who_is_fenced(spark: SparkSession, tmp_path: Path) -> None:
    def store(frame: DataFrame, batch_id: int) -> None:
        raise AssertionError("called")

    sink = opened(tmp_path, vertex("python", python="m:store"), lambda _: store)
    with pytest.raises(Crash):
        sink.write(spark.range(1), ref(0), crash)


@pytest.mark.parametrize("function", [lambda: None, lambda frame: None, lambda frame, batch_id, other: None])
def test_a_function_with_other_parameters_is_refused(tmp_path: Path, function: Callable[..., None]) -> None:
    with pytest.raises(DriverError, match=r"m:store of the sink store must take \(frame, batch_id\)"):
        opened(tmp_path, vertex("python", python="m:store"), lambda _: function)


def test_noop_runs_all_tasks_and_keeps_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sink = opened(tmp_path, vertex("noop"))
    frame = spark.range(0, 10, 1, 3)
    with counting(frame) as ran:
        assert sink.write(frame, ref(0), allowed) == Written(None)
    assert (ran.jobs, ran.tasks) == (1, (3,))

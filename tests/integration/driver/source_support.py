"""What the tests of sources share: a Spark of their own, a query that is started and killed at will, files to read."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from app.driver.failures import describe
from app.driver.sources.opening import Splits, open_stream
from app.driver.sources.planned_files import check_planned_files
from app.model.jobgraph import JobVertex, SourceSpec
from tests.integration.listeners import await_listeners

WAIT_S = 90.0


@contextlib.contextmanager
def source_session() -> Iterator[SparkSession]:
    """A session with two cores."""
    root = str(Path(__file__).resolve().parents[3])
    changed = {"PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    changed["PYTHONWARNINGS"] = "ignore::FutureWarning"
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Xss8m")  # as drivers have
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def source(
    source_format: str, path: Path | None = None, schema: str | None = None, **options: object
) -> JobVertex:
    texts = tuple((name, str(value)) for name, value in options.items())
    operation = SourceSpec(source_format, str(path) if path else None, schema, texts)
    return JobVertex("v", "src", operation, (), 1, 1, 1, "default", "d")


@dataclass
class Batch:
    """What one call of the batch function saw."""

    id: int
    rows: list[Any]
    tasks: int


@dataclass
class Rig:
    """One query with its checkpoint, started and killed as often as a test likes, and what says how it splits."""

    spark: SparkSession
    directory: Path
    splits: Splits = field(init=False)
    checkpoint: Path = field(init=False)
    batches: list[Batch] = field(default_factory=list)
    raised: Exception | None = None

    def __post_init__(self) -> None:
        self.splits = Splits({}, {"v": 1}, self.directory / "splits")
        self.checkpoint = self.directory / "checkpoint"

    def plan(self, parallelism: int) -> None:
        self.splits.settle({"v": parallelism})

    @contextlib.contextmanager
    def run(
        self, vertex: JobVertex, after: Callable[[Batch], None] = lambda batch: None, **trigger: Any
    ) -> Iterator[StreamingQuery]:
        """Run the query; ``after`` is called at the end of each batch."""
        check_planned_files(self.checkpoint)
        frame = self.open(vertex)

        def write(data: DataFrame, batch_id: int) -> None:
            try:
                rows, tasks = self._collect(data)
            except Exception as error:
                self.raised = error
                raise
            batch = Batch(batch_id, rows, tasks)
            self.batches.append(batch)
            after(batch)

        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(write)
        query = (writer.trigger(**trigger) if trigger else writer).start()
        try:
            yield query
        finally:
            query.stop()

    def open(self, vertex: JobVertex) -> DataFrame:
        return open_stream(self.spark, vertex, self.splits)

    def wait(self, query: StreamingQuery, done: Callable[[], bool]) -> None:
        """Wait until ``done``, or for the failure of the query."""
        deadline = time.monotonic() + WAIT_S
        while not done():
            error = query.exception()
            if error is not None:
                raise error
            assert time.monotonic() < deadline, f"not done after {WAIT_S} s; batches: {self.batches[-3:]}"
            time.sleep(0.01)

    def failure(self, vertex: JobVertex) -> str:
        """The sentence with which the query fails."""
        with self.run(vertex) as query, pytest.raises(Exception) as raised:
            self.wait(query, lambda: False)
        assert not isinstance(raised.value, AssertionError), raised.value
        # A driver too describes what its batch function met, and not what Spark makes of that.
        return describe(self.raised or raised.value).sentence

    @property
    def committed(self) -> int:
        """The last batch in Spark's commit log, -1 if there is none."""
        names = [p.name for p in (self.checkpoint / "commits").glob("*") if p.name.isdigit()]
        return max(map(int, names), default=-1)

    def rows(self) -> list[Any]:
        """The rows of all batches; of a batch that ran again, those of its last run, which must be the same set."""
        last: dict[int, list[Any]] = {}
        for batch in self.batches:
            if batch.id in last:
                assert sorted(last[batch.id]) == sorted(batch.rows), (
                    f"batch {batch.id} differs when it is run again"
                )
            last[batch.id] = batch.rows
        return [row for batch_id in sorted(last) for row in last[batch_id]]

    def _collect(self, data: DataFrame) -> tuple[list[Any], int]:
        """The rows, and the number of tasks that Spark's status tracker says the stage had."""
        context = self.spark.sparkContext
        tracker = context.statusTracker()
        group = context.getLocalProperty("spark.jobGroup.id")
        known = set(tracker.getJobIdsForGroup(group))
        rows = [tuple(row) for row in data.collect()]
        await_listeners(context)
        new = set(tracker.getJobIdsForGroup(group)) - known
        stages = [
            tracker.getStageInfo(stage) for job in new for stage in (tracker.getJobInfo(job).stageIds or ())
        ]
        return rows, sum(stage.numTasks for stage in stages if stage is not None)


def write_csv(directory: Path, number: int, rows: int) -> list[tuple[int, str]]:
    """A file of its own; it appears whole."""
    directory.mkdir(exist_ok=True)
    values = [(number * 10_000 + i, f"n {i}, x") for i in range(rows)]
    text = "id,name\n" + "".join(f'{i},"{n}"\n' for i, n in values)
    hidden = directory / f".{number}"
    hidden.write_text(text)
    hidden.rename(directory / f"f{number:04}.csv")
    return values


def csv_source(directory: Path, **options: object) -> JobVertex:
    return source("csv", directory, "id BIGINT NOT NULL, name STRING", header="true", **options)

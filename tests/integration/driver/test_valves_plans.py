"""Valves in plans of many shapes: each batch has the tasks that were set, and the output is that of a plain run."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.state import GroupStateTimeout

from tests.integration.driver.sink_support import spark_session
from tests.integration.driver.valve_support import STATE_PARTITIONS, Running, running, until

CHANGES = 3
SCHEMA = "id BIGINT, key BIGINT, ts TIMESTAMP"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


class Inputs:
    """Two directories of files, and what is read from them: one file per batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        for name in ("left", "right"):
            (folder / name).mkdir()
        self.files = 0
        # Small enough for several splits per file.
        spark.conf.set("spark.sql.files.maxPartitionBytes", "1000")
        spark.conf.set("spark.sql.files.openCostInBytes", "0")

    def feed(self, *, rows: int = 120) -> None:
        """A file more for each: ids that go on, twelve seconds per file, seven keys."""
        for name in ("left", "right"):
            lines = []
            for number in range(rows):
                at = self.files * rows + number
                second = self.files * 12 + number // 10
                ts = f"2030-01-01T00:{second // 60:02}:{second % 60:02}.000Z"
                lines.append(json.dumps({"id": at, "key": at % 7, "ts": ts}))
            draft = self.folder / f".{uuid.uuid4().hex}"
            draft.write_text("\n".join(lines), encoding="utf-8")
            draft.rename(self.folder / name / f"{self.files:04}.json")
        self.files += 1

    def stream(self, name: str = "left") -> DataFrame:
        reader = self.spark.readStream.format("json").schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.load(str(self.folder / name)).withWatermark("ts", "2 seconds")

    def static(self) -> DataFrame:
        return self.spark.range(0, 7, 1, 3).select(f.col("id").alias("key"), (f.col("id") * 10).alias("tens"))


@dataclass
class Shape:
    """``exact``: the vertices whose tasks are always the numbers; None: all of them."""

    build: Callable[[Inputs], DataFrame]
    names: list[str]
    mode: str = "append"
    exact: set[str] | None = None


def stateless(inputs: Inputs) -> DataFrame:
    return inputs.stream().where("id % 3 = 0").select("id", (f.col("id") + 1).alias("next"))


def sums(frame: DataFrame) -> DataFrame:
    return frame.groupBy(f.window("ts", "5 seconds"), "key").agg(f.sum("id").alias("total"))


def union_then_aggregate(inputs: Inputs) -> DataFrame:
    return sums(inputs.stream().union(inputs.stream("right").where("id % 2 = 0")))


def union_only(inputs: Inputs) -> DataFrame:
    return inputs.stream().union(inputs.stream("right"))


def one_stream_twice(inputs: Inputs) -> DataFrame:
    stream = inputs.stream()
    return stream.where("key < 3").union(stream.where("key > 4")).select("id", "key")


def self_join(inputs: Inputs) -> DataFrame:
    stream = inputs.stream()
    left, right = stream.alias("l"), stream.where("key < 4").alias("r")
    return left.join(right, f.expr("l.id = r.id AND l.ts = r.ts")).select("l.id", "r.key")


def outer_join(inputs: Inputs) -> DataFrame:
    left, right = inputs.stream().alias("l"), inputs.stream("right").where("key = 1").alias("r")
    return left.join(right, f.expr("l.id = r.id AND l.ts = r.ts"), "left").select("l.id", "r.key")


def broadcast_join(inputs: Inputs) -> DataFrame:
    return sums(inputs.stream().join(f.broadcast(inputs.static()), "key").withColumn("id", f.col("tens")))


def shuffled_join(inputs: Inputs) -> DataFrame:
    return inputs.stream().join(inputs.static().hint("merge"), "key").select("id", "tens")


def shuffled_join_then_aggregate(inputs: Inputs) -> DataFrame:
    return sums(inputs.stream().join(inputs.static().hint("merge"), "key", "left"))


def own_repartitions(inputs: Inputs) -> DataFrame:
    return sums(inputs.stream().repartition(8).where("id >= 0")).coalesce(1)


def keyed_repartition(inputs: Inputs) -> DataFrame:
    return inputs.stream().repartition("key").select("id", "key")


def deduplicated(inputs: Inputs) -> DataFrame:
    return inputs.stream().dropDuplicates(["key", "ts"]).select("key", "ts")


def distinct(inputs: Inputs) -> DataFrame:
    inputs.stream().createOrReplaceTempView("left_rows")
    return inputs.spark.sql("SELECT DISTINCT key % 3 AS key FROM left_rows")


def sessions(inputs: Inputs) -> DataFrame:
    stream = inputs.stream().where("key = id % 11")
    return stream.groupBy(f.session_window("ts", "1 second").alias("w"), "key").agg(f.count("*").alias("n"))


def chained(inputs: Inputs) -> DataFrame:
    first = inputs.stream().groupBy(f.window("ts", "2 seconds"), "key").agg(f.sum("id").alias("total"))
    return first.groupBy(f.window("window", "6 seconds")).agg(f.max("total").alias("most"))


def sorted_top(inputs: Inputs) -> DataFrame:
    return inputs.stream().groupBy("key").agg(f.sum("id").alias("total")).orderBy(f.desc("total")).limit(3)


def sorted_all(inputs: Inputs) -> DataFrame:
    return inputs.stream().groupBy("key").agg(f.sum("id").alias("total")).orderBy(f.desc("total"))


def limited(inputs: Inputs) -> DataFrame:
    return inputs.stream().limit(150).select(f.lit(1).alias("one"))


def common_table(inputs: Inputs) -> DataFrame:
    inputs.stream().createOrReplaceTempView("left_rows")
    return inputs.spark.sql(
        "WITH small AS (SELECT id, key FROM left_rows WHERE key < 4) "
        "SELECT id, key FROM small WHERE key < 2 UNION ALL SELECT -id, key FROM small"
    )


def in_subquery(inputs: Inputs) -> DataFrame:
    inputs.stream().createOrReplaceTempView("left_rows")
    inputs.static().createOrReplaceTempView("side")
    return inputs.spark.sql("SELECT id FROM left_rows WHERE key IN (SELECT key FROM side WHERE tens > 20)")


def in_pandas(inputs: Inputs) -> DataFrame:
    def total(key: Any, frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"key": [key[0]], "total": [int(frame["id"].sum())]})

    return inputs.stream().groupBy("key").applyInPandas(total, "key BIGINT, total BIGINT")


def pandas_state(inputs: Inputs) -> DataFrame:
    def count(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((seen,))
        yield pd.DataFrame({"key": [key[0]], "seen": [seen]})

    return (
        inputs.stream()
        .groupBy("key")
        .applyInPandasWithState(
            count, "key BIGINT, seen BIGINT", "seen BIGINT", "update", GroupStateTimeout.NoTimeout
        )
    )


class Seen(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "seen BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
        before = self.seen.get()
        seen = (before[0] if before else 0) + sum(len(frame) for frame in rows)
        self.seen.update((seen,))
        yield pd.DataFrame({"key": [key[0]], "seen": [seen]})

    def close(self) -> None:
        pass


def transform_with_state(inputs: Inputs) -> DataFrame:
    grouped = inputs.stream().groupBy("key")
    return grouped.transformWithStateInPandas(Seen(), "key BIGINT, seen BIGINT", "Update", "None")


JOINED = ["left", "right", "join", "out"]
SHAPES = {
    "stateless": Shape(stateless, ["left", "out"]),
    "union then aggregate": Shape(union_then_aggregate, ["left", "right", "aggregate", "out"]),
    "union only": Shape(union_only, ["left", "right", "out"]),
    "one stream twice": Shape(one_stream_twice, ["left", "left 2", "out"]),
    "self join": Shape(self_join, ["left", "left 2", "join", "out"]),
    "outer join": Shape(outer_join, JOINED),
    "broadcast join": Shape(broadcast_join, ["left", "aggregate", "out"]),
    "shuffled join": Shape(shuffled_join, ["left", "out"]),
    "shuffled join then aggregate": Shape(shuffled_join_then_aggregate, ["left", "aggregate", "out"]),
    # The program wants one task at its end.
    "own repartitions": Shape(own_repartitions, ["left", "aggregate", "out"], exact={"left"}),
    "keyed repartition": Shape(keyed_repartition, ["left", "out"]),
    "deduplicated": Shape(deduplicated, ["left", "deduplicate", "out"]),
    "distinct": Shape(distinct, ["left", "distinct", "out"], "update"),
    "sessions": Shape(sessions, ["left", "sessions", "out"]),
    "chained": Shape(chained, ["left", "aggregate", "aggregate 2", "out"]),
    "sorted top": Shape(sorted_top, ["left", "aggregate", "out"], "complete", {"left", "aggregate"}),
    "sorted all": Shape(sorted_all, ["left", "aggregate", "out"], "complete", {"left", "aggregate"}),
    "limited": Shape(limited, ["left", "limit", "out"], exact={"left"}),
    "common table": Shape(common_table, ["left", "left 2", "out"]),
    "in subquery": Shape(in_subquery, ["left", "out"]),
    "in pandas": Shape(in_pandas, ["left", "out"]),
    "pandas state": Shape(pandas_state, ["left", "flat-map-groups", "out"], "update"),
    "transform with state": Shape(transform_with_state, ["left", "transform-with-state", "out"], "update"),
}


def writer_of(frame: DataFrame, mode: str, name: str, folder: Path) -> DataStreamWriter:
    checkpoint = str(folder / f"checkpoint-{name}")
    writer = frame.writeStream.format("memory").queryName(name).outputMode(mode)
    return writer.option("checkpointLocation", checkpoint) if mode == "complete" else writer


def result(spark: SparkSession, name: str) -> list[str]:
    return [str(row) for row in spark.table(name).collect()]


# The others are of `make long`: each is a query of its own, and runs twice.
OFTEN = ("union then aggregate", "shuffled join then aggregate", "chained", "pandas state")
BY_NAME = [pytest.param(name, marks=() if name in OFTEN else pytest.mark.long) for name in SHAPES]


@pytest.mark.parametrize("which", BY_NAME)
def test_numbers_and_output(which: str, spark: SparkSession, tmp_path: Path) -> None:
    shape = SHAPES[which]
    inputs = Inputs(spark, tmp_path)
    inputs.feed()
    exact = shape.exact if shape.exact is not None else set(shape.names)
    with running(writer_of(shape.build(inputs), shape.mode, "out", tmp_path)) as query:
        assert query.names == shape.names
        run_id = query.started.runId
        query.started.processAllAvailable()
        for _ in range(CHANGES):
            ran = changed(query, inputs)
            assert {name: ran[name] for name in exact} == {name: ran["numbers"][name] for name in exact}
        query.started.processAllAvailable()
        assert query.started.runId == run_id
        found = result(spark, "out")
    plain = shape.build(inputs).writeStream.format("memory").queryName("plain").outputMode(shape.mode)
    control = plain.start()
    try:
        control.processAllAvailable()
        expected = result(spark, "plain")
    finally:
        control.stop()
    assert found
    if which.startswith("sorted"):
        assert found == expected
    else:
        assert sorted(found) == sorted(expected)


def test_two_plans_that_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Spark leaves out a source without data: what is left looks like the other one."""
    inputs = Inputs(spark, tmp_path)
    inputs.feed()
    with running(writer_of(union_only(inputs), "append", "out", tmp_path)) as query:
        query.started.processAllAvailable()
        for name, other in (("left", "right"), ("right", "left")) * 2:
            before = query.started.lastProgress["batchId"]
            shutil.copy(tmp_path / "left" / "0000.json", tmp_path / name / f"{uuid.uuid4().hex}.json")
            query.started.processAllAvailable()
            until(partial(is_seen, query, before), query.started)
            progress = [each for each in query.started.recentProgress if each["numInputRows"]][-1]
            ran = query.ran(progress["batchId"])
            assert ran is not None
            assert (ran.tasks[name], ran.tasks[other]) == (2, None)


def changed(query: Running, inputs: Inputs) -> dict[str, Any]:
    """Tasks by vertex of a batch with data, after a change to other numbers."""
    numbers = {name: query.random.randint(1, STATE_PARTITIONS) for name in query.names}
    query.set(numbers)
    for _ in range(5):
        latest = query.started.lastProgress
        # What an idle query says has the number of the batch that will come.
        before = -1 if latest is None else latest["batchId"] - (0 if latest["numInputRows"] else 1)
        inputs.feed()
        until(partial(is_seen, query, before), query.started)
        batch_id = query.started.lastProgress["batchId"]
        ran = query.ran(batch_id)
        if ran is None or ran.numbers != numbers:
            continue
        if None not in ran.tasks.values():
            return {"numbers": numbers, **ran.tasks}
        query.started.processAllAvailable()
    raise AssertionError(f"the tasks were never told: {ran}")


def is_seen(query: Running, before: int) -> bool:
    progress = query.started.lastProgress
    return progress is not None and progress["batchId"] > before and progress["numInputRows"] > 0

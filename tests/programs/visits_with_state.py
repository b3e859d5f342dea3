"""What each visit spent, told when it has been silent for thirty seconds: applyInPandasWithState and its timer."""

import sys

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

SILENCE_MS = 30_000
COLUMNS = ["visit", "events", "spent", "first_ms", "last_ms"]


def visits(key, frames, state):
    if state.hasTimedOut:
        events, spent, first_ms, last_ms = state.get
        state.remove()
        yield pd.DataFrame([(*key, events, spent, first_ms, last_ms)], columns=COLUMNS)
        return
    events, spent, first_ms, last_ms = state.get if state.exists else (0, 0, 1 << 60, 0)
    for frame in frames:
        events += len(frame)
        spent += int(frame["amount"].sum())
        first_ms = min(first_ms, int(frame["ms"].min()))
        last_ms = max(last_ms, int(frame["ms"].max()))
    state.update((events, spent, first_ms, last_ms))
    state.setTimeoutTimestamp(last_ms + SILENCE_MS)


if __name__ == "__main__":
    source, target, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "6").getOrCreate()
    query = (
        spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
        .option("maxFilesPerTrigger", 20)
        .json(source)
        .withWatermark("at", "10 seconds")
        .selectExpr("visit", "amount", "at", "unix_millis(at) AS ms")
        .groupBy("visit")
        .applyInPandasWithState(
            visits,
            "visit STRING, events BIGINT, spent BIGINT, first_ms BIGINT, last_ms BIGINT",
            "events BIGINT, spent BIGINT, first_ms BIGINT, last_ms BIGINT",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
        .writeStream.queryName("visits")
        .format("json")
        .option("checkpointLocation", checkpoint)
        .start(target)
    )
    query.awaitTermination()

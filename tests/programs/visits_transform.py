"""What each visit spent, told when it has been silent for thirty seconds: transformWithStateInPandas and its timer."""

import argparse

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor

SILENCE_MS = 30_000
COLUMNS = ["visit", "events", "spent", "first_ms", "last_ms"]


class Visit(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.so_far = handle.getValueState(
            "so_far", "events BIGINT, spent BIGINT, first_ms BIGINT, last_ms BIGINT"
        )

    def handleInputRows(self, key, rows, timerValues):
        events, spent, first_ms, last_ms = self.so_far.get() if self.so_far.exists() else (0, 0, 1 << 60, 0)
        if last_ms:
            self.handle.deleteTimer(last_ms + SILENCE_MS)
        for frame in rows:
            events += len(frame)
            spent += int(frame["amount"].sum())
            first_ms = min(first_ms, int(frame["ms"].min()))
            last_ms = max(last_ms, int(frame["ms"].max()))
        self.so_far.update((events, spent, first_ms, last_ms))
        self.handle.registerTimer(last_ms + SILENCE_MS)
        yield pd.DataFrame(columns=COLUMNS)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield pd.DataFrame([(*key, *self.so_far.get())], columns=COLUMNS)
        self.so_far.clear()

    def close(self):
        pass


def main():
    parser = argparse.ArgumentParser()
    for name in ("--events", "--output", "--checkpoint"):
        parser.add_argument(name, required=True)
    args = parser.parse_args()
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = SparkSession.builder.appName("visits").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    events = (
        spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
        .option("maxFilesPerTrigger", 20)
        .json(args.events)
        .withWatermark("at", "10 seconds")
        .selectExpr("visit", "amount", "at", "unix_millis(at) AS ms")
    )
    types = "visit STRING, events BIGINT, spent BIGINT, first_ms BIGINT, last_ms BIGINT"
    visits = events.groupBy("visit").transformWithStateInPandas(Visit(), types, "Append", "EventTime")
    query = (
        visits.writeStream.format("parquet").option("checkpointLocation", args.checkpoint).start(args.output)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()

"""What cards do at merchants, told when a card falls silent, and large amounts at once: transformWithStateInPandas with
value state, map state and event-time timers."""

import os
import sys
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

sys.path.append(os.path.abspath(os.path.join(os.getcwd(), ".")))

OUTPUT_SCHEMA = StructType(
    [
        StructField("card", StringType(), True),  # the grouping key
        StructField("kind", StringType(), True),  # SILENT or LARGE
        StructField("merchant", StringType(), True),
        StructField("payments", LongType(), True),
        StructField("total", DoubleType(), True),
    ]
)
COLUMNS = [field.name for field in OUTPUT_SCHEMA]


class CardProcessor(StatefulProcessor):
    """Keeps the time of the last payment, and for each merchant how many payments there were and how much."""

    SILENCE_MS = 30_000

    def init(self, handle: StatefulProcessorHandle) -> None:
        merchant = StructType([StructField("merchant", StringType(), True)])
        figures = StructType(
            [StructField("payments", LongType(), True), StructField("total", DoubleType(), True)]
        )
        try:
            self.handle = handle
            self.last = handle.getValueState("last", StructType([StructField("ms", LongType(), True)]))
            self.merchants = handle.getMapState("merchants", merchant, figures)
        except Exception as e:
            print(f"[ERROR] Initialization failed: {e!s}")
            raise

    def handleInputRows(self, key, rows: Iterator[pd.DataFrame], timerValues) -> Iterator[pd.DataFrame]:
        pdf = pd.concat(list(rows)).sort_values("ms", kind="stable")
        found = []
        last_ms = self.last.get()[0] if self.last.exists() else None
        for _, row in pdf.iterrows():
            ms, merchant, amount = int(row["ms"]), str(row["page"]), float(row["amount"])
            if last_ms is not None and ms - last_ms > self.SILENCE_MS:
                found += self._silent(key)
                last_ms = None
            so_far = (
                self.merchants.getValue((merchant,)) if self.merchants.containsKey((merchant,)) else (0, 0.0)
            )
            self.merchants.updateValue((merchant,), (so_far[0] + 1, so_far[1] + amount))
            last_ms = ms if last_ms is None else max(ms, last_ms)
            if amount >= 990:
                found.append((key[0], "LARGE", merchant, 1, amount))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.last.update((last_ms,))
        self.handle.registerTimer(last_ms + self.SILENCE_MS)
        yield pd.DataFrame(found, columns=COLUMNS)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame(self._silent(key), columns=COLUMNS)
        self.last.clear()

    def _silent(self, key):
        rows = [
            (key[0], "SILENT", merchant[0], int(n), float(total))
            for merchant, (n, total) in self.merchants.iterator()
        ]
        self.merchants.clear()
        return rows

    def close(self) -> None:
        pass


def main(argv):
    spark = (
        SparkSession.builder.appName("card watch")
        .config("spark.sql.shuffle.partitions", 5)
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    transactions = (
        spark.readStream.schema("user_id STRING, page STRING, amount BIGINT, event_time TIMESTAMP")
        .parquet(argv[1])
        .withWatermark("event_time", "10 seconds")
        .selectExpr("user_id", "page", "amount", "event_time", "unix_millis(event_time) AS ms")
    )
    alerts = transactions.groupBy("user_id").transformWithStateInPandas(
        statefulProcessor=CardProcessor(),
        outputStructType=OUTPUT_SCHEMA,
        outputMode="append",
        timeMode="EventTime",
    )
    alerts.writeStream.format("parquet").outputMode("append").option("checkpointLocation", argv[3]).option(
        "path", argv[2]
    ).queryName("card_alerts").start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(sys.argv)

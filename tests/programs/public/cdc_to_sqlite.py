"""The current state of a table from its change events: foreachBatch merges the newest of each key into a database."""

import atexit
import json
import pathlib
import sqlite3
import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql.functions import coalesce, col, from_json, row_number
from pyspark.sql.types import StructType

CUSTOMER = "struct<id:bigint,name:string,email:string,balance:bigint>"
PAYLOAD = f"struct<before:{CUSTOMER},after:{CUSTOMER},op:string,ts_ms:bigint,source:struct<lsn:bigint>>"
ENVELOPE = f"struct<payload:{PAYLOAD}>"

CREATE = """
CREATE TABLE IF NOT EXISTS customers (
    id INTEGER PRIMARY KEY, name TEXT, email TEXT, balance INTEGER, deleted INTEGER, lsn INTEGER);
CREATE TABLE IF NOT EXISTS batches (batch_id INTEGER PRIMARY KEY, changes INTEGER);
"""
UPSERT = """
INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, email = excluded.email, balance = excluded.balance, deleted = excluded.deleted,
    lsn = excluded.lsn
WHERE excluded.lsn > customers.lsn
"""


class ChangeFeed:
    def __init__(self, events: str, database: str, checkpoint: str) -> None:
        print("Initializing App")
        self.events, self.checkpoint = events, checkpoint
        pathlib.Path(database).parent.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(database, check_same_thread=False, timeout=60)
        self.connection.executescript(CREATE)
        atexit.register(self.connection.close)
        self.spark = (
            SparkSession.builder.appName("cdc").config("spark.sql.shuffle.partitions", "2").getOrCreate()
        )

    def read(self) -> DataFrame:
        raw = self.spark.readStream.text(self.events)
        envelope = raw.select(from_json(col("value"), ENVELOPE).alias("e")).select("e.payload.*")
        return envelope.where("op IS NOT NULL").select(
            coalesce("after.id", "before.id").alias("id"),
            *(col(f"after.{name}").alias(name) for name in ("name", "email", "balance")),
            (col("op") == "d").alias("deleted"),
            col("source.lsn").alias("lsn"),
        )

    def process_batch(self, df: DataFrame, batch_id: int) -> None:
        if self.connection.execute("SELECT 1 FROM batches WHERE batch_id = ?", (batch_id,)).fetchone():
            print(f"batch {batch_id} was applied before")
            return
        newest = Window.partitionBy("id").orderBy(col("lsn").desc())
        latest = df.withColumn("rn", row_number().over(newest)).filter("rn = 1").drop("rn")
        rows = [tuple(row) for row in latest.toLocalIterator()]
        with self.connection:
            self.connection.executemany(UPSERT, rows)
            self.connection.execute("INSERT INTO batches VALUES (?, ?)", (batch_id, len(rows)))
        print(json.dumps({"batch": batch_id, "changes": len(rows)}), flush=True)

    def run(self) -> None:
        assert isinstance(self.read().schema, StructType)
        self.read().writeStream.foreachBatch(self.process_batch).outputMode("append").option(
            "checkpointLocation", self.checkpoint
        ).start().awaitTermination()


if __name__ == "__main__":
    ChangeFeed(*sys.argv[1:]).run()

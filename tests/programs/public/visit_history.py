"""A slowly changing dimension of type 2: each batch reads the dimension again, and the history goes to SQLite."""

import argparse
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql.functions import broadcast, col, expr, lag, lead, lit, row_number, to_timestamp

DDL = """
CREATE TABLE IF NOT EXISTS fact (visit TEXT, at INTEGER, id INTEGER, segment TEXT, PRIMARY KEY (visit, at, id));
CREATE TABLE IF NOT EXISTS dim_visit (
    visit TEXT, segment TEXT, valid_from INTEGER, valid_to INTEGER, is_current INTEGER,
    PRIMARY KEY (visit, valid_from)
);
"""
FIRST = datetime(2026, 3, 1, tzinfo=UTC)


def build_dimension(spark, path):
    """Each page goes to another segment from time to time."""
    rows = [
        (f"page-{page}", f"segment-{(page * 7 + version) % 4}", (FIRST + timedelta(seconds=s)).isoformat())
        for page in range(10)
        for version, s in enumerate(range(-60, 600, 23 + page))
    ]
    dim = spark.createDataFrame(rows, ["page", "segment", "valid_from"])
    dim = dim.withColumn("valid_from", to_timestamp("valid_from"))
    per_page = Window.partitionBy("page").orderBy("valid_from")
    dim.withColumn("valid_to", lead("valid_from").over(per_page)).coalesce(1).write.mode("overwrite").parquet(
        path
    )


def as_of(batch: DataFrame, dim: DataFrame) -> DataFrame:
    """The version of the dimension that was valid when the event happened."""
    candidates = batch.join(broadcast(dim), ["page"], "left").where("valid_from IS NULL OR valid_from <= at")
    newest = Window.partitionBy("visit", "at", "id").orderBy(col("valid_from").desc_nulls_last())
    return candidates.withColumn("rn", row_number().over(newest)).where(col("rn") == 1).drop("rn")


def versions(facts: DataFrame) -> DataFrame:
    timeline = Window.partitionBy("visit").orderBy("at", "id")
    changed = facts.withColumn("before", lag("segment").over(timeline)).where(
        "before IS NULL OR before <> segment"
    )
    one_per_instant = Window.partitionBy("visit", "at").orderBy(col("id").desc())
    changed = changed.withColumn("rn", row_number().over(one_per_instant)).where("rn = 1")
    until = lead("at").over(Window.partitionBy("visit").orderBy("at"))
    return changed.select("visit", "segment", col("at").alias("valid_from"), until.alias("valid_to"))


class Scd2Writer:
    def __init__(self, spark, database, dim_path):
        self.spark, self.database, self.dim_path = spark, database, dim_path

    def __call__(self, batch_df, batch_id):
        batch_df = batch_df.withColumn("at_ms", expr("unix_millis(at)")).persist()
        if batch_df.isEmpty():
            batch_df.unpersist()
            return
        dim = self.spark.read.parquet(self.dim_path)
        enriched = as_of(batch_df, dim).select("visit", "at_ms", "id", "segment")
        new = [tuple(row) for row in enriched.distinct().collect()]
        with closing(sqlite3.connect(self.database, timeout=60)) as db, db:
            db.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?)", new)
            visits = sorted({row[0] for row in new})
            marks = ",".join("?" * len(visits))
            known = pd.read_sql_query(f"SELECT * FROM fact WHERE visit IN ({marks})", db, params=visits)
            history = versions(self.spark.createDataFrame(known)).withColumn("now", lit(batch_id)).collect()
            db.execute(f"DELETE FROM dim_visit WHERE visit IN ({marks})", visits)
            db.executemany(
                "INSERT INTO dim_visit VALUES (?, ?, ?, ?, ?)",
                [(h.visit, h.segment, h.valid_from, h.valid_to, int(h.valid_to is None)) for h in history],
            )
        print(f"batch {batch_id}: {len(new)} facts, {len(visits)} visits, {len(history)} versions")
        batch_df.unpersist()


if __name__ == "__main__":
    ap = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    ap.add_argument("events")
    ap.add_argument("--db", default="history.db")
    ap.add_argument("--dim", default="dim_page.parquet")
    ap.add_argument("--checkpoint", default="checkpoints/visit_history")
    opts = ap.parse_args()

    spark = SparkSession.builder.appName("scd2").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    if not os.path.exists(os.path.join(opts.dim, "_SUCCESS")):
        build_dimension(spark, opts.dim)
    with closing(sqlite3.connect(opts.db)) as connection, connection:
        connection.executescript(DDL)
    stream = (
        spark.readStream.format("json")
        .schema("id LONG, visit STRING, page STRING, amount LONG, at TIMESTAMP")
        .option("maxFilesPerTrigger", 25)
        .load(opts.events)
    )
    stream.writeStream.foreachBatch(Scd2Writer(spark, opts.db, opts.dim)).option(
        "checkpointLocation", opts.checkpoint
    ).start().awaitTermination()

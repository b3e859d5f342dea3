"""Looks keys up at an HTTP service, with retries and a cache, and writes rows by key with a foreach writer."""

import os
import sqlite3
from collections.abc import Iterator

import pandas as pd
import typer
from catalog_client import client
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, count
from pyspark.sql.functions import max as max_
from pyspark.sql.functions import sum as sum_

app = typer.Typer(add_completion=False)


def enrich(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for part in parts:
        part["category"] = [client().category(page) for page in part["page"]]
        yield part


class SqliteWriter:
    """Rows are keyed: written again, they replace themselves."""

    def __init__(self, path: str):
        self.path = path

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self.db = sqlite3.connect(self.path, timeout=60)
        self.db.execute("BEGIN IMMEDIATE")
        return True

    def process(self, row: Row) -> None:
        self.db.execute(
            "INSERT INTO totals VALUES (:category, :k, :n, :total, :newest) ON CONFLICT (category, k) DO UPDATE "
            "SET n = excluded.n, total = excluded.total, newest = excluded.newest",
            row.asDict(),
        )

    def close(self, error) -> None:
        if error is None:
            self.db.commit()
        self.db.close()


def transform(events: DataFrame) -> DataFrame:
    keyed = events.withColumn("k", col("id") % 16).repartition(8, "k")
    enriched = keyed.mapInPandas(enrich, "id long, page string, amount long, k long, category string")
    return enriched.groupBy("category", "k").agg(
        count("*").alias("n"), sum_("amount").alias("total"), max_("id").alias("newest")
    )


@app.command()
def main(events: str, database: str, checkpoint: str = typer.Option(..., "--checkpoint"), rate: int = 12):
    with sqlite3.connect(database) as db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS totals (category TEXT, k INT, n INT, total INT, newest INT, "
            "PRIMARY KEY (category, k))"
        )
    spark = SparkSession.builder.appName(os.environ.get("APP_NAME", "enrich")).getOrCreate()
    stream = (
        spark.readStream.option("header", True)
        .schema("id LONG, visit STRING, page STRING, amount LONG, at TIMESTAMP")
        .option("maxFilesPerTrigger", rate)
        .csv(events)
        .select("id", "page", "amount")
    )
    spark.conf.set("spark.sql.shuffle.partitions", 8)
    query = (
        transform(stream)
        .coalesce(1)
        .writeStream.outputMode("update")
        .foreach(SqliteWriter(database))
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )
    typer.echo(f"query {query.id} started")
    query.awaitTermination()


if __name__ == "__main__":
    app()

"""What each page has earned, kept up to date in a database: foreachBatch and an upsert, SQLite or PostgreSQL."""

import argparse
import sqlite3

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

STATEMENT = """
    INSERT INTO pages (page, n, total) VALUES ({0}, {0}, {0})
    ON CONFLICT (page) DO UPDATE SET n = excluded.n, total = excluded.total
"""


def open_database(url):
    if url.startswith("postgresql:"):
        import psycopg

        return psycopg.connect(url), "%s"
    return sqlite3.connect(url, timeout=60), "?"


def merge(batch, batch_id):
    rows = [tuple(row) for row in batch.select("page", "n", "total").collect()]
    database, mark = open_database(args.database)
    with database:
        database.cursor().executemany(STATEMENT.format(mark), rows)
    database.close()
    print(f"batch {batch_id}: {len(rows)} pages")


parser = argparse.ArgumentParser()
parser.add_argument("--events", required=True)
parser.add_argument("--database", required=True, help="a PostgreSQL URL, or the path of a SQLite file")
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()

connection, _ = open_database(args.database)
with connection:
    connection.cursor().execute(
        "CREATE TABLE IF NOT EXISTS pages (page VARCHAR(100) PRIMARY KEY, n BIGINT, total BIGINT)"
    )
connection.close()

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "6").getOrCreate()
events = (
    spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
    .option("maxFilesPerTrigger", 20)
    .json(args.events)
)
pages = events.groupBy("page").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
query = pages.writeStream.outputMode("update").foreachBatch(merge)
query.option("checkpointLocation", args.checkpoint).start().awaitTermination()

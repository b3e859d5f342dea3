"""Counts and sums per page and half minute: JSON files to an Iceberg table."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

parser = argparse.ArgumentParser()
parser.add_argument("--events", required=True)
parser.add_argument("--warehouse", required=True, help="the folder of the catalog")
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()

spark = (
    SparkSession.builder.appName("to iceberg")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", args.warehouse)
    .config("spark.sql.shuffle.partitions", 8)
    .getOrCreate()
)
spark.sql(
    "CREATE TABLE IF NOT EXISTS lake.shop.pages (start TIMESTAMP, page STRING, n BIGINT, total BIGINT) USING iceberg"
)
events = (
    spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
    .option("maxFilesPerTrigger", 20)
    .json(args.events)
)
counts = (
    events.withWatermark("at", "10 seconds")
    .groupBy(F.window("at", "30 seconds"), "page")
    .agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    .select("window.start", "page", "n", "total")
)
query = (
    counts.writeStream.outputMode("append")
    .option("checkpointLocation", args.checkpoint)
    .toTable("lake.shop.pages")
)
query.awaitTermination()

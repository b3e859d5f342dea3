"""Counts and sums per page and half minute: JSON files to a Delta table."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

parser = argparse.ArgumentParser()
parser.add_argument("--events", required=True)
parser.add_argument("--table", required=True, help="the folder of the table")
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()

spark = (
    SparkSession.builder.appName("to delta")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.shuffle.partitions", 8)
    .getOrCreate()
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
    counts.writeStream.format("delta")
    .outputMode("append")
    .option("checkpointLocation", args.checkpoint)
    .start(args.table)
)
query.awaitTermination()

"""Counts and sums per page and half minute: JSON files to Parquet files, each window once and complete."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

parser = argparse.ArgumentParser()
parser.add_argument("--events", required=True)
parser.add_argument("--output", required=True)
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()

spark = (
    SparkSession.builder.appName("windowed-counts").config("spark.sql.shuffle.partitions", 8).getOrCreate()
)
events = (
    spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
    .option("maxFilesPerTrigger", 20)
    .json(args.events)
)
counts = (
    events.withWatermark("at", "10 seconds")
    .groupBy(F.window("at", "30 seconds"), "page")
    .agg(F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("id").alias("newest"))
    .select("window.start", "page", "n", "total", "newest")
)
query = (
    counts.writeStream.queryName("counts")
    .format("parquet")
    .outputMode("append")
    .option("path", args.output)
    .option("checkpointLocation", args.checkpoint)
    .trigger(processingTime="300 milliseconds")
    .start()
)
query.awaitTermination()

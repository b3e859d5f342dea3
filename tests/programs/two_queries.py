"""Two queries of one program on one folder: hourly figures as Parquet, and large amounts as CSV."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, sum, window

parser = argparse.ArgumentParser()
parser.add_argument("--events", required=True)
parser.add_argument("--output", required=True)
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()

spark = SparkSession.builder.appName("two queries").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", 5)
spark.conf.set("spark.sql.streaming.checkpointLocation", args.checkpoint)
events = (
    spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
    .option("maxFilesPerTrigger", 20)
    .json(args.events)
)
figures = (
    events.withWatermark("at", "10 seconds")
    .groupBy(window(col("at"), "1 minute", "20 seconds").alias("w"))
    .agg(count("*").alias("n"), sum("amount").alias("total"))
    .select(col("w.start").alias("start"), "n", "total")
)
figures.writeStream.queryName("figures").trigger(processingTime="1 second").start(
    args.output + "/figures", format="parquet", outputMode="append"
)
large = events.where("amount >= 950").select("id", "page", "amount")
large.writeStream.queryName("large").format("csv").option("header", True).start(args.output + "/large")
spark.streams.awaitAnyTermination()

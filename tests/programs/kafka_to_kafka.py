"""Counts words of one topic and writes each new count to another, with the word as the key."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, explode, split, sum

parser = argparse.ArgumentParser()
parser.add_argument("--servers", required=True)
parser.add_argument("--words", required=True)
parser.add_argument("--counts", required=True)
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()

spark = SparkSession.builder.appName("kafka to kafka").config("spark.sql.shuffle.partitions", 6).getOrCreate()
lines = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", args.servers)
    .option("subscribe", args.words)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 2000)
    .load()
)
words = lines.select(
    explode(split(col("value").cast("string"), " ")).alias("word"), col("offset").alias("at_offset")
)
counts = words.groupBy("word").agg(count("*").alias("n"), sum("at_offset").alias("offsets"))
query = (
    counts.selectExpr("word AS key", "to_json(struct(n, offsets)) AS value")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", args.servers)
    .option("topic", args.counts)
    .option("checkpointLocation", args.checkpoint)
    .outputMode("update")
    .start()
)
query.awaitTermination()

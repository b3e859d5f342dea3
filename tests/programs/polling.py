"""Counts per page and ten seconds; the program looks after its query itself, in a loop."""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, window

source, target, checkpoint = sys.argv[1:4]

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()
query = (
    spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
    .option("maxFilesPerTrigger", 20)
    .json(source)
    .withWatermark("at", "10 seconds")
    .groupBy(window(col("at"), "10 seconds"), "page")
    .agg(count("*").alias("n"))
    .select(col("window.end").alias("end"), "page", "n")
    .repartition(1)
    .writeStream.format("parquet")
    .option("checkpointLocation", checkpoint)
    .start(target)
)
batch = None
while query.isActive:
    time.sleep(0.5)
    progress = query.lastProgress
    if progress and progress["batchId"] != batch:
        batch = progress["batchId"]
        print(f"batch {batch}: {progress['numInputRows']} rows, {query.status['message']}", flush=True)
print("stopped:", query.exception())

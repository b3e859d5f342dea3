"""Takes in what has come since the last run, then prints what there is by now: availableNow, read back at the end."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

parser = argparse.ArgumentParser()
parser.add_argument("--events", required=True)
parser.add_argument("--output", required=True)
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "6").getOrCreate()
schema = "id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP"
per_minute = (
    spark.readStream.schema(schema)
    .option("maxFilesPerTrigger", 5)
    .json(args.events)
    .withWatermark("at", "10 seconds")
    .groupBy(F.window("at", "20 seconds"), "page")
    .agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    .select(F.col("window.start").alias("start"), "page", "n", "total")
)
query = (
    per_minute.writeStream.trigger(availableNow=True)
    .format("parquet")
    .option("checkpointLocation", args.checkpoint)
    .start(args.output)
)
query.awaitTermination()

result = spark.read.parquet(args.output)
for row in (
    result.groupBy("page").agg(F.sum("n").alias("n"), F.sum("total").alias("total")).orderBy("page").collect()
):
    print(f"RESULT {row.page} {row.n} {row.total}")
spark.stop()

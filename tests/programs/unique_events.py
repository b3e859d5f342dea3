"""Events that are sent again are counted once: deduplication, then counts per page and ten seconds, in SQL."""

import argparse

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("events")
parser.add_argument("output")
parser.add_argument("--checkpoint", required=True)
parser.add_argument("--partitions", type=int, default=8)
options = parser.parse_args()

spark = SparkSession.builder.appName("unique events").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", options.partitions)
schema = "id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP"
events = (
    spark.readStream.format("parquet").schema(schema).option("maxFilesPerTrigger", 20).load(options.events)
)
events.withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["id"]).createOrReplaceTempView(
    "events"
)

counts = spark.sql("""
    SELECT window.start AS start, page, count(*) AS n, sum(amount) AS total
    FROM events GROUP BY window(at, '10 seconds'), page
""")
(
    counts.writeStream.format("parquet")
    .option("checkpointLocation", options.checkpoint)
    .start(options.output)
    .awaitTermination()
)

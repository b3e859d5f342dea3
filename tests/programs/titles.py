"""Counts per title and half minute. Titles are made by a Python library, formats are looked up in a Java one."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

parser = argparse.ArgumentParser()
parser.add_argument("--events", required=True)
parser.add_argument("--output", required=True)
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()

spark = SparkSession.builder.appName("titles").config("spark.sql.shuffle.partitions", 8).getOrCreate()


@F.udf("string")
def title(page: str) -> str:
    import inflection

    return inflection.titleize(page)


events = (
    spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
    .option("maxFilesPerTrigger", 20)
    .json(args.events)
)
forms = F.when(F.col("id") % 2 == 0, "Excel").otherwise("MySQL")
titled = events.withColumn("title", title("page")).withColumn("form", forms)
titled = titled.withColumn("form", F.expr("reflect('org.apache.commons.csv.CSVFormat', 'valueOf', form)"))
counts = (
    titled.withWatermark("at", "10 seconds")
    .groupBy(F.window("at", "30 seconds"), "title", "form")
    .agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    .select("window.start", "title", "form", "n", "total")
)
query = (
    counts.writeStream.queryName("counts")
    .format("parquet")
    .outputMode("append")
    .option("path", args.output)
    .option("checkpointLocation", args.checkpoint)
    .start()
)
query.awaitTermination()

"""An ordinary streaming program: files in, a windowed aggregate, Parquet out. It knows nothing of Slotwise."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import udf

parser = argparse.ArgumentParser()
parser.add_argument("--format", choices=["parquet", "json", "kafka"], default="parquet")
parser.add_argument("--input", required=True, help="a folder of files, or host:port/topic")
parser.add_argument("--output", required=True)
parser.add_argument("--checkpoint", required=True)
parser.add_argument("--files-per-batch", type=int, default=8)
parser.add_argument("--records-per-batch", type=int, default=160_000)
parser.add_argument("--udf", action="store_true", help="send every row through a Python function")
args = parser.parse_args()

spark = SparkSession.builder.appName("windows").getOrCreate()
schema = "at TIMESTAMP, key BIGINT, value DOUBLE, note STRING"
if args.format == "kafka":
    servers, _, topic = args.input.partition("/")
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.records_per_batch)
        .load()
    )
    rows = records.select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select("row.*")
else:
    reader = spark.readStream.format(args.format).schema(schema)
    rows = reader.option("maxFilesPerTrigger", args.files_per_batch).load(args.input)
if args.udf:

    @udf("double")
    def scaled(value: float) -> float:
        return value * 1.21 + 3

    rows = rows.withColumn("value", scaled("value"))
windows = (
    rows.withWatermark("at", "10 seconds")
    .groupBy(F.window("at", "5 seconds"), (F.col("key") % 500).alias("key"))
    .agg(F.count("*").alias("n"), F.sum("value").alias("total"), F.max("note").alias("note"))
)
query = (
    windows.writeStream.format("parquet")
    .option("path", args.output)
    .option("checkpointLocation", args.checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# Databricks notebook source
# MAGIC %md
# MAGIC # Clickstream: bronze to gold
# MAGIC An exported notebook: cells, star imports, globals, and a session that is there in each cell.

# COMMAND ----------

# ruff: noqa: F403, F405, UP031
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import *
from pyspark.sql.types import *

spark = SparkSession.builder.appName("notebook").getOrCreate()
source_path = sys.argv[1]
base_path = sys.argv[2]
checkpoints = sys.argv[3]

# COMMAND ----------

# DBTITLE 1,Helpers
displays = 0


def display(df, rows=5):
    """Outside of Databricks there is none."""
    global displays
    if not df.isStreaming:
        return df.show(rows, truncate=False)
    displays += 1
    name = "display_query_%d" % displays
    preview = df.writeStream.format("memory").queryName(name).start()
    preview.processAllAvailable()
    spark.table(name).limit(rows).show(truncate=False)
    preview.stop()


# COMMAND ----------

clickSchema = (
    StructType()
    .add("id", LongType())
    .add("visit", StringType())
    .add("page", StringType())
    .add("amount", LongType())
    .add("at", TimestampType())
)
sample = spark.read.schema(clickSchema).json(source_path).limit(100)
display(sample)

# COMMAND ----------

# MAGIC %md ## Bronze

# COMMAND ----------

bronzeDF = (
    spark.readStream
    .schema(clickSchema)
    .option("maxFilesPerTrigger", 8)
    .json(source_path)
    .withColumn("file", element_at(split(input_file_name(), "/"), -1))
    .withColumn("size", col("_metadata.file_size"))
    .withColumn("day", to_date("at"))
)  # fmt: skip
display(bronzeDF)

# COMMAND ----------

spark.conf.set("spark.sql.shuffle.partitions", sc.defaultParallelism if "sc" in globals() else 4)
spark.conf.set("spark.sql.session.timeZone", "UTC")
spark = SparkSession.builder.getOrCreate()

bronzeQuery = (
    bronzeDF.writeStream
    .queryName("bronze")
    .partitionBy("day", "page")
    .format("parquet")
    .option("checkpointLocation", checkpoints + "/bronze")
    .trigger(processingTime="2 seconds")
    .start(base_path + "/bronze")
)  # fmt: skip

# COMMAND ----------

# MAGIC %md ## Gold

# COMMAND ----------

spark = SparkSession.builder.appName("another cell").config("spark.sql.ansi.enabled", "false").getOrCreate()
goldDF = (
    spark.readStream
    .schema(clickSchema)
    .option("maxFilesPerTrigger", 8)
    .json(source_path)
    .withWatermark("at", "10 seconds")
    .groupBy(window("at", "30 seconds", "15 seconds"), when(col("page").endswith("0"), "first").otherwise("more"))
    .agg(count("*").alias("clicks"), max("amount").alias("most"), round(avg("amount"), 2).alias("mean"))
    .toDF("w", "kind", "clicks", "most", "mean")
)  # fmt: skip
goldQuery = (
    goldDF.select(col("w.start"), "kind", "clicks", "most", "mean")
    .writeStream
    .queryName("gold")
    .format("parquet")
    .option("path", base_path + "/gold")
    .option("checkpointLocation", checkpoints + "/gold")
    .outputMode("append")
    .start()
)  # fmt: skip

# COMMAND ----------

for s in spark.streams.active:
    print("%s: %s" % (s.name, s.status["message"]))

# COMMAND ----------

try:
    goldQuery.awaitTermination()
except KeyboardInterrupt:
    for s in spark.streams.active:
        s.stop()
    print("Stopped.")

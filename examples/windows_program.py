"""The job of windows.yaml as a program."""

from pyspark.sql import SparkSession
from windows import per_window

spark = SparkSession.builder.appName("windows").getOrCreate()
numbers = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
files = per_window(numbers).writeStream.queryName("files").format("parquet").outputMode("append")
files.start("/tmp/slotwise-windows").awaitTermination()

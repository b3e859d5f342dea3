"""Logs a line by each API of log4j."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark._jvm.org.apache.log4j.LogManager.getLogger("mine").warn("by the first")
spark._jvm.org.apache.logging.log4j.LogManager.getLogger("mine").warn("by the second")

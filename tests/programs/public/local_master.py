"""Counts words of a folder; as in most tutorials, the program says on which master it runs."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

spark = SparkSession.builder.master("local[*]").appName("StructuredWordCount").getOrCreate()
words = spark.readStream.text(sys.argv[1]).select(explode(split("value", " ")).alias("word"))
words.groupBy("word").count().writeStream.outputMode("complete").format("console").start().awaitTermination()

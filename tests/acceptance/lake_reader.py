"""Prints the rows of tables as JSON, read by their own reader: lake_reader.py delta|iceberg FOLDER..."""

import json
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("reader").getOrCreate()
for folder in sys.argv[2:]:
    rows = spark.read.format(sys.argv[1]).load(folder).collect()
    print("ROWS", json.dumps([[str(value) for value in row] for row in rows]), flush=True)

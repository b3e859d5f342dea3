"""The Python vertex of windows.yaml."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def per_window(numbers: DataFrame) -> DataFrame:
    """How many numbers came in each ten seconds, and the largest; rows up to five seconds late are counted."""
    windows = numbers.withWatermark("timestamp", "5 seconds").groupBy(F.window("timestamp", "10 seconds"))
    counted = windows.agg(F.count("*").alias("n"), F.max("value").alias("largest"))
    return counted.select("window.start", "window.end", "n", "largest")

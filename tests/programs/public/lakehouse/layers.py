"""One class for each layer."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from .base import BaseJob


@F.udf(LongType())
def cents(amount):
    return amount * 100


class BronzeJob(BaseJob):
    def transform(self, df: DataFrame) -> DataFrame:
        return df.withColumn("source", F.lit(self.name))


class SilverJob(BaseJob):
    def transform(self, df: DataFrame) -> DataFrame:
        return (
            df.where(F.col("amount") > 20)
            .withWatermark("at", "10 seconds")
            .dropDuplicates(["id", "at"])
            .withColumn("cents", cents("amount"))
            .select("id", "page", "cents", "at")
        )


class GoldJob(BaseJob):
    def transform(self, df: DataFrame) -> DataFrame:
        window = F.window("at", self.conf["window"])
        return (
            df.withWatermark("at", "10 seconds")
            .groupBy(window.alias("w"), "page")
            .agg(F.count("*").alias("n"), F.sum("cents").alias("cents"))
            .select("w.start", "page", "n", "cents")
        )

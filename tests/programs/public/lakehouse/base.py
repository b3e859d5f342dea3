"""What the jobs of all layers have in common."""

import logging
import os
import time
from abc import ABC, abstractmethod

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


class BaseJob(ABC):
    def __init__(self, spark: SparkSession, name: str, conf: dict) -> None:
        self.spark, self.name, self.conf = spark, name, conf
        self.logger = logging.getLogger(f"{__name__}.{type(self).__name__}")

    @abstractmethod
    def transform(self, df: DataFrame) -> DataFrame:
        """What this layer makes of the one before."""

    def read(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.conf["schema"])
        return reader.format(self.conf["format"]).load(self.conf["source"])

    def wait_for_source(self) -> None:
        if self.conf.get("upstream"):
            log = os.path.join(self.conf["source"], "_spark_metadata", "0")
            while not os.path.exists(log):
                self.logger.info("waiting for %s", log)
                time.sleep(0.5)

    def run(self) -> StreamingQuery:
        self.wait_for_source()
        self.logger.info("starting %s", self.name)
        return (
            self.transform(self.read())
            .writeStream.queryName(self.name)
            .format("parquet")
            .outputMode("append")
            .options(path=self.conf["target"], checkpointLocation=self.conf["checkpoint"])
            .trigger(**self.conf.get("trigger", {"processingTime": "0 seconds"}))
            .start()
        )

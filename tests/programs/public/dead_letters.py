"""Records that cannot be read go to a folder of dead letters; each batch overwrites its partition."""

import argparse
import os
from dataclasses import dataclass

import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, length, lit, when
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType

CORRUPT = "_corrupt_record"
log = structlog.get_logger(__name__)


@dataclass
class DataSink:
    path: str

    def put(self, frame: DataFrame) -> None:
        frame.write.mode("overwrite").partitionBy("batch_id").parquet(self.path)


class StreamProcessor:
    """Reads lines, parses each batch and routes its records to one of two sinks."""

    schema = StructType(
        [
            StructField("device", StringType()),
            StructField("reading", DoubleType()),
            StructField("at", TimestampType()),
            StructField(CORRUPT, StringType()),
        ]
    )

    def __init__(
        self, session: SparkSession, source: str, sink: DataSink, dead: DataSink, checkpoint: str
    ) -> None:
        self.session, self.source, self.sink, self.dead, self.checkpoint = (
            session,
            source,
            sink,
            dead,
            checkpoint,
        )

    def process_batch(self, batch: DataFrame, batch_id: int) -> None:
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        parsed = batch.withColumn("r", from_json(col("value"), self.schema, options)).select("value", "r.*")
        parsed.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            is_bad = col(CORRUPT).isNotNull() | col("device").isNull() | col("reading").isNull()
            why = (
                when(col(CORRUPT).isNotNull(), "corrupt")
                .when(col("device").isNull(), "no device")
                .otherwise("no reading")
            )
            good = (
                parsed.where(~is_bad).select("device", "reading", "at").withColumn("batch_id", lit(batch_id))
            )
            bad = parsed.where(is_bad).select("value", why.alias("why"), length("value").alias("length"))
            self.sink.put(good)
            self.dead.put(bad.withColumn("batch_id", lit(batch_id)))
            log.info("batch", id=batch_id, records=parsed.count(), dead=parsed.where(is_bad).count())
        finally:
            parsed.unpersist()

    def run(self) -> None:
        lines = self.session.readStream.format("text").option("maxFilesPerTrigger", "8").load(self.source)
        query = (
            lines.writeStream.foreachBatch(self.process_batch)
            .queryName("router")
            .option("checkpointLocation", self.checkpoint)
            .trigger(processingTime="500 milliseconds")
            .start()
        )
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("--out", default=os.environ.get("OUT_DIR", "out"))
    parser.add_argument("--checkpoint", default="checkpoint")
    arguments = parser.parse_args()
    spark = (
        SparkSession.builder.appName("router")
        .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
        .getOrCreate()
    )
    StreamProcessor(
        spark,
        arguments.source,
        DataSink(os.path.join(arguments.out, "readings")),
        DataSink(os.path.join(arguments.out, "dead")),
        arguments.checkpoint,
    ).run()

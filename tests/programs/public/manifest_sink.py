#!/usr/bin/env python3
"""Python Data Sources at both ends: two readers of numbered files, and a sink with a manifest for each batch."""

import argparse
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.functions import col, lit
from pyspark.sql.types import LongType, StringType, StructField, StructType


@dataclass
class OneFile(InputPartition):
    path: str


@dataclass
class PartWritten(WriterCommitMessage):
    file: str
    rows: int


class NumberedFiles(DataSource):
    """Options: ``path``; one JSON object a line, files are named 000000, 000001, ..."""

    @classmethod
    def name(cls):
        return "numbered"

    def schema(self):
        return "order_id long, amount long, ordered string"

    def streamReader(self, schema: StructType):
        return NumberedFilesReader(schema, self.options)


class NumberedFilesReader(DataSourceStreamReader):
    def __init__(self, schema, options):
        self.fields = schema.fieldNames()
        self.path = options["path"]

    def initialOffset(self):
        return {"file": 0}

    def latestOffset(self):
        return {"file": len(os.listdir(self.path))}

    def partitions(self, start, end):
        return [OneFile(os.path.join(self.path, f"{n:06}")) for n in range(start["file"], end["file"])]

    def read(self, partition: OneFile):
        with open(partition.path) as lines:
            for line in lines:
                record = json.loads(line)
                yield tuple(record[name] for name in self.fields)

    def commit(self, end):
        print(f"orders: done up to file {end['file']}")


class Payments(DataSource):
    def schema(self):
        return StructType([StructField("paid_order", LongType()), StructField("payment", StringType())])

    def simpleStreamReader(self, schema):
        return PaymentsReader(self.options)


class PaymentsReader(SimpleDataSourceStreamReader):
    FILES_AT_ONCE = 5

    def __init__(self, options):
        self.path = options.get("path")

    def initialOffset(self):
        return {"file": 0}

    def read(self, start):
        end = {"file": min(start["file"] + self.FILES_AT_ONCE, len(os.listdir(self.path)))}
        return (self.readBetweenOffsets(start, end), end)

    def readBetweenOffsets(self, start, end) -> Iterator[tuple]:
        rows = []
        for number in range(start["file"], end["file"]):
            with open(os.path.join(self.path, f"{number:06}")) as lines:
                rows += [(one["paid_order"], one["payment"]) for one in map(json.loads, lines)]
        return iter(rows)


class ManifestSink(DataSource):
    @classmethod
    def name(cls):
        return "manifest"

    def streamWriter(self, schema, overwrite):
        return ManifestWriter(self.options["path"])


class ManifestWriter(DataSourceStreamWriter):
    def __init__(self, path):
        self.path = path

    def write(self, iterator):
        os.makedirs(self.path, exist_ok=True)
        file, rows = os.path.join(self.path, f"part-{uuid.uuid4()}.json"), 0
        with open(file, "w") as output:
            for row in iterator:
                output.write(json.dumps(row.asDict()) + "\n")
                rows += 1
        return PartWritten(file, rows)

    def commit(self, messages, batchId):
        manifest = os.path.join(self.path, f"{batchId}.manifest")
        with open(manifest + ".tmp", "w") as output:
            json.dump([os.path.basename(one.file) for one in messages if one.rows], output)
        os.replace(manifest + ".tmp", manifest)

    def abort(self, messages, batchId):
        for one in messages:
            if one is not None:
                os.remove(one.file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders")
    parser.add_argument("--payments")
    parser.add_argument("--target")
    parser.add_argument("--checkpoint")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("PythonDataSources").getOrCreate()
    for source in (NumberedFiles, Payments, ManifestSink):
        spark.dataSource.register(source)

    orders = spark.readStream.format("numbered").option("path", args.orders).load()
    payments = spark.readStream.format("Payments").options(path=args.payments).load()
    movements = orders.select(col("order_id").alias("key"), lit("order").alias("kind"), "amount").unionByName(
        payments.select(col("paid_order").alias("key"), col("payment").alias("kind")),
        allowMissingColumns=True,
    )
    query = (
        movements.writeStream.format("manifest")
        .option("path", args.target)
        .option("checkpointLocation", args.checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()

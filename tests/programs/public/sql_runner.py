"""Runs .sql files over streams: a YAML file has sources and sinks, the statements make the views between them."""

import argparse
import logging
import re
from pathlib import Path
from string import Template

import yaml
from pyspark.sql import DataFrame, SparkSession

logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(name)s - %(levelname)s - %(message)s")
logger = logging.getLogger("sql-runner")


def get_args():
    parser = argparse.ArgumentParser(prog="sql_runner")
    parser.add_argument("-c", "--config", required=True)
    parser.add_argument("-f", "--file", action="append", required=True, help="may be given more than once")
    parser.add_argument("-d", "--define", action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


def split_statements(text: str) -> list:
    without_comments = re.sub(r"--[^\n]*", "", text)
    return [statement.strip() for statement in without_comments.split(";") if statement.strip()]


def register_source(spark: SparkSession, source: dict) -> None:
    reader = spark.readStream.format(source["format"]).options(**source.get("options", {}))
    stream = reader.schema(source["schema"]).load(source["path"])
    if "watermark" in source:
        stream = stream.withWatermark(source["watermark"]["column"], source["watermark"]["delay"])
    stream.createOrReplaceTempView(source["name"])
    logger.info("registered %s", source["name"])


def write_sink(df: DataFrame, sink: dict, base: dict):
    writer = df.writeStream.queryName(sink["view"]).outputMode(sink.get("mode", "append"))
    writer = writer.format(sink["format"]).options(**sink.get("options", {}))
    if interval := sink.get("every"):
        writer = writer.trigger(processingTime=interval)
    writer = writer.option("checkpointLocation", f"{base['checkpoint']}/{sink['view']}")
    return writer.start(f"{base['output']}/{sink['view']}")


if __name__ == "__main__":
    args = get_args()
    here = Path(__file__).parent
    variables = dict(pair.split("=", 1) for pair in args.define)
    config = yaml.safe_load(Template((here / args.config).read_text()).substitute(variables))

    builder = SparkSession.builder.appName(config["name"])
    for key, value in config.get("spark", {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    for source in config["sources"]:
        register_source(spark, source)
    for file in args.file:
        for statement in split_statements((here / file).read_text()):
            logger.info("executing: %s", " ".join(statement.split())[:80])
            spark.sql(statement)
    queries = [write_sink(spark.table(sink["view"]), sink, config["target"]) for sink in config["sinks"]]
    logger.info("%d queries: %s", len(queries), [query.name for query in queries])
    for query in queries:
        query.awaitTermination()

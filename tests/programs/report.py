#!/usr/bin/env python3
"""Figures per page, with a logger, subcommands' worth of options and helpers in a module of their own."""

import argparse
import logging
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from report_helpers import Progress, category, read_events, settings

log = logging.getLogger("report")


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--level", default="INFO", choices=["DEBUG", "INFO", "WARNING"])
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    logging.basicConfig(level=args.level, stream=sys.stdout, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    builder = SparkSession.builder.appName("report")
    for name, value in settings().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.streams.addListener(Progress(log))
    log.info("Spark %s reads %s", spark.version, args.events)

    events = read_events(spark, args.events).withColumn("category", udf(category)("page"))
    events.createOrReplaceTempView("events")
    figures = spark.sql("""
        SELECT window.start AS start, category, count(*) AS n, sum(amount) AS total, max(amount) AS largest
        FROM events GROUP BY window(at, '20 seconds'), category
    """)
    query = (
        figures.writeStream.format("json")
        .outputMode("append")
        .start(str(args.output), queryName="figures", checkpointLocation=str(args.checkpoint))
    )
    try:
        query.awaitTermination()
    finally:
        log.info("the query has ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())

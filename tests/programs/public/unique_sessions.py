"""Duplicates are dropped, and sessions written to a table of Hive's catalog, which a thread reads meanwhile."""

import argparse
import json
import threading
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

parser = argparse.ArgumentParser()
parser.add_argument("-i", "--input", dest="input", required=True)
parser.add_argument("-w", "--warehouse", dest="warehouse", required=True)
parser.add_argument("-c", "--checkpoint", dest="checkpoint", required=True)
args = parser.parse_args()

spark = (
    SparkSession.builder.appName("unique-sessions")
    .config("spark.sql.warehouse.dir", args.warehouse)
    .config("spark.sql.shuffle.partitions", "4")
    .enableHiveSupport()
    .getOrCreate()
)
spark.sql("SHOW TABLES").show()


def monitor(query):
    while query.isActive:
        progress = query.lastProgress
        if progress:
            print(
                json.dumps({"batch": progress["batchId"], "rows": progress["numInputRows"]}),
                query.status["message"],
            )
            if spark.catalog.tableExists("sessions"):
                spark.sql("REFRESH TABLE sessions")
                spark.sql("SELECT count(*) AS sessions, sum(events) AS events FROM sessions").show()
        time.sleep(1)


events = (
    spark.readStream.option("maxFilesPerTrigger", 15)
    .schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
    .json(args.input)
)
sessions = (
    events.withWatermark("at", "10 seconds")
    .dropDuplicatesWithinWatermark(["id"])
    .groupBy(F.session_window("at", "25 seconds"), "visit")
    .agg(
        F.count("*").alias("events"),
        F.approx_count_distinct("page").alias("about_pages"),
        F.sort_array(F.collect_set("page")).alias("pages"),
        F.max("amount").alias("most"),
    )
    .selectExpr(
        "visit",
        "session_window.start AS start",
        "session_window.end AS end",
        "* EXCEPT (visit, session_window)",
    )
)
query = (
    sessions.writeStream.option("checkpointLocation", args.checkpoint)
    .outputMode("append")
    .trigger(processingTime="1 seconds")
    .toTable("sessions", format="parquet")
)
thread = threading.Thread(target=monitor, args=(query,), name="monitor")
thread.start()
query.awaitTermination()
thread.join()

"""Monitoring: a listener sends StatsD datagrams, observed metrics watch the quality of the data, asyncio waits."""

import argparse
import asyncio
import logging
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

log = logging.getLogger(__name__)


class StatsD:
    def __init__(self, address, prefix="spark"):
        host, port = address.rsplit(":", 1)
        self.address, self.prefix = (host, int(port)), prefix
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def gauge(self, name, value, **tags):
        tail = ",".join(f"{key}:{tag}" for key, tag in tags.items())
        self.socket.sendto(f"{self.prefix}.{name}:{value}|g|#{tail}".encode(), self.address)


class Metrics(StreamingQueryListener):
    def __init__(self, statsd, max_bad_ratio, on_bad):
        self.statsd, self.max_bad_ratio, self.on_bad = statsd, max_bad_ratio, on_bad
        self.pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="statsd")

    def onQueryStarted(self, event):
        log.info("started %s as %s", event.name, event.runId)

    def onQueryProgress(self, event):
        progress = event.progress
        self.pool.submit(self.statsd.gauge, "input", progress.numInputRows, batch=progress.batchId)
        for name, row in progress.observedMetrics.items():
            for field, value in row.asDict().items():
                self.pool.submit(self.statsd.gauge, f"{name}.{field}", value, batch=progress.batchId)
        quality = progress.observedMetrics.get("quality")
        if quality is not None and quality.rows > 50 and quality.bad / quality.rows > self.max_bad_ratio:
            log.error("batch %s has %s bad rows of %s", progress.batchId, quality.bad, quality.rows)
            self.on_bad()

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        log.info("terminated %s: %s", event.id, event.exception)


async def report(query, every):
    """Prints what is new until it is cancelled."""
    seen = -1
    while True:
        progress = await asyncio.to_thread(lambda: query.lastProgress)
        if progress and progress["batchId"] > seen:
            seen = progress["batchId"]
            log.info("batch %s took %s ms", seen, progress["durationMs"].get("triggerExecution"))
        await asyncio.sleep(every)


async def watch(query, stop):
    reporter = asyncio.create_task(report(query, 1.0))
    try:
        while not stop.is_set():
            if await asyncio.to_thread(query.awaitTermination, 2):
                return
        log.warning("stopping %s: the data are bad", query.name)
        await asyncio.to_thread(query.stop)
    finally:
        reporter.cancel()


async def main(args):
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    spark = (
        SparkSession.builder.appName("monitored").config("spark.sql.shuffle.partitions", "6").getOrCreate()
    )
    listener = Metrics(StatsD(args.statsd), args.max_bad, lambda: loop.call_soon_threadsafe(stop.set))
    spark.streams.addListener(listener)
    events = (
        spark.readStream.schema("id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP")
        .option("maxFilesPerTrigger", 10)
        .json(args.events)
    )
    checked = events.observe(
        "quality",
        F.count(F.lit(1)).alias("rows"),
        F.count(F.when(F.col("amount") < 50, 1)).alias("bad"),
        F.max("id").alias("newest"),
    )
    sums = (
        checked.where("amount >= 50")
        .withWatermark("at", "10 seconds")
        .groupBy(F.window("at", "20 seconds"), "page")
        .agg(F.sum("amount").alias("total"))
        .observe("result", F.count(F.lit(1)).alias("windows"))
    )
    query = (
        sums.selectExpr("window.end AS end", "page", "total")
        .writeStream.queryName("sums")
        .format("json")
        .option("checkpointLocation", args.checkpoint)
        .start(args.output)
    )
    await watch(query, stop)
    return 3 if stop.is_set() else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--statsd", default="127.0.0.1:8125")
    parser.add_argument("--max-bad", type=float, default=0.5)
    logging.basicConfig(level="INFO", stream=sys.stdout, format="%(asctime)s %(threadName)s %(message)s")
    logging.getLogger("py4j").setLevel("WARNING")
    sys.exit(asyncio.run(main(parser.parse_args())))

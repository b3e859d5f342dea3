"""A scheduler: in each round the queries of several tables are started and awaited, until the last record has come."""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

TABLES = {
    "orders": "order_id BIGINT, amount BIGINT, ordered TIMESTAMP",
    "payments": "paid_order BIGINT, payment STRING, paid TIMESTAMP",
}
LAST = {"orders": "order_id = -1", "payments": "paid_order = -2"}


class Job:
    """What `schedule.every(n).seconds.do(f)` makes, without the library."""

    def __init__(self, seconds, function):
        self.seconds, self.function, self.next_run, self.runs = seconds, function, 0.0, 0

    def run_if_due(self):
        if time.monotonic() < self.next_run:
            return None
        self.runs += 1
        result = self.function(self.runs)
        # Less often, the longer it goes on.
        self.next_run = time.monotonic() + min(self.seconds * self.runs, 3.0)
        return result


class Pipeline:
    def __init__(self, spark, landing, lake, checkpoints):
        self.spark, self.landing, self.lake, self.checkpoints = spark, landing, lake, checkpoints

    def path(self, table):
        return f"{self.lake}/{table}"

    def write(self, df, table, trigger):
        return (
            df.writeStream.queryName(table)
            .format("parquet")
            .option("path", self.path(table))
            .option("checkpointLocation", f"{self.checkpoints}/{table}")
            .trigger(**trigger)
            .start()
        )

    def bronze(self, table, trigger):
        raw = (
            self.spark.readStream.schema(TABLES[table])
            .option("maxFilesPerTrigger", 10)
            .json(f"{self.landing}/{table}")
        )
        return self.write(raw, f"bronze_{table}", trigger)

    def silver(self, trigger):
        read = self.spark.readStream
        orders = read.schema(TABLES["orders"]).parquet(self.path("bronze_orders"))
        payments = self.spark.readStream.schema(TABLES["payments"]).parquet(self.path("bronze_payments"))
        joined = orders.withWatermark("ordered", "10 seconds").join(
            payments.withWatermark("paid", "10 seconds"),
            expr("order_id = paid_order AND paid BETWEEN ordered AND ordered + INTERVAL 1 MINUTE"),
        )
        return self.write(joined.select("order_id", "payment", "amount"), "silver", trigger)

    def run(self, number):
        print(f"--- round {number}")
        if number % 3 == 0:
            # Now and then without an end of its own, at another interval each time.
            queries = [self.bronze(t, {"processingTime": f"{number * 100} milliseconds"}) for t in TABLES]
            for query in queries:
                query.processAllAvailable()
                query.stop()
        else:
            for table in TABLES:
                self.bronze(table, {"availableNow": True})
        self.await_all(60)
        self.silver({"availableNow": True})
        self.await_all(60)
        return self.has_ended()

    def await_all(self, timeout):
        while self.spark.streams.active:
            if self.spark.streams.awaitAnyTermination(timeout):
                self.spark.streams.resetTerminated()
            else:
                print("still busy:", [query.name for query in self.spark.streams.active])

    def has_ended(self):
        tables = {table: self.spark.read.parquet(self.path(f"bronze_{table}")) for table in TABLES}
        return all(not tables[table].where(last).isEmpty() for table, last in LAST.items())


if __name__ == "__main__":
    spark = SparkSession.builder.appName("rounds").config("spark.sql.shuffle.partitions", "4").getOrCreate()
    pipeline = Pipeline(spark, *sys.argv[1:4])
    job = Job(seconds=0.2, function=pipeline.run)
    while True:
        if job.run_if_due():
            break
        time.sleep(0.1)
    silver = spark.read.parquet(pipeline.path("silver"))
    print("RESULT", silver.count(), silver.where(col("amount") > 500).count())
    spark.stop()

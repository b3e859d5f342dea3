"""Orders with their payments, and those that nobody paid within twenty seconds: two streams, an outer join."""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr


def main(orders_folder, payments_folder, output, checkpoint):
    spark = SparkSession.builder.appName("orders-and-payments").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "6")

    orders = (
        spark.readStream.schema("order_id LONG, amount LONG, ordered TIMESTAMP")
        .option("maxFilesPerTrigger", 20)
        .json(orders_folder)
        .withWatermark("ordered", "10 seconds")
    )
    payments = (
        spark.readStream.schema("paid_order LONG, payment STRING, paid TIMESTAMP")
        .option("maxFilesPerTrigger", 20)
        .json(payments_folder)
        .withWatermark("paid", "10 seconds")
    )
    joined = orders.join(
        payments,
        expr("paid_order = order_id AND paid BETWEEN ordered AND ordered + INTERVAL 20 SECONDS"),
        "leftOuter",
    )
    return (
        joined.select("order_id", "amount", "payment", "paid")
        .writeStream.format("json")
        .outputMode("append")
        .start(output, checkpointLocation=checkpoint)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("orders", "payments", "output", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    main(options.orders, options.payments, options.output, options.checkpoint).awaitTermination()

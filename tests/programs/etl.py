"""Orders of a day joined with customers, products and stores, each looked up at a slow service: a batch program."""

import argparse
import hashlib
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

parser = argparse.ArgumentParser()
parser.add_argument("--input", required=True)
parser.add_argument("--output", required=True)
parser.add_argument("--lookup-ms", type=int, default=20)
args = parser.parse_args()

spark = SparkSession.builder.appName("orders of a day").getOrCreate()
tables = {
    name: spark.read.option("header", True).option("inferSchema", True).csv(f"{args.input}/{name}.csv")
    for name in ("orders", "customers", "products", "stores")
}


@F.udf("string")
def rating(customer: str, amount: int) -> str:
    time.sleep(args.lookup_ms / 1000)
    return hashlib.sha256(f"{customer}:{amount}".encode()).hexdigest()[:4]


joined = (
    tables["orders"]
    .repartition(24)
    .join(tables["customers"], "customer_id")
    .join(tables["products"], "product_id")
    .join(tables["stores"], "store_id", "left")
    .withColumn("total", F.col("amount") * F.col("price"))
    .withColumn("rating", rating("customer", "amount"))
)
joined.write.mode("overwrite").partitionBy("region").parquet(f"{args.output}/orders")

written = spark.read.parquet(f"{args.output}/orders")
figures = written.groupBy("region", "segment").agg(F.count("*").alias("n"), F.sum("total").alias("total"))
figures.coalesce(1).write.mode("overwrite").option("header", True).csv(f"{args.output}/figures")
for row in figures.orderBy("region", "segment").collect():
    print(f"RESULT {row.region} {row.segment} {row.n} {row.total}")
spark.stop()

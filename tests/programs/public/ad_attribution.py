"""Which impressions were clicked: a left outer join of two streams, and windows of campaigns behind it."""

import sys

from ad_logger import Log4j
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, expr, from_json, to_timestamp, udf, window
from pyspark.sql.types import StringType, StructField, StructType

if __name__ == "__main__":
    spark = (
        SparkSession.builder.appName("Ad attribution")
        .config("spark.streaming.stopGracefullyOnShutdown", "true")
        .config("spark.sql.shuffle.partitions", 3)
        .getOrCreate()
    )
    logger = Log4j(spark)

    impressionSchema = StructType(
        [
            StructField("ImpressionID", StringType()),
            StructField("CreatedTime", StringType()),
            StructField("Campaigner", StringType()),
        ]
    )
    clickSchema = StructType(
        [StructField("ImpressionID", StringType()), StructField("CreatedTime", StringType())]
    )
    tiers = spark.sparkContext.broadcast({f"campaign-{n}": "gold" if n < 3 else "basic" for n in range(9)})
    tier_of = udf(lambda name: tiers.value.get(name, "unknown"), StringType())

    impressions_df = (
        spark.readStream.format("text")
        .load(sys.argv[1])
        .select(from_json(col("value").cast("string"), impressionSchema).alias("value"))
        .selectExpr("value.ImpressionID", "value.CreatedTime", "value.Campaigner")
        .withColumn("ImpressionTime", to_timestamp(col("CreatedTime"), "yyyy-MM-dd HH:mm:ss"))
        .withColumn("Tier", tier_of(col("Campaigner")))
        .drop("CreatedTime")
        .withWatermark("ImpressionTime", "10 seconds")
    )
    clicks_df = (
        spark.readStream.format("text")
        .load(sys.argv[2])
        .select(from_json(col("value").cast("string"), clickSchema).alias("value"))
        .selectExpr("value.ImpressionID as ClickID", "value.CreatedTime")
        .withColumn("ClickTime", to_timestamp(col("CreatedTime"), "yyyy-MM-dd HH:mm:ss"))
        .drop("CreatedTime")
        .withWatermark("ClickTime", "10 seconds")
    )

    join_expr = (
        "ImpressionID == ClickID AND ClickTime BETWEEN ImpressionTime AND ImpressionTime + interval 5 seconds"
    )
    joined_df = impressions_df.join(clicks_df, expr(join_expr), "leftOuter")
    rates_df = (
        joined_df.groupBy(window("ImpressionTime", "20 seconds"), "Campaigner", "Tier")
        .agg(count("*").alias("Seen"), count("ClickID").alias("Clicked"))
        .select("window.start", "window.end", "Campaigner", "Tier", "Seen", "Clicked")
    )

    output_query = (
        rates_df.writeStream.format("parquet")
        .outputMode("append")
        .option("path", sys.argv[3])
        .option("checkpointLocation", sys.argv[4])
        .trigger(processingTime="1 second")
        .start()
    )
    logger.info("Waiting for Query")
    output_query.awaitTermination()

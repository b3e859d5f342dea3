"""Taxi rides as nested records: higher-order functions, a type of its own, rollup and cube in complete mode."""

import os
import shutil
import sys

from geometry import Point, PointUDT
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

STOP = T.StructType(
    [
        T.StructField("x", T.LongType()),
        T.StructField("y", T.LongType()),
        T.StructField("wait_s", T.IntegerType()),
    ]
)
RIDE = T.StructType(
    [
        T.StructField(
            "ride",
            T.StructType()
            .add("id", "long")
            .add("driver", T.StructType().add("id", "long").add("city", "string")),
        ),
        T.StructField("started", T.TimestampType(), True),
        T.StructField("stops", T.ArrayType(STOP)),
        T.StructField("fares", T.MapType(T.StringType(), T.LongType())),
    ]
)

point = F.udf(lambda stop: Point(stop.x, stop.y), PointUDT())
blocks = F.udf(lambda a, b: a.distance(b), T.LongType())


def copy_to_parquet(path):
    """Complete mode: the whole table each time, in the place of the one before."""

    def write(df, epoch_id):
        new, old = path + ".new", path + ".old"
        df.coalesce(1).write.mode("overwrite").parquet(new)
        if os.path.exists(path):
            shutil.rmtree(old, ignore_errors=True)
            os.rename(path, old)
        os.rename(new, path)

    return write


if __name__ == "__main__":
    base, out, chk = sys.argv[1], sys.argv[2], sys.argv[3]
    spark = SparkSession.builder.appName("Rides").config("spark.sql.shuffle.partitions", 4).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    rides = (
        spark.readStream.schema(RIDE)
        .option("maxFilesPerTrigger", 20)
        .json(base)
        .select(
            F.col("ride.id").alias("id"),
            "ride.driver.*",
            "started",
            "stops",
            F.transform("stops", lambda s, i: F.struct(i.alias("i"), (s.x * 100 + s.y).alias("cell"))).alias(
                "cells"
            ),
            F.aggregate("stops", F.lit(0), lambda acc, s: acc + s.wait_s).alias("waited"),
            F.filter(F.map_entries("fares"), lambda f: f.value > 0).alias("paid"),
        )
        .toDF("id", "driver", "city", "started", "stops", "cells", "waited", "paid")
    )
    rides = rides.withColumn("pickup", point(F.element_at("stops", 1))).withColumn(
        "drop_off", point(F.element_at("stops", -1))
    )
    rides = rides.withColumn("blocks", blocks("pickup", "drop_off"))
    rides.printSchema()

    legs = rides.select("id", "pickup", "blocks", "waited", F.explode("cells").alias("leg")).select(
        "id", "pickup", "blocks", "waited", "leg.*"
    )
    fares = rides.select("city", "driver", F.explode(F.map_from_entries("paid")).alias("kind", "amount"))

    legs.writeStream.queryName("legs").format("parquet").option("checkpointLocation", chk + "/legs").start(
        out + "/legs"
    )
    by_driver = fares.rollup("city", "driver").agg(
        F.sum("amount").alias("amount"), F.count("kind").alias("n")
    )
    by_driver.writeStream.queryName("by_driver").outputMode("complete").format("memory").option(
        "checkpointLocation", chk + "/by_driver"
    ).start()
    cube = fares.cube("city", "kind").agg(F.sum("amount").alias("amount"), F.grouping_id().alias("level"))
    cube.writeStream.queryName("cube").outputMode("complete").option(
        "checkpointLocation", chk + "/cube"
    ).foreachBatch(copy_to_parquet(out + "/cube")).start()
    fares.groupBy("kind").count().writeStream.queryName("console").outputMode("complete").format(
        "console"
    ).option("truncate", False).start()

    while not spark.streams.awaitAnyTermination(5):
        spark.sql("SELECT * FROM by_driver WHERE driver IS NULL ORDER BY city").show(5, False)

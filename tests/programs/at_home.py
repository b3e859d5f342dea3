"""Writes down where it is, as Python, its workers, Java, Hadoop, Derby and Spark see it, and copies lines of text from
one relative path to another."""

import json
import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
context, java = spark.sparkContext, spark._jvm
number = len([name for name in os.listdir(".") if name.startswith("seen-")])
os.makedirs("input", exist_ok=True)
with open(f"input/{number}.txt", "w") as file:
    file.write(f"line {number}\n")
with open("one.txt", "w") as file:
    file.write("one")


@udf
def worker(_):
    import os

    return os.getcwd()


spark.range(1).write.mode("overwrite").parquet("parquet")
context.addFile("one.txt")
if number == 0:
    spark.range(1).write.saveAsTable("numbers")
with open(__file__) as file:
    beside = len(file.read()) > 0
derby = "jdbc:derby:metastore_db;create=true"
java.java.sql.DriverManager.getConnection(derby).close()
hadoop = context._jsc.hadoopConfiguration()
path = java.org.apache.hadoop.fs.Path("x")
files = java.org.apache.hadoop.fs.FileContext.getFileContext(hadoop)
seen = {
    "python": os.getcwd(),
    "worker": context.parallelize([0]).map(lambda _: os.getcwd()).first(),
    "udf": spark.range(1).select(worker("id")).first()[0],
    "user.dir": java.System.getProperty("user.dir"),
    "java.io": java.java.io.File("x").getCanonicalPath(),
    "java.nio": str(
        java.java.nio.file.Path.of(".", spark._sc._gateway.new_array(java.String, 0))
        .toRealPath(spark._sc._gateway.new_array(java.java.nio.file.LinkOption, 0))
        .toString()
    ),
    "hadoop": str(path.getFileSystem(hadoop).makeQualified(path).toString()),
    "hadoop's contexts": str(files.makeQualified(path).toString()),
    "warehouse": spark.conf.get("spark.sql.warehouse.dir"),
    "own warehouse": spark.newSession().conf.get("spark.sql.warehouse.dir"),
    "context": context.getConf().get("spark.sql.warehouse.dir"),
    "default": spark.catalog.getDatabase("default").locationUri,
    "table": number
    or spark.sql("DESCRIBE EXTENDED numbers").where("col_name = 'Location'").first()["data_type"],
    "derby.log": os.path.exists("derby.log"),
    "metastore_db": os.path.isdir("metastore_db"),
    "parquet": os.path.isdir("parquet"),
    "beside the script": beside,
    "checkpoint": os.path.isdir("checkpoint/commits"),
}
with open("seen-new", "w") as file:
    json.dump(seen, file)
os.rename("seen-new", f"seen-{number}.json")
query = (
    spark.readStream.text("input")
    .writeStream.format("parquet")
    .option("checkpointLocation", "checkpoint")
    .start("output")
)
query.awaitTermination()

"""Analysis of an access log: several queries of one frame; two fill tables in memory, which a thread serves by HTTP."""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as func

logs_dir, output_dir, checkpoint_dir = sys.argv[1:4]
os.makedirs(output_dir, exist_ok=True)

conf = SparkConf().setAppName("AccessLogs").set("spark.sql.ansi.enabled", "false")
conf.set("spark.sql.shuffle.partitions", "3")
sc = SparkContext(conf=conf)
sc.setLogLevel("WARN")
spark = SparkSession(sc)

host_exp = r"^(\S+)\s"
time_exp = r"\[(\d{2}/\w{3}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4})]"
request_exp = r"\"(\S+)\s(\S+)\s*(\S*)\""
status_exp = r"\s(\d{3})\s"
size_exp = r"\s(\d+)$"

lines = spark.readStream.text(logs_dir)
logs = lines.select(
    func.regexp_extract("value", host_exp, 1).alias("host"),
    func.to_timestamp(func.regexp_extract("value", time_exp, 1), "dd/MMM/yyyy:HH:mm:ss Z").alias("time"),
    func.regexp_extract("value", request_exp, 1).alias("method"),
    func.regexp_extract("value", request_exp, 2).alias("endpoint"),
    func.regexp_extract("value", status_exp, 1).cast("integer").alias("status"),
    func.regexp_extract("value", size_exp, 1).cast("integer").alias("size"),
)

by_endpoint = (
    logs.where("status IS NOT NULL")
    .withWatermark("time", "10 seconds")
    .groupBy(func.window("time", "30 seconds", "10 seconds"), "endpoint")
    .agg(
        func.count("*").alias("hits"),
        func.sum("size").alias("bytes"),
        func.approx_count_distinct("host").alias("hosts"),
    )
    .select(func.col("window.end").alias("end"), "endpoint", "hits", "bytes", "hosts")
)
q1 = (
    by_endpoint.writeStream.queryName("endpoints")
    .format("parquet")
    .option("checkpointLocation", checkpoint_dir + "/endpoints")
    .start(output_dir + "/endpoints")
)
q2 = (
    logs.where("status >= 500 OR status IS NULL")
    .writeStream.queryName("errors")
    .format("json")
    .option("checkpointLocation", checkpoint_dir + "/errors")
    .start(output_dir + "/errors")
)
# Tables to look at while this runs.
q3 = (
    logs.groupBy("status")
    .count()
    .writeStream.outputMode("complete")
    .format("memory")
    .queryName("counts")
    .start()
)
q4 = (
    logs.where("status = 404")
    .select("host", "endpoint")
    .writeStream.format("memory")
    .queryName("missing")
    .start()
)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            rows = spark.sql(f"SELECT * FROM {self.path.strip('/')}").collect()
            status, body = 200, json.dumps([row.asDict() for row in rows])
        except Exception as e:
            status, body = 503, json.dumps({"error": str(e)})
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
with open(output_dir + "/port", "w") as f:
    f.write(str(server.server_port))

try:
    spark.streams.awaitAnyTermination()
finally:
    server.shutdown()
    print("final:", [(q.name, q.lastProgress and q.lastProgress["batchId"]) for q in (q1, q2, q3, q4)])

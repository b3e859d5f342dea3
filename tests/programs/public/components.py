"""Connected components, kept up to date: RDDs in foreachBatch, a loop of joins, a table replaced by a rename."""

# ruff: noqa: UP031
import os
import shutil
import sys

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

conf = SparkConf().setAppName("components").set("spark.rdd.compress", "true")
sc = SparkContext(conf=conf)
spark = SparkSession(sc)

events_dir, state_dir, checkpoint_dir = sys.argv[1:4]
LABELS = StructType([StructField("node", StringType()), StructField("root", StringType())])
changes = sc.accumulator(0)
PARTITIONS = 4


def edges_of(rows):
    """Visits are connected with the basket of their amount in the same stretch of time."""
    for row in rows:
        stretch = row.visit.split("-")[-2:][0]
        yield (row.visit, "basket-%s-%d" % (stretch, row.amount % 9))


def read_labels():
    current = os.path.join(state_dir, "CURRENT")
    if not os.path.exists(current):
        return sc.parallelize([], 1)
    with open(current) as f:
        stored = spark.read.schema(LABELS).parquet(os.path.join(state_dir, f.read().strip()))
    return stored.rdd.map(tuple)


def replace_labels(labels, batch_id):
    name = "labels-%d" % batch_id
    target = os.path.join(state_dir, name)
    spark.createDataFrame(labels, LABELS).coalesce(2).write.mode("overwrite").parquet(target)
    temporary = os.path.join(state_dir, ".CURRENT")
    with open(temporary, "w") as f:
        f.write(name)
    os.rename(temporary, os.path.join(state_dir, "CURRENT"))
    for old in os.listdir(state_dir):
        if old.startswith("labels-") and old != name:
            shutil.rmtree(os.path.join(state_dir, old))


def components(edges, labels):
    """Each node takes the least label around it, until nothing changes."""
    # A root that is stored is an edge, too.
    both = edges.union(labels).flatMap(lambda e: [e, (e[1], e[0])]).distinct(PARTITIONS).cache()
    found = both.keys().distinct(PARTITIONS).map(lambda node: (node, node))
    while True:
        before = changes.value

        def lower(pair):
            node, (mine, least) = pair
            if least is not None and least < mine:
                changes.add(1)
                return (node, least)
            return (node, mine)

        offered = both.join(found, PARTITIONS).map(lambda kv: kv[1]).reduceByKey(min, PARTITIONS)
        found = found.leftOuterJoin(offered, PARTITIONS).map(lower).cache()
        found.count()
        if changes.value == before:
            both.unpersist()
            return found


def process(df, batch_id):
    rows = df.select("visit", "amount").rdd
    edges = rows.mapPartitions(edges_of).distinct()
    if edges.isEmpty():
        return
    numbered = edges.keys().distinct().zipWithIndex()
    last = max((index for _, index in numbered.toLocalIterator()), default=-1)
    labels = components(edges, read_labels())
    replace_labels(labels, batch_id)
    print("batch %d: %d visits, %d changes so far" % (batch_id, last + 1, changes.value))


if not os.path.isdir(state_dir):
    os.makedirs(state_dir)
stream = spark.readStream.schema("id LONG, visit STRING, page STRING, amount LONG, at TIMESTAMP")
stream = stream.option("maxFilesPerTrigger", 30).json(events_dir)
query = stream.writeStream.foreachBatch(process).option("checkpointLocation", checkpoint_dir).start()
query.awaitTermination()

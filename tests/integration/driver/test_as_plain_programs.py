"""What programs do around their queries: they write and print what they do by plain Python, although nothing of them is
known before they run."""

from __future__ import annotations

import pytest

from tests.integration.driver.as_plain import HEAD, compare
from tests.integration.driver.harness import Bench

pytestmark = pytest.mark.timeout(1200)

SESSIONS = """
def once(spark, name):
    lines = spark.readStream.schema("k long, v long").json("in")
    query = lines.writeStream.format("parquet").option("checkpointLocation", f"cp/{name}").trigger(
        availableNow=True).start(name)
    query.awaitTermination()
    say(name, spark.read.parquet(name).count(), spark.sparkContext.appName)

put("a", *range(5))
spark.createDataFrame([(1,)], "x long").createOrReplaceTempView("view")
try:
    once(spark, "first")
finally:
    spark.stop()
with SparkSession.builder.appName("second").config("spark.sql.shuffle.partitions", 3).getOrCreate() as other:
    once(other, "second")
    say(other.conf.get("spark.sql.shuffle.partitions"), other.catalog.tableExists("view"))
    try:
        say(SparkSession.getActiveSession() is other)
    except Exception as error:
        say(type(error).__name__)
say(SparkSession.getActiveSession())
third = SparkSession.builder.getOrCreate()
once(third.newSession(), "third")
say(third.range(3).count())
third.stop()
say("the end")
"""
BACKFILL = """
import argparse
asked = argparse.ArgumentParser()
asked.add_argument("name", nargs=2)
say(asked.parse_args().name, __name__, os.path.basename(__file__), sorted(os.listdir(".")))
past = spark.range(20).select((F.col("id") % 3).alias("k"), F.col("id").alias("v"))
past.write.mode("overwrite").parquet("past")
say("past", spark.read.parquet("past").count())
past.coalesce(1).write.mode("overwrite").saveAsTable("silver")
spark.read.parquet("past").groupBy("k").count().orderBy("k").show()
put("a", 100, 101)
static = spark.table("silver")
seen = lines.join(static.select("k", F.col("v").alias("old")), "k")
query = seen.writeStream.format("parquet").option("checkpointLocation", "cp/seen").start("seen")
copied = lines.writeStream.option("checkpointLocation", "cp/bronze").toTable("bronze")
query.processAllAvailable()
copied.processAllAvailable()
say(spark.table("silver").count(), spark.table("bronze").count(), spark.read.parquet("seen").count())
say(rows(spark.sql("select count(*) from silver s join bronze b on s.k = b.k")))
spark.table("bronze").coalesce(1).write.mode("append").saveAsTable("silver")
say(query.isActive, spark.table("silver").count(), sorted(each.name for each in spark.catalog.listTables()))
query.stop()
copied.stop()
pathlib.Path("summary.txt").write_text(f"{spark.table('silver').count()} rows")
"""
LISTENER = """
from pyspark.sql.streaming import StreamingQueryListener

class Counts(StreamingQueryListener):
    def __init__(self):
        self.started, self.ended, self.read, self.names = [], [], 0, set()
    def onQueryStarted(self, event):
        self.started.append(event.name)
    def onQueryProgress(self, event):
        self.read += event.progress.numInputRows
        self.names.add(event.progress.name)
    def onQueryIdle(self, event):
        pass
    def onQueryTerminated(self, event):
        self.ended.append((str(event.id), event.exception))

counts = Counts()
spark.streams.addListener(counts)
put("a", *range(7))
first = lines.writeStream.format("parquet").option("checkpointLocation", "cp/first").queryName("first").start("first")
say(counts.started)
started = []

def later():
    started.append(lines.groupBy("k").count().writeStream.format("memory").queryName("second")
        .outputMode("complete").start())

thread = threading.Thread(target=later)
thread.start()
thread.join()
(second,) = started
for query in (first, second):
    query.processAllAvailable()
say(rows(spark.table("second")), sorted(each.name for each in spark.streams.active))
put("b", *range(3))
for query in (first, second):
    query.processAllAvailable()
    query.stop()
while counts.read < 20 or len(counts.ended) < 2:
    time.sleep(0.05)
say(counts.started, sorted(counts.names), counts.read)
say(sorted(counts.ended) == sorted((each.id, None) for each in (first, second)))
spark.streams.removeListener(counts)
say(spark.sparkContext.uiWebUrl.replace("http", "x")[:1])
"""
NO_QUERY = """
def main():
    put("a", *range(7))
    frame = spark.read.json("in")
    say(frame.columns, frame.count(), rows(frame.groupBy("k").count()))
    frame.coalesce(1).write.json("copied")
    say(spark.sparkContext.parallelize(range(10), 2).map(lambda x: x + 1).sum(), spark.streams.active)
    say(spark.udf.register("plus", lambda x: x + 1, "long")(F.lit(1)) is not None)
    say(rows(spark.sql("select plus(v) from json.`in`")))
    pathlib.Path("told.txt").write_text(" ".join(sys.argv[1:]))

if __name__ == "__main__":
    main()
    sys.exit(0)
"""
PROGRAMS = {
    "sessions one after another": SESSIONS,
    "batches before and beside queries": BACKFILL,
    "a listener and a thread": LISTENER,
    "no query": NO_QUERY,
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(one, marks=() if one.startswith("batches") else pytest.mark.long) for one in PROGRAMS],
)
def test_a_program_does_what_it_does_by_plain_python(rig: Bench, what: str) -> None:
    compare(rig, HEAD + PROGRAMS[what])

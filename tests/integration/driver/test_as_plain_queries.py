"""Programs that start queries in the ways in which people start them: they write and print what they do by plain
Python, although none of their queries is known before."""

from __future__ import annotations

import pytest

from tests.integration.driver.as_plain import HEAD, compare
from tests.integration.driver.harness import Bench

pytestmark = pytest.mark.timeout(1200)

LAYERS = """
def run(kind, stream, name, write):
    writer = stream.writeStream.option("checkpointLocation", f"cp/{name}")
    if kind == "now":
        query = write(writer.trigger(availableNow=True))
        query.awaitTermination()
    else:
        query = write(writer)
        query.processAllAvailable()
        query.stop()
    say(kind, name, query.name, query.isActive, query.exception())

def total(frame, batch):
    frame.coalesce(1).write.mode("overwrite").parquet("totals")

for turn, kind in enumerate(("now", "on")):
    put(kind, *range(10 * turn, 10 * turn + 10))
    run(kind, lines, "bronze", lambda writer: into(writer, "bronze"))
    time.sleep(0.5)
    run(kind, stream("bronze").where("v % 2 = 0"), "silver", lambda writer: into(writer, "silver"))
    run(kind, stream("silver").select("k").dropDuplicates(), "gold", lambda writer: into(writer, "gold"))
    sums = stream("silver").groupBy("k").agg(F.sum("v").alias("v"))
    run(kind, sums, "totals", lambda writer: writer.outputMode("complete").foreachBatch(total).start())
    say([table(name).count() for name in ("bronze", "silver")])
    say(rows(table("gold")), rows(spark.read.parquet("totals")))
"""
TABLES = """
def stream(name):
    return spark.readStream.table(name)

def table(name):
    return spark.table(name)

def into(writer, name):
    return writer.toTable(name)
"""
PATHS = """
def stream(name):
    return spark.readStream.schema("k long" if name == "gold" else "k long, v long").parquet(name)

def table(name):
    return spark.read.parquet(name)

def into(writer, name):
    return writer.format("parquet").queryName(name).start(name)
"""
LOOPS = """
for turn in range(3):
    put(turn, *range(turn, turn + 5))
    query = (
        lines.writeStream.format("json").option("checkpointLocation", "cp-one")
        .trigger(availableNow=True).start("one")
    )
    query.awaitTermination()
    say(turn, query.isActive, query.exception(), spark.read.json("one").count())

writer = (
    lines.groupBy("k").count().writeStream.outputMode("complete").option("checkpointLocation", "cp-again")
    .foreachBatch(lambda frame, batch: frame.coalesce(1).write.mode("overwrite").json("again"))
)
ids = set()
turns = 0
while turns < 3:
    query = writer.start()
    ids.add(query.id)
    say(query.awaitTermination(2))
    query.stop()
    say(query.isActive)
    turns += 1
    put(f"again-{turns}", turns)
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
say(query.id in ids, len(ids), rows(spark.read.json("again").select("k", "count")))
"""
MEMORY = """
put("a", *range(9))
query = lines.groupBy("k").count().writeStream.format("memory").queryName("seen").outputMode("complete").start()
for turn in range(2):
    query.processAllAvailable()
    spark.sql("select k, count from seen order by k").show()
    say(rows(spark.sql("select k, count from seen")), rows(spark.table("seen")))
    put("b", 1, 1)
query.processAllAvailable()
say(query.lastProgress.sink.description, [each.name for each in spark.streams.active])
query.stop()
say(rows(spark.sql("select * from seen")), query.isActive, len(spark.streams.active))

def store(frame, batch):
    frame.persist()
    for folder in ("first", "second"):
        frame.coalesce(1).write.mode("overwrite").parquet(f"{folder}/{batch}")
    say("batch", batch, frame.count(), frame.isStreaming)
    frame.unpersist()

one_by_one = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).json("in")
query = one_by_one.writeStream.foreachBatch(store).trigger(availableNow=True).start()
query.awaitTermination()
say([each.batchId for each in query.recentProgress], [each.numInputRows for each in query.recentProgress])
put("c", 5)
query = one_by_one.writeStream.foreachBatch(store).option("checkpointLocation", "cp-each").start()
query.processAllAvailable()
say(query.lastProgress.batchId)
query.stop()
"""
TABLES_IN_MEMORY = """
put("a", *range(9))
query = lines.writeStream.format("memory").queryName("seen").start()
query.processAllAvailable()
say(rows(spark.sql("select * from seen")), query.lastProgress["batchId"])
distinct = lines.dropDuplicates(["k"]).select("k").writeStream.format("memory").queryName("distinct").start()
distinct.processAllAvailable()
say(rows(spark.sql("select * from distinct")))
query.stop()
distinct.stop()
"""
ASYNCIO = """
import asyncio

async def watch(query):
    while True:
        status = query.status
        if query.recentProgress and not status["isTriggerActive"] and not status["isDataAvailable"]:
            return status["message"]
        await asyncio.sleep(0.05)

async def main():
    put("a", *range(5))
    first = lines.writeStream.format("memory").queryName("first").start()
    await asyncio.to_thread(first.processAllAvailable)
    say(rows(spark.table("first")))
    put("b", 7)
    second = lines.writeStream.format("parquet").option("checkpointLocation", "cp").start("second")
    waiting = asyncio.create_task(asyncio.to_thread(second.awaitTermination))
    say(await watch(second))
    await asyncio.gather(*(asyncio.to_thread(each.processAllAvailable) for each in (first, second)))
    say(rows(spark.table("first")), waiting.done())
    await asyncio.to_thread(second.stop)
    say(await waiting, second.isActive, first.isActive)
    first.stop()

asyncio.run(main())
say(rows(spark.read.parquet("second")))
"""
REFUSALS = """
put("a", *range(5))
first = lines.writeStream.format("memory").queryName("mine").start()
try:
    lines.writeStream.format("memory").queryName("mine").start()
except Exception as error:
    say(type(error).__name__, "mine" in str(error))
try:
    lines.groupBy("k").count().writeStream.format("parquet").option("checkpointLocation", "cp-no").start("no")
except Exception as error:
    say(type(error).__name__, str(error)[:50])
try:
    lines.writeStream.format("no such sink").start()
except Exception as error:
    say(type(error).__name__)
try:
    spark.readStream.json("no/such/folder")
except Exception as error:
    say(type(error).__name__)
try:
    lines.count()
except Exception as error:
    say(type(error).__name__)
first.processAllAvailable()
say(first.isActive, rows(spark.table("mine")), [each.name for each in spark.streams.active])
counts = lines.groupBy("k").count().writeStream.outputMode("complete")
second = counts.format("memory").queryName("other").trigger(availableNow=True).start()
say(spark.streams.awaitAnyTermination(), second.isActive, spark.streams.awaitAnyTermination(1))
spark.streams.resetTerminated()
say(spark.streams.awaitAnyTermination(1), rows(spark.table("other")))
threading.Timer(1, first.stop).start()
spark.streams.awaitAnyTermination()
say(first.isActive)
spark.streams.resetTerminated()
third = counts.format("memory").queryName("mine").trigger(availableNow=True).start()
third.awaitTermination()
say(rows(spark.table("mine")))
"""
ANEW = """
shutil.rmtree("cp", ignore_errors=True)
for file in pathlib.Path("in").glob("*.json"):
    file.unlink()
seen = []

def note(frame, batch):
    seen.append((batch, rows(frame)))

def run():
    query = lines.groupBy("k").count().writeStream.outputMode("update").foreachBatch(note).option(
        "checkpointLocation", "cp/counts").trigger(availableNow=True).start()
    query.awaitTermination()
    say(seen.pop(), seen)
    return query.id

put("a", *range(5))
ids = [run()]
put("b", *range(5))
ids.append(run())
shutil.rmtree("cp")
ids.append(run())
say(ids[0] == ids[1], ids[1] == ids[2])
"""
PROGRAMS = {
    "layers of tables, with and without an end": TABLES + LAYERS,
    "layers of folders, with and without an end": PATHS + LAYERS,
    "one query in a loop": LOOPS,
    "a memory table, and a function for each batch": MEMORY,
    "asyncio": ASYNCIO,
    "what Spark refuses is caught, and any of several": REFUSALS,
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(one, marks=() if one.startswith("a memory table") else pytest.mark.long)
        for one in PROGRAMS
    ],
)
def test_a_program_writes_and_prints_what_it_does_by_plain_python(rig: Bench, what: str) -> None:
    compare(rig, HEAD + PROGRAMS[what])


@pytest.mark.long
def test_a_program_that_removes_its_checkpoint_begins_anew_in_each_run_as_by_plain_python(
    rig: Bench,
) -> None:
    printed, _ = compare(rig, HEAD + ANEW, runs=2)
    assert len(printed) == 8 and printed[3] == printed[7] == "> True False"


def test_a_table_in_memory_begins_anew_in_each_run_as_by_plain_python(rig: Bench) -> None:
    """Spark does not go on from a checkpoint with it."""
    compare(rig, HEAD + TABLES_IN_MEMORY, runs=2, alike=True)

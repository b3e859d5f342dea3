"""What a query of a program goes on from when it comes again, and a batch that runs a query of its own."""

from __future__ import annotations

import pytest

from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import WINDOWS, conf, job, the_end
from tests.integration.driver.test_program_growth import grown_by, of_type

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
def test_it_is_told_that_a_query_has_lost_its_checkpoint(rig: Bench) -> None:
    text = f"import shutil{WINDOWS}shutil.rmtree(sys.argv[1] + '-cp', ignore_errors=True)"
    query = "windows.writeStream.format('noop').option('checkpointLocation', sys.argv[1] + '-cp').start()"
    document = job(rig, f"{text}\n{query}.awaitTermination()", ())
    for attempt in (1, 2):
        begun = len(rig.control_plane.batches)
        driver = rig.start(document, **conf())
        rig.wait_batches(begun + 1)
        assert [each["begins_anew"] for each in of_type(rig, "query-started", attempt)] == [attempt == 2]
        driver.kill()


ORDER = """
import os, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
rows = spark.readStream.format("rate").load()
order = ["odd", "even"] if os.path.exists(sys.argv[1] + "-ids") else ["even", "odd"]
for name in order:
    counts = rows.filter(rows.value % 2 == ["even", "odd"].index(name)).groupBy("value").count()
    query = counts.writeStream.outputMode("complete").foreachBatch(lambda frame, _: frame.count()).start()
    with open(sys.argv[1] + "-ids", "a") as ids:
        print(name, query.id, file=ids)
spark.streams.awaitAnyTermination()
"""


def test_queries_of_one_shape_keep_their_state_in_whatever_order_they_are_started(rig: Bench) -> None:
    document = job(rig, ORDER, ())
    first = rig.start(document, **conf())
    wait_for("a batch of each", lambda: len({each["query_id"] for each in rig.control_plane.batches}) == 2)
    for report in of_type(rig, "query-started", 1):
        document = grown_by(document, report)
    first.kill()
    begun = len(rig.control_plane.batches)
    rig.start(document, **conf())
    wait_for("another of each", lambda: len({e["query_id"] for e in rig.control_plane.batches[begun:]}) == 2)
    ids = [line.split() for line in (rig.directory / "out-ids").read_text().splitlines()]
    assert [name for name, _ in ids] == ["even", "odd", "odd", "even"]
    assert ids[:2] == ids[:1:-1]


INNER = """
import os, pathlib, sys, time
from pyspark.sql import SparkSession
out = sys.argv[1]
os.mkdir(out + "-in")
pathlib.Path(out + "-in", "a").write_text("one\\ntwo")
spark = SparkSession.builder.getOrCreate()

def each(frame, batch):
    pathlib.Path(out + "-batch").touch()
    while not os.path.exists(out + "-go"):
        time.sleep(0.1)
    lines = spark.readStream.text(out + "-in").writeStream.trigger(availableNow=True)
    query = lines.format("noop").option("checkpointLocation", out + "-inner").start()
    print("the inner one ended:", query.awaitTermination(60))

rows = spark.readStream.format("rate").load().writeStream.foreachBatch(each).queryName("outer")
rows.start().awaitTermination()
"""


def test_a_batch_that_runs_a_query_of_its_own_holds_up_no_stop(rig: Bench) -> None:
    driver = rig.start(job(rig, INNER, ()), **conf())
    wait_for("its batch", lambda: (rig.directory / "out-batch").exists())
    rig.control_plane.order(stop="drain")
    wait_for("the stop", lambda: "stop=drain" in rig.control_plane.calls[-1]["query"])
    (rig.directory / "out-go").touch()
    the_end(rig, "stopped")
    assert driver.exit_status() == 0
    assert "the inner one ended: True" in driver.log

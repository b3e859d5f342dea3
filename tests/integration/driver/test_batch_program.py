"""An attempt of a BATCH program: its tasks at once follow the plan while it runs, and how it ends."""

from __future__ import annotations

import signal
import time
from textwrap import dedent
from typing import Any

import pytest

from app.documents.program import parse_program
from app.model.graphdoc import to_document
from app.model.graphdoc_program import graph_of
from tests.integration.driver.harness import Bench, Driver, wait_for

pytestmark = pytest.mark.timeout(600)

TASKS = """
import os, sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("mine").getOrCreate()
out = sys.argv[1]
os.makedirs(out, exist_ok=True)

def work(number):
    mark = os.path.join(out, str(number))
    open(mark, "w").close()
    time.sleep(0.3)
    os.remove(mark)

jobs = 0
while not os.path.exists(out + ".enough"):
    spark.sparkContext.parallelize(range(40), 40).foreach(work)
    jobs += 1
tracker = spark.sparkContext.statusTracker()
print("all jobs are its own:", len(tracker.getJobIdsForGroup()) == jobs, tracker.getActiveJobsIds())
spark.stop()
"""


def job(rig: Bench, text: str, **more: Any) -> dict[str, Any]:
    (rig.artifacts_dir / "job.py").write_text(dedent(text), encoding="utf-8")
    document = {
        "name": "job",
        "type": "BATCH",
        "script": "job.py",
        "args": [str(rig.directory / "out")],
        "artifacts": ["job.py"],
        "bounds": {"job": {"upperBound": 8}},
    }
    return to_document(graph_of(parse_program({**document, **more})))


def the_end(rig: Bench, kind: str) -> dict[str, Any]:
    def reported() -> list[dict[str, Any]]:
        failed = rig.control_plane.of_type("failed")
        assert kind == "failed" or not failed, failed[0]["error"] + str(failed[0]["stack"])
        return rig.control_plane.of_type(kind)

    try:
        return wait_for(kind, reported)[-1]  # type: ignore[no-any-return]
    except AssertionError as error:
        raise AssertionError(f"{error}\n{rig.drivers[-1].log[-6000:]}") from None


def test_as_many_tasks_run_at_once_as_the_plan_says_while_it_runs(rig: Bench) -> None:
    document = job(rig, TASKS)
    driver = rig.start(document, {"job": 2})
    marks = rig.directory / "out"
    the_end(rig, "region-progress")
    for version, slots in ((0, 2), (1_001, 6), (1_002, 1), (1_003, 8), (1_004, 3)):
        if version:
            rig.change_plan(document, version, {"job": slots})
            wait_for(
                f"plan {version}",
                lambda version=version: [
                    each
                    for each in rig.control_plane.of_type("plan-applied")
                    if each["plan_version"] == version
                ],
            )
        wait_for(f"{slots} tasks run at once", lambda slots=slots: len(list(marks.iterdir())) == slots)
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert len(list(marks.iterdir())) <= slots
    (rig.directory / "out.enough").touch()
    the_end(rig, "finished")
    assert driver.exit_status() == 0
    last = rig.control_plane.of_type("region-progress")[-1]
    # Spark counts its last tasks a moment after they have ended.
    assert last["tasks_total"] >= last["tasks_done"] > 40


def test_an_ordinary_program_finds_what_it_expects(rig: Bench) -> None:
    (rig.directory / "in").mkdir()
    (rig.directory / "in" / "a.txt").write_text("a\nb\n")
    text = """
    import sys
    from pyspark.sql import SparkSession, functions as F
    spark = (
        SparkSession.builder.appName("x").config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .config("spark.sql.adaptive.enabled", True).getOrCreate()
    )
    for each in (spark, spark.newSession()):
        names = "adaptive.enabled", "adaptive.coalescePartitions.enabled", "shuffle.partitions"
        print("settings:", [each.conf.get("spark.sql." + name) for name in names])
    print("parallelism:", spark.sparkContext.defaultParallelism)
    upper = F.udf(lambda text: text.upper())
    lines = spark.read.text(sys.argv[1].replace("out", "in")).select(upper("value").alias("value"))
    lines.write.mode("overwrite").parquet(sys.argv[1])
    spark.conf.set("spark.sql.shuffle.partitions", 2)  # so many states are quickly made
    stream = spark.readStream.text(sys.argv[1].replace("out", "in")).groupBy("value").count()
    query = stream.writeStream.outputMode("complete").format("memory").queryName("t")
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    print("counted:", spark.table("t").count(), query.isActive)
    spark.sparkContext.cancelAllJobs()
    print("written:", sorted(row.value for row in spark.read.parquet(sys.argv[1]).collect()))
    spark.stop()
    sys.exit(0)
    """
    driver = rig.start(job(rig, text), {"job": 3})
    the_end(rig, "finished")
    assert driver.exit_status() == 0
    log = driver.log
    assert log.count("settings: ['true', 'false', '200']") == 2, log
    assert "parallelism: 8" in log and "counted: 2 False" in log and "written: ['A', 'B']" in log, log


def test_a_program_without_spark_is_finished(rig: Bench) -> None:
    driver = rig.start(job(rig, "print('nothing to do')"))
    the_end(rig, "finished")
    assert driver.exit_status() == 0 and "nothing to do" in driver.log


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            """
            from pyspark.sql import SparkSession, functions as F
            spark = SparkSession.builder.getOrCreate()
            spark.range(10).select(F.udf(lambda n: 1 / (n - n))("id")).collect()
            """,
            "job.py, line 4: ZeroDivisionError",
            id="a function fails",
        ),
        pytest.param(
            "import sys\nsys.exit(3)",
            "job.py, line 2: the program ended with sys.exit(3)",
            id="status",
            marks=pytest.mark.long,
        ),
        pytest.param(
            """
            from pyspark.sql import SparkSession
            spark = SparkSession.builder.getOrCreate()
            query = spark.readStream.format("rate").load().writeStream.format("noop").start()
            """,
            "job.py, line 4: a BATCH program starts a streaming query that runs for ever",
            id="a stream without end",
        ),
        pytest.param(
            """
            from pyspark.sql import SparkSession
            spark = SparkSession.builder.master("yarn").getOrCreate()
            """,
            "job.py, line 3: the program sets spark.master to yarn",
            id="a master of its own",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_program_that_fails_says_where(rig: Bench, text: str, sentence: str) -> None:
    driver = rig.start(job(rig, text))
    failed = the_end(rig, "failed")
    assert sentence in failed["error"], failed["error"]
    assert not failed["recoverable"], "it runs once"
    # Else the control plane would take it for a start that failed, and repeat it. What is refused is final anyway.
    assert rig.control_plane.of_type("running") or failed["user_error"] is None
    assert driver.exit_status() == 4


def in_long_tasks(rig: Bench) -> Driver:
    driver = rig.start(job(rig, TASKS.replace("time.sleep(0.3)", "time.sleep(600)")))
    the_end(rig, "running")
    return driver


def test_cancel_ends_it_at_once(rig: Bench) -> None:
    driver = in_long_tasks(rig)
    rig.control_plane.order(stop="kill")
    assert driver.exit_status() == 0


@pytest.mark.long
def test_a_fence_ends_it_at_once(rig: Bench) -> None:
    driver = in_long_tasks(rig)
    rig.control_plane.fenced = True
    assert driver.exit_status() == 3


@pytest.mark.long
def test_sigterm_ends_it_at_once(rig: Bench) -> None:
    driver = in_long_tasks(rig)
    driver.process.send_signal(signal.SIGTERM)
    assert the_end(rig, "failed")["outside"]
    assert driver.exit_status() == 4

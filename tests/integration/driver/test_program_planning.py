"""A program is planned by a real driver process: what it would run, or the sentence that says why it cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.integration.driver.harness import Bench, Driver

pytestmark = pytest.mark.timeout(600)

HEAD = """
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.appName("mine").getOrCreate()
rows = spark.readStream.format("rate").load()
"""
COUNTS = """
counts = rows.groupBy((F.col("value") % 10).alias("k")).count()
query = counts.writeStream.queryName("counts").outputMode("update").format("console").start()
"""


def plan(rig: Bench, **files: str) -> tuple[dict[str, Any], Driver]:
    """What a driver answers to a program: ``job`` is the script, ``args`` its arguments, ``origin`` what it goes on
    from, ``version_of`` the checkpoints of the job that it replaces, ``topic`` an environment variable, and the others
    are files beside it."""
    args, origin, version_of, topic = (
        files.pop(name, "") for name in ("args", "origin", "version_of", "topic")
    )
    for name, text in files.items():
        (rig.artifacts_dir / f"{name}.py").write_text(dedent(text), encoding="utf-8")
    spec = {
        "answer_file": str(rig.directory / "answer.json"),
        "job_name": "job",
        "graph": {
            "name": "job",
            "type": "STREAMING",
            "script": "job.py",
            "args": args.split(),
            "artifacts": sorted(f"{name}.py" for name in files),
            **({"from": origin} if origin else {}),
            **({"environmentVariables": {"TOPIC": topic}} if topic else {}),
        },
        "master": "local[2]",
        "slots": 2,
        "work_dir": str(rig.directory / "planning"),
        "artifacts_dir": str(rig.artifacts_dir),
        "checkpoint_dir": version_of,
    }
    path = rig.directory / "planning.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    driver = Driver(rig.directory / "run")
    rig.drivers.append(driver)
    driver.wait_ready()
    driver.assign(path)
    status = driver.exit_status()
    answer = Path(rig.directory / "answer.json")
    assert status == 0 and answer.exists(), driver.log
    value: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return value, driver


def often(cases: Iterable[str], *chosen: str) -> list[Any]:
    """``cases``, of which all but the ``chosen`` ones are of `make long`: each starts a driver."""
    return [pytest.param(case, marks=() if case in chosen else pytest.mark.long) for case in cases]


def names(answer: dict[str, Any]) -> list[str]:
    assert answer["error"] is None, answer
    return [vertex["name"] for vertex in answer["vertices"]]


def test_a_program_has_its_environment_variables_while_it_is_planned(rig: Bench) -> None:
    text = """
    import os
    seen = spark.range(1).select(F.udf(lambda _: os.environ["TOPIC"])("id")).first()[0]
    rows.writeStream.queryName(seen + " " + os.environ["TOPIC"]).format("noop").start().awaitTermination()
    """
    assert names(plan(rig, topic="words", job=HEAD + dedent(text))[0])[-1] == "words words"


def test_a_program_that_waits_is_planned_and_nothing_of_it_runs(rig: Bench) -> None:
    out = rig.directory / "out"
    answer, driver = plan(
        rig,
        job=f"""
        import argparse, logging, sys
        from pyspark.sql import SparkSession, functions as F
        import beside

        logging.basicConfig(level=logging.INFO, format="mine: %(message)s")

        if __name__ == "__main__":
            parser = argparse.ArgumentParser()
            parser.add_argument("--suffix")
            asked = parser.parse_args()
            spark = SparkSession.builder.appName("mine").config("spark.sql.shuffle.partitions", 5).getOrCreate()
            assert sys.modules["__main__"].asked is asked and __file__.endswith("/job.py"), __file__
            logging.info("it begins")
            print("printed", sys.argv[1:])
            rows = spark.readStream.format("rate").load().select(beside.double("value"))
            counts = rows.groupBy("v").count()
            q = counts.writeStream.queryName("n" + asked.suffix).outputMode("complete").format("memory").start()
            q2 = rows.writeStream.option("checkpointLocation", {str(out / "cp")!r}).start({str(out)!r}, "parquet")
            spark.streams.awaitAnyTermination()
            print("never")
        """,
        beside="""
        from pyspark.sql import functions as F
        def double(name): return (F.col(name) * 2).alias("v")
        """,
        args="--suffix x",
    )
    assert names(answer)[-1:] == ["out"] and "nx" in names(answer), names(answer)
    assert {vertex["state_partitions"] for vertex in answer["vertices"]} == {5, None}
    assert not out.exists()
    assert driver.log.count("mine: it begins") == 1, driver.log
    assert "printed ['--suffix', 'x']" in driver.log and "never" not in driver.log


WAITS = {
    "a loop that looks": ("while query.isActive: time.sleep(1)", ["rate", "aggregate", "counts"]),
    "a loop that sleeps": ("while True: time.sleep(5)", ["rate", "aggregate", "counts"]),
    "some sleep": (
        "time.sleep(60)\nrows.writeStream.format('noop').queryName('two').start()\nquery.lastProgress['batchId']",
        ["rate", "aggregate", "counts", "rate 2", "two"],
    ),
    "a wait with a limit": (
        "if not query.awaitTermination(3600): raise SystemExit('It took too long.')",
        ["rate", "aggregate", "counts"],
    ),
    "an event": ("import threading\nthreading.Event().wait()", ["rate", "aggregate", "counts"]),
    "a thread for each": (
        """
def run(name, delay):
    time.sleep(delay)
    rows.writeStream.format('noop').queryName(name).start().awaitTermination()
query.processAllAvailable()
query.stop()
threads = [threading.Thread(target=run, args=(f"t{n}", 0.5 * n)) for n in range(2)]
for each in threads: each.start()
for each in threads: each.join()
""",
        ["rate", "aggregate", "counts", "rate 2", "t0", "rate 3", "t1"],
    ),
    "what is there is enough": (
        """
for name in ("a", "b"):
    once = rows.writeStream.format("noop").queryName(name).trigger(availableNow=True).start()
    once.awaitTermination()
query.stop()
spark.range(3).write.mode("overwrite").parquet(OUT)
spark.read.parquet("/none/such").show()
""",
        ["rate", "aggregate", "counts", "rate 2", "a", "rate 3", "b"],
    ),
    "one query again and again": (
        """
query.stop()
while True:
    again = rows.writeStream.format("noop").start()
    again.awaitTermination(30)
    again.stop()
""",
        ["rate", "aggregate", "counts", "rate 2", "noop"],
    ),
    "one checkpoint again and again": (
        """
query.stop()
while True:
    again = rows.writeStream.format("noop").option("checkpointLocation", OUT).trigger(availableNow=True).start()
    again.awaitTermination()
""",
        ["rate", "aggregate", "counts", "rate 2", "noop"],
    ),
}


@pytest.mark.parametrize("how", often(WAITS, "a loop that looks", "one checkpoint again and again"))
def test_however_a_program_waits_it_is_planned(rig: Bench, how: str) -> None:
    text, expected = WAITS[how]
    out = rig.directory / "out"
    answer, _ = plan(rig, job=f"import time, threading\nOUT = {str(out)!r}\n" + HEAD + COUNTS + text)
    assert names(answer) == expected
    assert not out.exists()


def test_the_state_has_the_partitions_that_its_checkpoint_says(rig: Bench) -> None:
    offsets = rig.directory / "cp" / "offsets"
    offsets.mkdir(parents=True)
    for batch, number in (("9", 7), ("10", 9)):
        about = {"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": str(number)}}
        (offsets / batch).write_text("v1\n" + json.dumps(about) + "\n0")
    text = COUNTS.replace(".start()", f".option('checkpointLocation', {str(rig.directory / 'cp')!r}).start()")
    answer, _ = plan(rig, job=HEAD + text + "query.awaitTermination()")
    assert {vertex["state_partitions"] for vertex in answer["vertices"]} == {9, None}


def test_a_program_may_have_a_module_of_the_name_of_ours_and_settings_that_only_a_new_session_takes(
    rig: Bench,
) -> None:
    answer, driver = plan(
        rig,
        job="""
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
        import app, app_user
        assert app.MINE == 1 and app_user.MINE == 1, app
        sc = SparkContext(conf=SparkConf().setAppName("x").set("spark.sql.warehouse.dir", "/tmp/w"))
        assert sc is SparkContext.getOrCreate()
        spark = SparkSession(sc)
        assert spark.conf.get("spark.sql.warehouse.dir").endswith("/tmp/w")
        again = SparkSession.builder.config("spark.sql.shuffle.partitions", 3).config("spark.a", True).getOrCreate()
        assert again.conf.get("spark.sql.shuffle.partitions") == "3" and again.conf.get("spark.a") == "true"
        rows = again.readStream.format("rate").load()
        rows.groupBy("value").count().writeStream.outputMode("update").format("noop").start().awaitTermination()
        """,
        app="MINE = 1",
        app_user="from app import MINE",
    )
    assert {vertex["state_partitions"] for vertex in answer["vertices"]} == {3, None}, driver.log


BAD = {
    "raises": ("import json\nraise ValueError('no such luck')", r"job.py, line 2: ValueError: no such luck"),
    "syntax": (
        "x = 1\ny = (1,\nz = 3\n",
        r"job.py, line 2: SyntaxError: '\(' was never closed; .* Python 3.*",
    ),
    "module": ("\nimport nowhere_to_be_found", r"job.py, line 2: there is no module nowhere_to_be_found: .*"),
    "nothing": (
        "print('hello')",
        r"job.py, line 1: the program has ended and has started no streaming query; .*",
    ),
    "exits": (
        "import sys\nsys.exit(0)",
        r"job.py, line 2: the program has ended and has started no streaming query; .*",
    ),
    "exits 3": ("import sys\nsys.exit(3)", r"job.py, line 2: the program ended with sys.exit\(3\)\."),
    "another Python": (
        "import sys\nif sys.version_info < (4,):\n    sys.exit('It needs Python 4.')",
        r"job.py, line 3: the program ended with the message: It needs Python 4\.",
    ),
    "at once": ("import os\nos._exit(0)", r"job.py, line 2: the program ended itself with os._exit\(0\): .*"),
    "forks": ("import os\nif os.fork() == 0: pass", r"job.py, line 2: the program forks .*"),
    "package": (
        HEAD + "spark.readStream.format('kafka').option('subscribe', 'x').load()",
        r"job.py, line 5: AnalysisException: Failed to find data source: kafka.*",
    ),
    "master": (
        "from pyspark.sql import SparkSession\n\nSparkSession.builder.master('local[4]').getOrCreate()",
        r"job.py, line 3: the program sets spark.master to local\[4\], which is not possible: .*",
    ),
    "fixed": (
        HEAD + "spark.conf.set('spark.sql.adaptive.enabled', True)\n" + COUNTS,
        r"job.py, line 8: the program has set spark.sql.adaptive.enabled to true, which is not possible: .*",
    ),
    "stops": (
        HEAD + COUNTS + "spark.stop()",
        r"job.py, line 8: the program stops its session while its query counts runs: .*",
    ),
    "stops, and begins with what a session cannot have": (
        HEAD
        + "spark.stop()\nbuilder = SparkSession.builder.config('spark.task.cpus', 2)\nbuilder.getOrCreate()",
        r"job.py, line 7: the program sets spark.task.cpus to 2 for a session after spark.stop\(\), which is not .*",
    ),
    "a checkpoint for each attempt": (
        HEAD
        + "name = '/tmp/none/' + spark.sparkContext.applicationId\n"
        + "rows.writeStream.format('noop').option('checkpointLocation', name).start()",
        r"job.py, line 6: the checkpoint /tmp/none/local-\d+ has Spark's application id in its name, which is .*",
    ),
    "does not wait": (
        HEAD + COUNTS,
        r"job.py, line 8: the program has ended without waiting for its query of counts, .*",
    ),
    "continuous": (
        HEAD + "rows.writeStream.format('console').trigger(continuous='1 second').start()",
        r"job.py, line 5: a continuous trigger \(continuous\) is not possible: .*",
    ),
    "mode": (
        HEAD + "rows.groupBy('value').count().writeStream.format('noop').start()",
        r"job.py, line 5: AnalysisException: Invalid streaming output mode: append.*",
    ),
    "sink package": (
        HEAD + "rows.writeStream.format('kafka').start()",
        r"job.py, line 5: AnalysisException: Failed to find data source: kafka.*",
    ),
    "no sink": (HEAD + "rows.writeStream.start()", r"job.py, line 5: the query has no sink: .*"),
    "one checkpoint": (
        HEAD
        + "w = rows.writeStream.format('noop').option('checkpointLocation', '/tmp/none/such')\n"
        + "w.start()\nw.start()",
        r"job.py, line 7: the program starts a second query under the checkpoint /tmp/none/such, .* job.py, line 6; .*",
    ),
}


@pytest.mark.parametrize("what", often(BAD, "nothing", "one checkpoint"))
def test_what_cannot_be_a_job_is_one_sentence_with_file_and_line(rig: Bench, what: str) -> None:
    text, said = BAD[what]
    answer, _ = plan(rig, job=text)
    assert re.fullmatch(said, answer["error"]), answer["error"]
    assert "\n" not in answer["error"]

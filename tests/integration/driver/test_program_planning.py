"""A program is planned by a real driver process: what it would run, or the sentence that says why it cannot."""

from __future__ import annotations

import json
import re
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
    """What a driver answers to a program: ``job`` is the script, the others are files beside it."""
    args = files.pop("args", "")
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
        },
        "master": "local[2]",
        "slots": 2,
        "work_dir": str(rig.directory / "planning"),
        "artifacts_dir": str(rig.artifacts_dir),
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


def names(answer: dict[str, Any]) -> list[str]:
    assert "error" not in answer, answer
    return [vertex["name"] for vertex in answer["vertices"]]


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
    assert {vertex["statePartitions"] for vertex in answer["vertices"]} == {5, None}
    assert not out.exists()
    assert driver.log.count("mine: it begins") == 1, driver.log
    assert "printed ['--suffix', 'x']" in driver.log and "never" not in driver.log


BAD = {
    "raises": ("import json\nraise ValueError('no such luck')", r"job.py, line 2: ValueError: no such luck"),
    "syntax": (
        "x = 1\ny = (1,\nz = 3\n",
        r"job.py, line 2: SyntaxError: '\(' was never closed; .* Python 3.*",
    ),
    "module": ("\nimport nowhere_to_be_found", r"job.py, line 2: there is no module nowhere_to_be_found: .*"),
    "nothing": ("print('hello')", r"job.py: the program has ended and has started no streaming query; .*"),
    "exits": (
        "import sys\nsys.exit(0)",
        r"job.py: the program has ended and has started no streaming query; .*",
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
    "does not wait": (
        HEAD + COUNTS,
        r"job.py: the program has ended without waiting for its query of counts, .*",
    ),
    "continuous": (
        HEAD + "rows.writeStream.format('console').trigger(continuous='1 second').start()",
        r"job.py, line 5: a continuous trigger \(continuous\) is not possible: .*",
    ),
    "no sink": (HEAD + "rows.writeStream.start()", r"job.py, line 5: the query has no sink: .*"),
    "one checkpoint": (
        HEAD
        + "w = rows.writeStream.format('noop').option('checkpointLocation', '/tmp/none/such')\n"
        + "w.start()\nw.start()",
        r"job.py, line 7: the program starts a second query under the checkpoint /tmp/none/such, .* job.py, line 6; .*",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_a_job_is_one_sentence_with_file_and_line(rig: Bench, what: str) -> None:
    text, said = BAD[what]
    answer, _ = plan(rig, job=text)
    assert re.fullmatch(said, answer["error"]), answer["error"]
    assert "\n" not in answer["error"]
